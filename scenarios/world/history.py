"""What clients saw, and what they may never see: the checks of a history.

    Sent    values that went out together, when, and where the ack said they are
    Polled  what one consumer was given, in order, from where it stood

    inconsistent   an offset has two values
    duplicate      a value has two offsets
    refused        a value that was certainly not written was read
    lost           an acked value was read by nobody, though somebody read beyond it
    unseen         an acked value is not among what is read in the end
    skipped        a consumer passed over a value that others read there
    backwards      a consumer was given an offset again, or an earlier one
    out of order   what was sent after an ack lies before what was acked
    reordered      what one producer sent after another of its records lies before that

(Jepsen's checker for Kafka has these; `out of order` is Redpanda's.)

Rule 1: each check is a function of a history, and says what is wrong in a line each.

Rule 2: a history names only what was promised: whoever makes it leaves out the ack of a
batch that may be lost, as with acks=1 after a failover.

Rule 3: where a consumer begins anew, or what it wants next is no longer in the log, that is
another consumer: `session` is another.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

import attrs

from storage.types import Offset

At: TypeAlias = tuple[Offset, str]


@attrs.frozen(kw_only=True)
class Sent:
    values: tuple[str, ...]
    sent_at: float
    answered_at: float
    base_offset: Offset | None = None
    """Where the ack says that the first of them is; None without one."""
    refused: bool = False
    """It was certainly not written."""
    producer: str | None = None
    """Who sends everything in order, acked or not (KIP-98); None where nobody promises that."""

    @property
    def acked(self) -> list[At]:
        return [] if self.base_offset is None else list(enumerate(self.values, self.base_offset))


@attrs.frozen(kw_only=True)
class Polled:
    session: int
    records: tuple[At, ...]
    """Offset and value of each."""


@attrs.frozen(kw_only=True)
class History:
    """Of one partition, in the order of the answers."""

    sends: Sequence[Sent]
    polls: Sequence[Polled]
    final: Sequence[At]
    """All that a consumer reads once everything is at rest."""
    log_start: Offset = 0
    """Below it is no record any more, as somebody has asked for."""
    repeated: Collection[str] = ()
    """Values that were sent more than once, and may be there as often."""
    compacted: bool = False
    """Records may go that others of their key came after."""

    @property
    def reads(self) -> list[At]:
        return [at for poll in self.polls for at in poll.records] + list(self.final)

    @property
    def acked(self) -> list[At]:
        return [at for sent in self.sends for at in sent.acked]


def inconsistent(history: History) -> Iterator[str]:
    values: dict[Offset, set[str]] = defaultdict(set)
    for offset, value in history.acked + history.reads:
        values[offset].add(value)
    for offset, found in sorted(values.items()):
        if len(found) > 1:
            yield f"offset {offset} has {' and '.join(sorted(found))}"


def duplicate(history: History) -> Iterator[str]:
    offsets: dict[str, set[Offset]] = defaultdict(set)
    for offset, value in history.acked + history.reads:
        offsets[value].add(offset)
    for value, found in sorted(offsets.items()):
        if len(found) > 1 and value not in history.repeated:
            yield f"{value} is at {' and '.join(map(str, sorted(found)))}"


def refused(history: History) -> Iterator[str]:
    read = {value for _, value in history.reads}
    for sent in history.sends:
        if sent.refused and (there := read.intersection(sent.values)):
            yield f"{' '.join(sorted(there))} was refused before it was written, and read"


def lost(history: History) -> Iterator[str]:
    read = {value for _, value in history.reads}
    end = max((offset for offset, _ in history.reads), default=-1)
    for offset, value in history.acked:
        if history.log_start <= offset <= end and value not in read:
            yield f"{value} was acked at {offset} and read by nobody, who read to {end}"


def unseen(history: History) -> Iterator[str]:
    there = {value for _, value in history.final}
    for offset, value in history.acked:
        if offset >= history.log_start and value not in there:
            yield f"{value} was acked at {offset} and is not there"


def skipped(history: History) -> Iterator[str]:
    known = sorted(dict(history.reads))
    for session, records in _sessions(history).items():
        given = {offset for offset, _ in records}
        first, last = min(given), max(given)
        for offset in known:
            if first < offset < last and offset not in given:
                yield f"consumer {session} was given {first} to {last} without {offset}"


def backwards(history: History) -> Iterator[str]:
    for session, records in _sessions(history).items():
        for (before, _), (offset, _) in pairwise(records):
            if offset <= before:
                yield f"consumer {session} was given {offset} after {before}"


def out_of_order(history: History) -> Iterator[str]:
    for earlier in history.sends:
        for later in history.sends:
            if earlier.acked and later.acked and earlier.answered_at < later.sent_at:
                (last, before), (first, after) = earlier.acked[-1], later.acked[0]
                if first <= last:
                    yield f"{after} at {first} was sent after {before} was acked at {last}"


def reordered(history: History) -> Iterator[str]:
    offsets = {value: offset for offset, value in history.acked + history.reads}
    latest: dict[str, At] = {}
    for sent in history.sends:
        for value in sent.values if sent.producer is not None else ():
            assert sent.producer is not None, "as was asked"
            if value not in offsets:
                continue
            offset, before = latest.get(sent.producer, (-1, ""))
            if offsets[value] < offset:
                yield f"{value} at {offsets[value]} was sent after {before} at {offset}"
            latest[sent.producer] = (offsets[value], value)


CHECKS: tuple[Callable[[History], Iterator[str]], ...] = (
    inconsistent,
    duplicate,
    refused,
    lost,
    unseen,
    skipped,
    backwards,
    out_of_order,
    reordered,
)


OF_WHOLE_LOGS = (lost, unseen, skipped)


def anomalies(history: History) -> list[str]:
    """The name of the check and what it found."""
    checks = [each for each in CHECKS if not (history.compacted and each in OF_WHOLE_LOGS)]
    return [
        f"{check.__name__.replace('_', ' ')}: {found}"
        for check in checks
        for found in check(history)
    ]


def _sessions(history: History) -> dict[int, list[At]]:
    """What each consumer was given, in its order; of those who were given anything."""
    sessions: dict[int, list[At]] = defaultdict(list)
    for poll in history.polls:
        if poll.records:
            sessions[poll.session] += poll.records
    return sessions
