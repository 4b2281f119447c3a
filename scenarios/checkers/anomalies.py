"""The anomalies in what producers and consumers observed, as Jepsen's workload for Kafka has them.

    inconsistent offsets   an offset has two values
    duplicate write        a value has two offsets
    phantom read           a value was read that nobody sent
    aborted read           a value was read that was aborted (G1a), or refused before it was written
    intermediate read      a value was read before its commit was asked for (G1b)
    torn transaction       one part of a transaction is visible, and another one is not
    lost write             an acknowledged value is missing where a consumer has read
    poll skip              a consumer skipped a value that others read
    nonmonotonic poll      a consumer received an offset again, or an earlier one
    nonmonotonic send      a value lies before one that the same process sent earlier
    realtime order         a value that was sent after an ack lies before the acked one
    circular reads         transactions read from each other, in a circle (G1c)
    write cycle            transactions lie before each other in several partitions, in a circle (G0)

Cycles. A transaction depends on another in one of three ways:

    ww   its value lies right behind the other's in a partition
    wr   it has read a value of the other, read_committed
    rt   it began after the other's end

A circle of `wr` and `rt` cannot be: all that a transaction read was committed when it read it, so
it reads nothing that was written after its own commit. A circle of `ww` is no mistake in Kafka:
brokers isolate no writes, and two transactions may each come first in another partition. It is
reported, as `permitted`, since a program from the world of databases may rely on it.

                 ww in t-0                      wr by t-0
        x1's T1 ──────────> x2's T2     x1's T1 ──────────> x2's T2
               <──────────                     <──────────
                 ww in t-1                      wr by t-1
                permitted                      circular reads

Rule 1: the checks are functions of a history. Each anomaly carries its explanation, and the least
history that shows it: of the same operations, only those sends and records that it needs.

Rule 2: the work is n log n in the number of sends and records (Tarjan's algorithm for cycles).

Rule 3: a record is required of a consumer where its positions have passed it. Below the log start
nothing is required, of a compacted partition only what a consumer read in the end, unless a later
value of its key had been sent by then, and at an offset with two values neither of them.

The file is long because every check reads the same index of a history (`_Known`).
"""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Final, NamedTuple, TypeAlias

import attrs

from scenarios.world.client import key_of
from scenarios.world.history import At, ClientOperation, History, OperationOutcome, Poll, SentValue
from storage.types import Offset, TopicPartition

Value: TypeAlias = tuple[TopicPartition, str]
Step: TypeAlias = tuple[int, SentValue | Poll]
"""The number of an operation, and a part of it with at most one record."""

WRITE_CYCLE: Final = "write cycle"
PERMITTED: Final = frozenset({WRITE_CYCLE})
"""The anomalies that Kafka allows."""


@attrs.frozen(kw_only=True)
class Anomaly:
    name: str
    explanation: str
    operations: tuple[ClientOperation, ...]
    """The least history that shows it."""

    @property
    def permitted(self) -> bool:
        """Whether Kafka allows it."""
        return self.name in PERMITTED

    @property
    def partition(self) -> TopicPartition:
        """The first partition that it is about."""
        return min(step.partition for each in self.operations for step in _steps(each))

    def __str__(self) -> str:
        return f"{self.name}: {self.explanation}"


def anomalies(history: History) -> list[Anomaly]:
    """Return every anomaly of a history, permitted ones too."""
    known = _Known(history)
    return [each for check in CHECKS for each in check(known)]


def mistakes(history: History) -> list[Anomaly]:
    """Return the anomalies that Kafka does not allow."""
    return [each for each in anomalies(history) if not each.permitted]


def _steps(operation: ClientOperation) -> tuple[SentValue | Poll, ...]:
    return operation.sends + operation.polls


def _one_record(poll: Poll, record: At) -> Poll:
    """Return a poll of this record alone, in a session of its own."""
    session = f"{poll.session} at {record[0]}"
    return attrs.evolve(
        poll, records=(record,), session=session, begins=None, ends=None, to_end=False
    )


@attrs.frozen
class _Range:
    """The offsets from `begins` up to, and without, `ends` that a poll has passed."""

    poll: Poll
    operation: int
    begins: Offset
    ends: float

    def until(self, position: Offset) -> Step:
        """Return the poll without records, up to a position."""
        poll = attrs.evolve(self.poll, records=(), begins=self.begins, ends=position, to_end=False)
        return self.operation, poll

    def with_records(self, *records: At) -> Step:
        """Return the poll with these records alone, over the same offsets."""
        ends = None if self.poll.to_end else int(self.ends)
        return self.operation, attrs.evolve(
            self.poll, records=records, begins=self.begins, ends=ends
        )


class _Known:
    """What a history says of each value and each offset."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.operations: Sequence[ClientOperation] = history.operations
        self.sends: dict[Value, tuple[int, SentValue]] = {}
        """The step that sent a value; the last one, of those that were sent again."""
        self.reads: dict[Value, Step] = {}
        """The first poll with a value, for any reader."""
        self.committed_reads: dict[Value, Step] = {}
        """The same for read_committed readers."""
        self.sightings: dict[tuple[TopicPartition, Offset], dict[str, Step]] = defaultdict(dict)
        """The values of each offset, each with the first step that shows it."""
        self.offsets: dict[Value, dict[Offset, Step]] = defaultdict(dict)
        """The offsets of each value, each with the first step that shows it."""
        self.committed: dict[Value, dict[Offset, Step]] = defaultdict(dict)
        """Those of them at which it is certainly not aborted: a transaction may send anew what
        one before it has sent and aborted.
        """
        self.ranges: list[_Range] = []
        for number, operation in enumerate(self.operations):
            for send in operation.sends:
                self._sent(number, send)
        positions: dict[tuple[str, TopicPartition], Offset] = {}
        for number, operation in enumerate(self.operations):
            for poll in operation.polls:
                self._polled(number, poll, positions)

    def _sent(self, number: int, send: SentValue) -> None:
        self.sends[send.partition, send.value] = number, send
        if send.offset is not None:
            step, operation = (number, send), self.operations[number]
            stays = not operation.transactional or operation.outcome is OperationOutcome.OK
            self._seen(send.partition, send.offset, send.value, step, stays=stays)

    def _polled(
        self, number: int, poll: Poll, positions: dict[tuple[str, TopicPartition], Offset]
    ) -> None:
        at = poll.session, poll.partition
        begins = positions.get(at, poll.begins)
        if begins is None and poll.records:
            begins = poll.records[0][0]
        for offset, value in poll.records:
            step = number, _one_record(poll, (offset, value))
            sender = self.sender((poll.partition, value))
            stays = poll.read_committed or (sender is not None and not sender.transactional)
            self._seen(poll.partition, offset, value, step, stays=stays)
            self.reads.setdefault((poll.partition, value), step)
            if poll.read_committed:
                self.committed_reads.setdefault((poll.partition, value), step)
        if begins is None:
            return
        last = max((offset + 1 for offset, _ in poll.records), default=begins)
        positions[at] = max(begins, last, poll.ends or 0)
        ends = math.inf if poll.to_end else positions[at]
        self.ranges.append(_Range(poll, number, begins, ends))

    def _seen(
        self, partition: TopicPartition, offset: Offset, value: str, step: Step, *, stays: bool
    ) -> None:
        self.sightings[partition, offset].setdefault(value, step)
        self.offsets[partition, value].setdefault(offset, step)
        if stays:
            self.committed[partition, value].setdefault(offset, step)

    @cached_property
    def sent_to_keys(
        self,
    ) -> dict[tuple[TopicPartition, str | None], tuple[list[float], list[float]]]:
        """For each key of a compacted partition the offsets of its values, in order, and for each of
        these when the first value was sent that lies there or later.
        """
        found: dict[tuple[TopicPartition, str | None], list[tuple[float, float]]] = defaultdict(
            list
        )
        for (partition, value), (number, _) in self.sends.items():
            if partition in self.history.compacted and (key := key_of(value)) is not None:
                offset = max(self.offsets.get((partition, value), [math.inf]))
                found[partition, key].append((offset, self.operations[number].invoked))
        return {at: _in_order(values) for at, values in found.items()}

    def sender(self, value: Value) -> ClientOperation | None:
        step = self.sends.get(value)
        return None if step is None else self.operations[step[0]]

    def is_ok(self, value: Value) -> bool:
        sender = self.sender(value)
        return sender is not None and sender.outcome is OperationOutcome.OK

    def offset_of(self, value: Value) -> Offset | None:
        """Return the offset of a value; None if it has none, or several."""
        found = self.offsets.get(value, {})
        return next(iter(found)) if len(found) == 1 else None

    def received_at(self, step: tuple[int, Poll]) -> float:
        number, poll = step
        return self.operations[number].completed if poll.at is None else poll.at

    def who(self, number: int) -> str:
        """Return the name of an operation."""
        operation = self.operations[number]
        if operation.transactional:
            return f"{operation.process}'s T{number + 1}"
        return operation.process

    def anomaly(self, name: str, explanation: str, *steps: Step) -> Anomaly:
        parts: dict[int, list[SentValue | Poll]] = defaultdict(list)
        for number, step in steps:
            if isinstance(step, Poll) or step not in parts[number]:
                parts[number].append(step)
        least = tuple(
            attrs.evolve(
                self.operations[number],
                sends=tuple(each for each in found if isinstance(each, SentValue)),
                polls=tuple(each for each in found if isinstance(each, Poll)),
            )
            for number, found in sorted(parts.items())
        )
        return Anomaly(name=name, explanation=explanation, operations=least)


def _in_order(values: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    values.sort()
    earliest = list(accumulate((sent_at for _, sent_at in reversed(values)), min))
    return [offset for offset, _ in values], earliest[::-1]


# Offsets and values.


def inconsistent_offsets(known: _Known) -> Iterator[Anomaly]:
    for (partition, offset), values in known.sightings.items():
        if len(values) > 1:
            one, other = sorted(values)[:2]
            text = f"{partition} has {one} and {other} at {offset}"
            yield known.anomaly("inconsistent offsets", text, values[one], values[other])


def duplicate_writes(known: _Known) -> Iterator[Anomaly]:
    for (partition, value), offsets in known.committed.items():
        if len(offsets) > 1 and value not in known.history.repeated:
            one, other = sorted(offsets)[:2]
            text = f"{value} is at {one} and {other} of {partition}"
            yield known.anomaly("duplicate write", text, offsets[one], offsets[other])


def phantom_reads(known: _Known) -> Iterator[Anomaly]:
    for (partition, value), read in known.reads.items():
        is_known = (partition, value) in known.sends
        if not is_known and partition not in known.history.written_by_others:
            text = f"{known.who(read[0])} has read {value} of {partition}, which nobody sent"
            yield known.anomaly("phantom read", text, read)


# Transactions.


def aborted_reads(known: _Known) -> Iterator[Anomaly]:
    for value, sent in known.sends.items():
        sender = known.operations[sent[0]]
        reads = known.committed_reads if sender.transactional else known.reads
        if sender.outcome is OperationOutcome.FAIL and value in reads:
            read = reads[value]
            how = "was aborted" if sender.transactional else "was refused before it was written"
            text = f"{known.who(read[0])} has read {value[1]} of {known.who(sent[0])}, which {how}"
            yield known.anomaly("aborted read", text, read, sent)


def intermediate_reads(known: _Known) -> Iterator[Anomaly]:
    found: set[Value] = set()
    for each in known.ranges:
        for record in each.poll.records if each.poll.read_committed else ():
            value = each.poll.partition, record[1]
            sender = known.sender(value)
            if (
                sender is None
                or not sender.transactional
                or sender.outcome is OperationOutcome.FAIL
            ):
                continue  # what was aborted is an aborted read
            read = each.operation, _one_record(each.poll, record)
            if known.received_at(read) < sender.commit_asked and value not in found:
                found.add(value)
                sent = known.sends[value]
                never = sender.commit_asked == math.inf
                when = "which was never" if never else "before it was"
                text = f"{known.who(each.operation)} has read {record[1]} of {known.who(sent[0])}"
                yield known.anomaly(
                    "intermediate read", f"{text}, {when} asked to commit", read, sent
                )


def torn_transactions(known: _Known) -> Iterator[Anomaly]:
    passed = _Passed(each for each in known.ranges if each.poll.read_committed)
    for number, operation in enumerate(known.operations):
        if not operation.transactional:
            continue
        visible: tuple[SentValue, Step] | None = None
        missing: tuple[SentValue, _Range] | None = None
        for send in operation.sends:
            value = send.partition, send.value
            if (read := known.committed_reads.get(value)) is not None:
                visible = visible or (send, read)
            elif (by := _passed_over(known, passed, value)) is not None:
                missing = missing or (send, by)
        if visible is not None and missing is not None:
            (there, read), (gone, by) = visible, missing
            text = (
                f"{there.value} of {known.who(number)} is visible in {there.partition},"
                f" and its {gone.value} is not in {gone.partition}"
            )
            sent = _with_offset(known, (gone.partition, gone.value))
            yield known.anomaly(
                "torn transaction", text, (number, there), read, *sent, by.with_records()
            )


def _with_offset(known: _Known, value: Value) -> tuple[Step, ...]:
    """Return the step that sent a value, and the one that shows its offset if the ack does not."""
    number, send = known.sends[value]
    shown = () if (at := known.offset_of(value)) is None else (known.offsets[value][at],)
    return ((number, send), *shown)


class _Passed:
    """The offsets that consumers have passed, with one poll that has passed each."""

    def __init__(self, ranges: Iterable[_Range]) -> None:
        self._merged: dict[TopicPartition, list[_Range]] = defaultdict(list)
        ordered = sorted(ranges, key=lambda each: (each.poll.partition, each.begins, -each.ends))
        for each in ordered:
            merged = self._merged[each.poll.partition]
            if not merged or each.ends > merged[-1].ends:
                merged.append(each)

    def by(self, partition: TopicPartition, offset: Offset) -> _Range | None:
        """Return a poll that has passed an offset."""
        # Begins and ends both grow, so the last poll that begins no later has the largest end.
        merged = self._merged.get(partition, [])
        place = bisect_left(merged, offset + 1, key=lambda each: each.begins) - 1
        found = merged[place] if place >= 0 else None
        return found if found is not None and offset < found.ends else None


def _passed_over(known: _Known, passed: _Passed, value: Value) -> _Range | None:
    """Return a poll that has passed the offset of a value, if the value must be there."""
    offset = known.offset_of(value)
    partition = value[0]
    if offset is None or partition in known.history.compacted:
        return None
    if offset < known.history.log_starts.get(partition, 0):
        return None
    return passed.by(partition, offset)


# Reads.


def lost_writes_and_poll_skips(known: _Known) -> Iterator[Anomaly]:
    required = {committed: _required(known, committed=committed) for committed in (True, False)}
    lost: set[Value] = set()
    for each in known.ranges:
        partition, poll = each.poll.partition, each.poll
        there = {offset for offset, _ in poll.records}
        offsets = required[poll.read_committed].get(partition, [])
        for place in range(bisect_left(offsets, each.begins), bisect_left(offsets, each.ends)):
            offset = offsets[place]
            if offset in there or _may_be_compacted(known, partition, offset, each):
                continue
            value = partition, next(iter(known.sightings[partition, offset]))
            is_lost = known.is_ok(value) and (poll.to_end or value not in known.reads)
            if is_lost and value not in lost:
                lost.add(value)
                yield _lost(known, value, each, known.sightings[partition, offset][value[1]])
            elif not is_lost:
                yield _skipped(known, value, offset, each)
    yield from _lost_somewhere(known)


def _required(known: _Known, *, committed: bool) -> dict[TopicPartition, list[Offset]]:
    """Return the offsets, in order, that a reader which passes them must have received."""
    found: dict[TopicPartition, list[Offset]] = defaultdict(list)
    at_end = {
        (each.poll.partition, offset)
        for each in known.ranges
        for offset, _ in each.poll.records
        if each.poll.to_end and each.poll.read_committed >= committed
    }
    for (partition, offset), values in sorted(known.sightings.items()):
        if len(values) > 1 or offset < known.history.log_starts.get(partition, 0):
            continue
        if partition in known.history.compacted:
            is_required = (partition, offset) in at_end
        else:
            value = partition, next(iter(values))
            is_required = not committed or offset in known.committed.get(value, {})
        if is_required:
            found[partition].append(offset)
    return found


def _may_be_compacted(
    known: _Known, partition: TopicPartition, offset: Offset, missed: _Range
) -> bool:
    """Return whether a replica may have cleaned a record away when a reader passed it.

    Each replica compacts its own log: another one may have the record in the end.
    """
    key = key_of(next(iter(known.sightings[partition, offset])))
    offsets, sent_from = known.sent_to_keys.get((partition, key), ([], []))
    later = bisect_right(offsets, offset)
    at = known.received_at((missed.operation, missed.poll))
    return later < len(offsets) and sent_from[later] <= at


def _lost(known: _Known, value: Value, missed: _Range, *shown: Step) -> Anomaly:
    sent = known.sends[value]
    where = f"{value[1]} of {known.who(sent[0])} was acknowledged"
    text = f"{where}, and {known.who(missed.operation)} has not found it in {value[0]}"
    return known.anomaly("lost write", text, sent, *shown, missed.with_records())


def _skipped(known: _Known, value: Value, offset: Offset, missed: _Range) -> Anomaly:
    text = f"{known.who(missed.operation)} has passed {offset} of {value[0]} without {value[1]}"
    committed = missed.poll.read_committed
    reads = known.committed_reads if committed else known.reads
    if value in reads:
        shown = [reads[value]]
    else:
        shown = [(known.committed if committed else known.offsets)[value][offset]]
        # Read by others, or it would be lost; and sent without a transaction, or not aborted.
        shown += [known.reads[value], known.sends[value]] if value in known.reads else []
    return known.anomaly("poll skip", text, *shown, missed.with_records())


def _lost_somewhere(known: _Known) -> Iterator[Anomaly]:
    """Yield what was acknowledged, nobody knows where, and is missing in a log that was read whole."""
    whole = {
        each.poll.partition: each for each in known.ranges if each.poll.to_end and each.begins == 0
    }
    for value in known.sends:
        may_be_gone = value[0] in known.history.compacted or known.history.log_starts.get(value[0])
        missed = None if may_be_gone else whole.get(value[0])
        if missed is not None and known.is_ok(value) and not known.offsets.get(value):
            yield _lost(known, value, missed)


def nonmonotonic_polls(known: _Known) -> Iterator[Anomaly]:
    last: dict[tuple[str, TopicPartition], _Range] = {}
    for each in known.ranges:
        poll, position, received = each.poll, each.begins, list[At]()
        before = last.get((poll.session, poll.partition))
        for record in poll.records:
            if record[0] < position:
                who = known.who(each.operation)
                text = f"{who} has received {record[0]} of {poll.partition} after {position - 1}"
                if received:
                    shown = [each.with_records(max(received), record)]
                elif before is not None:
                    again = attrs.evolve(poll, records=(record,), begins=None, ends=None)
                    shown = [before.until(position), (each.operation, again)]
                else:
                    shown = [each.with_records(record)]
                yield known.anomaly("nonmonotonic poll", text, *shown)
            received.append(record)
            position = max(position, record[0] + 1)
        last[poll.session, poll.partition] = each


# Order.


def nonmonotonic_sends(known: _Known) -> Iterator[Anomaly]:
    latest: dict[tuple[str, TopicPartition], tuple[Offset, Value]] = {}
    for operation in known.operations:
        for send in operation.sends if operation.in_order else ():
            value = send.partition, send.value
            offset = known.offset_of(value)
            if offset is None or send.value in known.history.repeated:
                continue
            at = operation.process, send.partition
            before, earlier = latest.get(at, (-1, value))
            if offset < before:
                text = (
                    f"{operation.process} sent {send.value} after {earlier[1]}, and they are at"
                    f" {offset} and {before} of {send.partition}"
                )
                steps = _with_offset(known, earlier) + _with_offset(known, value)
                yield known.anomaly("nonmonotonic send", text, *steps)
            latest[at] = offset, value


def realtime_order(known: _Known) -> Iterator[Anomaly]:
    acked: dict[TopicPartition, list[tuple[Step, SentValue, Offset]]] = defaultdict(list)
    for number, operation in enumerate(known.operations):
        for send in operation.sends if operation.outcome is OperationOutcome.OK else ():
            if send.offset is not None:
                acked[send.partition].append(((number, send), send, send.offset))

    def completed(each: tuple[Step, SentValue, Offset]) -> float:
        return known.operations[each[0][0]].completed

    def invoked(each: tuple[Step, SentValue, Offset]) -> float:
        return known.operations[each[0][0]].invoked

    for partition, sends in acked.items():
        ended = deque(sorted(sends, key=completed))
        highest: tuple[Step, SentValue, Offset] | None = None
        for step, send, offset in sorted(sends, key=invoked):
            while ended and completed(ended[0]) < invoked((step, send, offset)):
                each = ended.popleft()
                highest = each if highest is None or each[2] > highest[2] else highest
            if highest is not None and offset <= highest[2]:
                text = (
                    f"{send.value} was sent after {highest[1].value} was acknowledged at"
                    f" {highest[2]} of {partition}, and is at {offset}"
                )
                yield known.anomaly("realtime order", text, highest[0], step)


# Cycles.


class Edge(NamedTuple):
    """A dependency: `after` cannot come before `before`."""

    before: int
    after: int
    why: str
    """The sentence that explains it; empty between moments of time."""
    steps: tuple[Step, ...] = ()


def _writes(known: _Known) -> Iterator[Edge]:
    logs: dict[TopicPartition, list[tuple[Offset, int, SentValue]]] = defaultdict(list)
    for value, (number, send) in known.sends.items():
        operation, offset = known.operations[number], known.offset_of(value)
        if offset is None or len(known.sightings[value[0], offset]) > 1:
            continue
        if operation.transactional and operation.outcome is OperationOutcome.OK:
            logs[value[0]].append((offset, number, send))
    for partition, log in logs.items():
        log.sort(key=lambda each: each[0])
        for (first, one, earlier), (last, other, later) in pairwise(log):
            if one != other:
                why = (
                    f"{known.who(one)} wrote {earlier.value} at {first} of {partition},"
                    f" before {known.who(other)} wrote {later.value} at {last}"
                )
                steps = (
                    *_with_offset(known, (partition, earlier.value)),
                    *_with_offset(known, (partition, later.value)),
                )
                yield Edge(one, other, why, steps)


def _reads(known: _Known) -> Iterator[Edge]:
    for number, operation in enumerate(known.operations):
        for poll in operation.polls if operation.transactional else ():
            for record in poll.records if poll.read_committed else ():
                value = poll.partition, record[1]
                sent = known.sends.get(value)
                if sent is None or not known.operations[sent[0]].transactional:
                    continue
                why = f"{known.who(number)} read {record[1]}, which {known.who(sent[0])} sent"
                yield Edge(sent[0], number, why, (sent, (number, _one_record(poll, record))))


def _times(known: _Known) -> Iterator[Edge]:
    """Yield the order of ends and beginnings, over a node for each end of a transaction.

    A node follows the one of the end before it, so there are no more edges than transactions
    need: three for each.
    """
    transactions = [n for n, each in enumerate(known.operations) if each.transactional]
    ends = sorted(
        (known.operations[number].completed, number)
        for number in transactions
        if known.operations[number].completed < math.inf
    )
    base = len(known.operations)
    for place, (_, number) in enumerate(ends):
        yield Edge(number, base + place, "")
        if place:
            yield Edge(base + place - 1, base + place, "")
    for number in transactions:
        place = bisect_left(ends, (known.operations[number].invoked, -1))
        if place:
            yield Edge(base + place - 1, number, "")


def write_cycles(known: _Known) -> Iterator[Anomaly]:
    for cycle in cycles(list(_writes(known))):
        yield _cycle(known, WRITE_CYCLE, cycle)


def circular_reads(known: _Known) -> Iterator[Anomaly]:
    for cycle in cycles([*_reads(known), *_times(known)]):
        yield _cycle(known, "circular reads", cycle)


def _cycle(known: _Known, name: str, cycle: Sequence[Edge]) -> Anomaly:
    count = len(known.operations)
    # The moments between two transactions are one step of the explanation.
    turn = next(place for place, edge in enumerate(cycle) if edge.before < count)
    said, ended = list[str](), -1
    for edge in [*cycle[turn:], *cycle[:turn]]:
        if edge.why:
            said.append(edge.why)
        elif edge.before < count:
            ended = edge.before
        elif edge.after < count:
            said.append(f"{known.who(edge.after)} began after the end of {known.who(ended)}")
    steps = [step for edge in cycle for step in edge.steps]
    return known.anomaly(name, "; ".join(said), *steps)


MOST_STARTS: Final = 32
"""The number of edges of a component from which its shortest cycle is looked for."""


def cycles(edges: Sequence[Edge]) -> list[list[Edge]]:
    """Return a short cycle of each strongly connected component."""
    leaving: dict[int, list[Edge]] = defaultdict(list)
    for edge in edges:
        leaving[edge.before].append(edge)
    component = _components(leaving)
    starts: dict[int, list[Edge]] = defaultdict(list)
    for edge in edges:
        place = component[edge.before]
        if edge.why and place == component[edge.after] and len(starts[place]) < MOST_STARTS:
            starts[place].append(edge)
    return [
        min(
            ([edge, *_shortest(leaving, component, edge.after, edge.before)] for edge in found),
            key=len,
        )
        for found in starts.values()
        if found
    ]


def _components(leaving: Mapping[int, Sequence[Edge]]) -> dict[int, int]:
    """Return the strongly connected component of each node (Tarjan's algorithm, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    component: dict[int, int] = {}
    stack: list[int] = []
    for root in list(leaving):
        work = [] if root in index else [(root, iter(leaving[root]))]
        if work:
            index[root] = low[root] = len(index)
            stack.append(root)
        while work:
            node, rest = work[-1]
            for edge in rest:
                if edge.after not in index:
                    index[edge.after] = low[edge.after] = len(index)
                    stack.append(edge.after)
                    work.append((edge.after, iter(leaving.get(edge.after, ()))))
                    break
                if edge.after not in component:
                    low[node] = min(low[node], index[edge.after])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    while stack and component.get(node) is None:
                        component[stack.pop()] = node
    return component


def _shortest(
    leaving: Mapping[int, Sequence[Edge]], component: Mapping[int, int], start: int, goal: int
) -> list[Edge]:
    """Return the edges of a shortest way from `start` to `goal`, within their component."""
    came: dict[int, Edge | None] = {start: None}
    waiting = deque([start])
    while goal not in came:
        for edge in leaving[waiting.popleft()]:
            if edge.after not in came and component[edge.after] == component[start]:
                came[edge.after] = edge
                waiting.append(edge.after)
    way: list[Edge] = []
    while (last := came[goal]) is not None:
        way.append(last)
        goal = last.before
    return way[::-1]


CHECKS: Final[tuple[Callable[[_Known], Iterator[Anomaly]], ...]] = (
    inconsistent_offsets,
    duplicate_writes,
    phantom_reads,
    aborted_reads,
    intermediate_reads,
    torn_transactions,
    lost_writes_and_poll_skips,
    nonmonotonic_polls,
    nonmonotonic_sends,
    realtime_order,
    circular_reads,
    write_cycles,
)
