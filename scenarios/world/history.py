"""The history of what clients sent and received, and the checks that no history may fail.

    Sent    values that went out together, when, and the offset of the ack
    Polled  the records that one consumer received, in order, from its position

    inconsistent   an offset has two values
    duplicate      a value has two offsets
    refused        a value that was certainly not written was read
    unseen         an acked value is not among what is read in the end
    skipped        a consumer skipped a value that others read
    backwards      a consumer received an offset again, or an earlier one
    out of order   a value that was sent after an ack lies before the acked one
    reordered      a value lies before one that the same producer sent earlier

(Jepsen's checker for Kafka has these; `out of order` is Redpanda's.)

Rule 1: each check is a function of a history, and yields one line for each mistake.

Rule 2: a history contains only promises: the ack of a batch that may be lost, as with acks=1
after a failover, is left out of it.

Rule 3: a consumer that begins again, or whose next record is no longer in the log, counts as
another consumer: it has another `session`.
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
    """The offset of the first value by the ack; None without one."""
    refused: bool = False
    """Whether it was certainly not written."""
    producer: str | None = None
    """The producer, if it promises order (KIP-98); None otherwise."""

    @property
    def acked(self) -> list[At]:
        return [] if self.base_offset is None else list(enumerate(self.values, self.base_offset))


@attrs.frozen(kw_only=True)
class Polled:
    session: int
    records: tuple[At, ...]
    """The offset and value of each record."""


@attrs.frozen(kw_only=True)
class History:
    """The history of one partition, in the order of the answers."""

    sends: Sequence[Sent]
    polls: Sequence[Polled]
    final: Sequence[At]
    """The records that a consumer reads once the cluster is idle."""
    log_start: Offset = 0
    """The offset before which records were deleted on request."""
    repeated: Collection[str] = ()
    """The values that were sent more than once, and may be there as often."""
    compacted: bool = False
    """Whether the topic is compacted: a record may be removed once its key has a later one."""

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
    unseen,
    skipped,
    backwards,
    out_of_order,
    reordered,
)


OF_WHOLE_LOGS = (unseen, skipped)


def anomalies(history: History) -> list[str]:
    """Return the mistakes, each with the name of its check."""
    checks = [each for each in CHECKS if not (history.compacted and each in OF_WHOLE_LOGS)]
    return [
        f"{check.__name__.replace('_', ' ')}: {found}"
        for check in checks
        for found in check(history)
    ]


def _sessions(history: History) -> dict[int, list[At]]:
    """Return the records of each consumer that received any, in its order."""
    sessions: dict[int, list[At]] = defaultdict(list)
    for poll in history.polls:
        if poll.records:
            sessions[poll.session] += poll.records
    return sessions
