"""Each anomaly is found in the history that it is for, and by a naive twin too; a sound history
has none.

The file is long because the twin says each definition anew.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from typing import Any

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from scenarios.checkers.anomalies import Anomaly, anomalies
from scenarios.world.history import At, ClientOperation, History, OperationOutcome, Poll, SentValue
from storage.types import Offset, TopicPartition

OK, FAIL, INFO = OperationOutcome.OK, OperationOutcome.FAIL, OperationOutcome.INFO
T0, T1 = PARTITIONS = TopicPartition("t", 0), TopicPartition("t", 1)


def sent(
    value: str, at: Offset | None, partition: TopicPartition = T0, **how: Any
) -> ClientOperation:
    """Return the operation of a producer that sends one value."""
    send = SentValue(partition=partition, value=value, offset=at)
    return ClientOperation(**{"process": "p", "outcome": OK, "sends": (send,), **how})


def polled(*records: At, partition: TopicPartition = T0, **how: Any) -> ClientOperation:
    poll = Poll(partition=partition, records=records, **{"session": "c", **how})
    return ClientOperation(process=poll.session, outcome=OK, polls=(poll,))


def final(*records: At, partition: TopicPartition = T0, **how: Any) -> ClientOperation:
    return polled(
        *records, partition=partition, **{"begins": 0, "to_end": True, "session": "end"} | how
    )


def transaction(
    process: str, *steps: SentValue | Poll, outcome: OperationOutcome = OK, **how: Any
) -> ClientOperation:
    return ClientOperation(
        process=process,
        outcome=outcome,
        sends=tuple(each for each in steps if isinstance(each, SentValue)),
        polls=tuple(each for each in steps if isinstance(each, Poll)),
        transactional=True,
        **how,
    )


def write(value: str, at: Offset | None, partition: TopicPartition = T0) -> SentValue:
    return SentValue(partition=partition, value=value, offset=at)


def read(value: str, at: Offset, partition: TopicPartition = T0, session: str = "c") -> Poll:
    return Poll(partition=partition, records=((at, value),), session=session)


A, B, C = (0, "a"), (1, "b"), (2, "c")
ABC = [sent("a", 0), sent("b", 1), sent("c", 2)]
BOTH = transaction("x", write("a", 0), write("z", 0, T1))
READS_B = transaction("x", read("b", 0, T1, "x"), write("a", 0))
READS_A = transaction("y", read("a", 0, T0, "y"), write("b", 0, T1))

FOUND = [
    ([sent("a", 0), polled((0, "z"))], "inconsistent offsets: t-0 has a and z at 0"),
    ([*ABC, polled((0, "a"), (3, "a"))], "duplicate write: a is at 0 and 3 of t-0"),
    ([polled(A)], "phantom read: c has read a of t-0, which nobody sent"),
    (
        [transaction("x", write("a", 0), outcome=FAIL), polled(A)],
        "aborted read: c has read a of x's T1, which was aborted",
    ),
    (
        [sent("a", None, outcome=FAIL), polled(A, read_committed=False)],
        "aborted read: c has read a of p, which was refused before it was written",
    ),
    (
        [transaction("x", write("a", 0), commit_asked=5.0), polled(A, at=4.0)],
        "intermediate read: c has read a of x's T1, before it was asked to commit",
    ),
    (
        [transaction("x", write("a", 0), outcome=INFO, commit_asked=math.inf), polled(A, at=4.0)],
        "intermediate read: c has read a of x's T1, which was never asked to commit",
    ),
    (
        [BOTH, final(A), final(partition=T1)],
        "torn transaction: a of x's T1 is visible in t-0, and its z is not in t-1",
    ),
    (
        [
            attrs.evolve(BOTH, outcome=INFO),
            polled(A),
            sent("y", 1, T1),
            polled((1, "y"), partition=T1, begins=0),
        ],
        "torn transaction: a of x's T1 is visible in t-0, and its z is not in t-1",
    ),
    ([*ABC, final(A, C)], "lost write: b of p was acknowledged, and end has not found it in t-0"),
    (
        [*ABC, polled(A, C)],
        "lost write: b of p was acknowledged, and c has not found it in t-0",
    ),
    (
        [*ABC, polled(A, B, C), final(A, B)],
        "lost write: c of p was acknowledged, and end has not found it in t-0",
    ),
    (
        [sent("a", None), final()],
        "lost write: a of p was acknowledged, and end has not found it in t-0",
    ),
    ([*ABC, polled(A), polled(C), final(A, B, C)], "poll skip: c has passed 1 of t-0 without b"),
    (
        [*ABC, polled(A, B, read_committed=False), polled(A, session="d", ends=2)],
        "poll skip: d has passed 1 of t-0 without b",
    ),
    (
        [
            transaction("x", write("a", 0), outcome=FAIL),
            *ABC[1:],
            polled(B, begins=0, read_committed=False),
        ],
        "poll skip: c has passed 0 of t-0 without a",
    ),
    ([*ABC, polled(A, B), polled(B)], "nonmonotonic poll: c has received 1 of t-0 after 1"),
    ([*ABC, polled(B, begins=2)], "nonmonotonic poll: c has received 1 of t-0 after 1"),
    (
        [sent("b", 1), sent("a", 0)],
        "nonmonotonic send: p sent a after b, and they are at 0 and 1 of t-0",
    ),
    (
        [sent("b", 1, completed=1.0), sent("a", 0, process="q", invoked=2.0)],
        "realtime order: a was sent after b was acknowledged at 1 of t-0, and is at 0",
    ),
    (
        [READS_B, READS_A],
        "circular reads: x's T1 read b, which y's T2 sent; y's T2 read a, which x's T1 sent",
    ),
    (
        [transaction("x", read("a", 0), write("a", 0))],
        "circular reads: x's T1 read a, which x's T1 sent",
    ),
    (
        [
            attrs.evolve(READS_B, invoked=0.0, completed=9.0),
            transaction("z", read("a", 0, T0, "z"), invoked=1.0, completed=2.0),
            transaction("y", write("b", 0, T1), invoked=3.0, completed=4.0),
        ],
        (
            "circular reads: x's T1 read b, which y's T3 sent; z's T2 read a, which x's T1 sent;"
            " y's T3 began after the end of z's T2"
        ),
    ),
    (
        [
            transaction("x", write("a", 0), write("d", 1, T1)),
            transaction("y", write("b", 1), write("c", 0, T1)),
        ],
        (
            "write cycle: x's T1 wrote a at 0 of t-0, before y's T2 wrote b at 1;"
            " y's T2 wrote c at 0 of t-1, before x's T1 wrote d at 1"
        ),
    ),
]


@pytest.mark.parametrize(("operations", "text"), FOUND, ids=[text for _, text in FOUND])
def test_an_anomaly_is_found_and_explained(operations: list[ClientOperation], text: str) -> None:
    found = {str(each): each for each in anomalies(History(operations=operations))}
    assert text in found
    name = text.partition(":")[0]
    assert found[text].permitted == (name == "write cycle")
    assert shows(name, found[text].operations), "the least history shows it alone"
    for less in without_one_step(found[text].operations):
        assert not shows(name, less), "no step of it is left over"


def shows(name: str, operations: Sequence[ClientOperation]) -> bool:
    return name in {each.name for each in anomalies(History(operations=operations))}


def without_one_step(operations: Sequence[ClientOperation]) -> Iterator[list[ClientOperation]]:
    for number, operation in enumerate(operations):
        for gone in operation.sends + operation.polls:
            less = attrs.evolve(
                operation,
                sends=tuple(each for each in operation.sends if each is not gone),
                polls=tuple(each for each in operation.polls if each is not gone),
            )
            yield [*operations[:number], less, *operations[number + 1 :]]


SOUND = [
    [*ABC, polled(A, B), polled(), polled(B, C, session="d"), polled(C), final(A, B, C)],
    [sent("a", None), final(A)],  # had no answer that says where, and is there
    [sent("q", None, outcome=INFO), final()],
    [sent("b", 1, completed=1.0), sent("a", 0, process="q", invoked=0.5)],  # both on their way
    [sent("b", 1, in_order=False), sent("a", 0, in_order=False)],
    # An aborted record: a reader of everything sees it, and a read_committed one passes it.
    [
        transaction("x", write("a", 0), outcome=FAIL),
        sent("b", 2),
        polled(A, (2, "b"), session="all", read_committed=False),
        polled((2, "b"), begins=0),
    ],
    # One part is read before the other one's marker is written.
    [BOTH, polled(A), polled(partition=T1), polled((0, "z"), partition=T1)],
    [attrs.evolve(BOTH, outcome=INFO), final(), final(partition=T1)],
    [READS_A, transaction("x", write("a", 0), completed=1.0)],
]


@pytest.mark.parametrize("operations", SOUND)
def test_a_sound_history_has_no_anomaly(operations: list[ClientOperation]) -> None:
    assert anomalies(History(operations=operations)) == []


def test_nothing_is_required_below_the_log_start_or_of_what_compaction_removed() -> None:
    deleted = History(operations=[*ABC, final(C)], log_starts={T0: 2})
    assert anomalies(deleted) == []
    compacted = History(operations=[*ABC, polled(A, C), final(C)], compacted=[T0])
    assert anomalies(compacted) == []
    stays = attrs.evolve(compacted, operations=[*ABC, polled(A, C), final(A, B, C)])
    assert [each.name for each in anomalies(stays)] == ["poll skip"]


@pytest.mark.parametrize(
    ("sent_at", "found"), [(1.0, []), (3.0, ["poll skip"])], ids=["before", "after"]
)
def test_one_replica_may_have_compacted_what_another_has_in_the_end(
    sent_at: float, found: list[str]
) -> None:
    """A consumer skips k:b at 2.0; k:d is sent before or after that."""
    sends = [sent("a", 0), sent("k:b", 1), sent("c", 2), sent("k:d", 3, invoked=sent_at)]
    everything = final(A, (1, "k:b"), C, (3, "k:d"))
    skips = History(operations=[*sends, polled(A, C, at=2.0), everything], compacted=[T0])
    assert [each.name for each in anomalies(skips)] == found


@given(
    keys=st.lists(st.sampled_from(["j:", "k:", ""]), min_size=1, max_size=8),
    data=st.data(),
)
def test_what_was_compacted_away_is_what_a_later_value_of_its_key_replaces(
    keys: list[str], data: st.DataObject
) -> None:
    """A consumer skips all but the last at 2.0; some values have no known offset."""
    *skipped, last = [(offset, f"{key}{offset}") for offset, key in enumerate([*keys, ""])]
    times = st.sampled_from([1.0, 2.0, 3.0])
    unseen = data.draw(st.lists(st.sampled_from(["j:x", "k:x"]), unique=True))
    sent_at = {value: data.draw(times) for _, value in skipped} | dict.fromkeys([last[1]], 1.0)
    sent_at |= {value: data.draw(times) for value in unseen}
    offset_of = {value: offset for offset, value in [*skipped, last]}
    operations = [sent(each, offset_of.get(each), invoked=at) for each, at in sent_at.items()]
    skips = polled(last, begins=0, at=2.0)
    found = anomalies(
        History(operations=[*operations, skips, final(*skipped, last)], compacted=[T0])
    )
    missed = [
        value
        for offset, value in skipped
        if value.startswith(tuple("0123456789"))
        or not any(
            later[:2] == value[:2] and at <= 2.0 and offset_of.get(later, math.inf) > offset
            for later, at in sent_at.items()
        )
    ]
    assert [each.explanation for each in found if each.name == "poll skip"] == [
        f"c has passed {offset_of[each]} of t-0 without {each}" for each in missed
    ]


def test_a_value_that_was_sent_again_may_be_there_twice() -> None:
    twice = History(operations=[sent("a", 0), final(A, (1, "a"))])
    assert [each.name for each in anomalies(twice)] == ["duplicate write"]
    assert anomalies(attrs.evolve(twice, repeated={"a"})) == []


def test_a_transaction_may_send_what_an_aborted_one_has_sent() -> None:
    aborted = transaction("x", outcome=FAIL)  # the later one is named as the one that sent it
    again = transaction("x", write("a", 2))
    everything = final(A, (2, "a"), read_committed=False, session="all")
    assert anomalies(History(operations=[aborted, again, everything, final((2, "a"))])) == []


def test_partitions_with_other_writers_have_no_phantoms() -> None:
    assert anomalies(History(operations=[polled(A)], written_by_others=[T0])) == []


# The naive twin: each anomaly by its definition, and cycles by trying every order.


@attrs.define
class Twin:
    history: History

    def names(self) -> set[str]:
        checks = {
            "inconsistent offsets": self.inconsistent,
            "duplicate write": self.duplicate,
            "phantom read": self.phantom,
            "aborted read": self.aborted,
            "intermediate read": self.intermediate,
            "torn transaction": self.torn,
            "lost write": self.lost,
            "poll skip": self.skipped,
            "nonmonotonic poll": self.polls_go_back,
            "nonmonotonic send": self.sends_go_back,
            "realtime order": self.realtime,
            "circular reads": self.circular,
            "write cycle": self.written_in_a_circle,
        }
        return {name for name, check in checks.items() if check()}

    @property
    def operations(self) -> Sequence[ClientOperation]:
        return self.history.operations

    @property
    def sends(self) -> list[tuple[ClientOperation, SentValue]]:
        return [(each, send) for each in self.operations for send in each.sends]

    @property
    def polls(self) -> list[tuple[ClientOperation, Poll]]:
        return [(each, poll) for each in self.operations for poll in each.polls]

    @property
    def records(self) -> list[tuple[TopicPartition, Offset, str]]:
        acked = [(s.partition, s.offset, s.value) for _, s in self.sends if s.offset is not None]
        given = [(p.partition, offset, value) for _, p in self.polls for offset, value in p.records]
        return acked + given

    def sender(self, partition: TopicPartition, value: str) -> ClientOperation | None:
        return next(
            (o for o, s in self.sends if (s.partition, s.value) == (partition, value)), None
        )

    def offset(self, partition: TopicPartition, value: str) -> Offset | None:
        found = {o for p, o, v in self.records if (p, v) == (partition, value)}
        return min(found) if len(found) == 1 else None

    def seen(self, partition: TopicPartition, value: str, *, committed: bool) -> bool:
        return any(
            poll.partition == partition
            and poll.read_committed >= committed
            and value in [each for _, each in poll.records]
            for _, poll in self.polls
        )

    def ranges(self) -> Iterator[tuple[Poll, float, float]]:
        for number, (_, poll) in enumerate(self.polls):
            position = None
            for _, each in self.polls[: number + 1]:
                if (each.session, each.partition) != (poll.session, poll.partition):
                    continue
                begins = each.begins if position is None else position
                if begins is None and each.records:
                    begins = each.records[0][0]
                if begins is not None:
                    position = max([begins, each.ends or 0, *(o + 1 for o, _ in each.records)])
                    if each is poll:
                        yield poll, begins, math.inf if poll.to_end else position

    def inconsistent(self) -> bool:
        return any(
            one[:2] == other[:2] and one[2] != other[2]
            for one, other in combinations(self.records, 2)
        )

    def stays(self, partition: TopicPartition, offset: Offset, value: str) -> bool:
        """Return whether that record is certainly not aborted."""
        sender = self.sender(partition, value)
        is_plain = sender is not None and not sender.transactional
        return any(
            (s.partition, s.offset, s.value) == (partition, offset, value)
            and (is_plain or o.outcome is OK)
            for o, s in self.sends
        ) or any(
            poll.partition == partition
            and (offset, value) in poll.records
            and (is_plain or poll.read_committed)
            for _, poll in self.polls
        )

    def duplicate(self) -> bool:
        stay = [record for record in self.records if self.stays(*record)]
        return any(
            (one[0], one[2]) == (other[0], other[2]) and one[1] != other[1]
            for one, other in combinations(stay, 2)
        )

    def phantom(self) -> bool:
        return any(self.sender(p.partition, v) is None for _, p in self.polls for _, v in p.records)

    def aborted(self) -> bool:
        return any(
            o.outcome is FAIL and self.seen(s.partition, s.value, committed=o.transactional)
            for o, s in self.sends
        )

    def intermediate(self) -> bool:
        return any(
            poll.read_committed
            and sender.transactional
            and sender.outcome is not FAIL
            and (operation.completed if poll.at is None else poll.at) < sender.commit_asked
            for operation, poll in self.polls
            for _, value in poll.records
            if (sender := self.sender(poll.partition, value)) is not None
        )

    def torn(self) -> bool:
        for operation in self.operations:
            there = [self.seen(s.partition, s.value, committed=True) for s in operation.sends]
            gone = [
                (at := self.offset(s.partition, s.value)) is not None
                and not self.seen(s.partition, s.value, committed=True)
                and any(
                    p.partition == s.partition and p.read_committed and begins <= at < ends
                    for p, begins, ends in self.ranges()
                )
                for s in operation.sends
            ]
            if operation.transactional and any(there) and any(gone):
                return True
        return False

    def missing(self) -> Iterator[bool]:
        """Yield for each record that a poll lacks whether it is lost."""
        for poll, begins, ends in self.ranges():
            for partition, offset, value in self.records:
                values = {v for p, o, v in self.records if (p, o) == (partition, offset)}
                if partition != poll.partition or not begins <= offset < ends or len(values) > 1:
                    continue
                sender = self.sender(partition, value)
                is_ok = sender is not None and sender.outcome is OK
                required = not poll.read_committed or self.stays(partition, offset, value)
                if required and offset not in dict(poll.records):
                    yield is_ok and (
                        poll.to_end or not self.seen(partition, value, committed=False)
                    )

    def lost(self) -> bool:
        nowhere = any(
            o.outcome is OK
            and not any((p, v) == (s.partition, s.value) for p, _, v in self.records)
            and any(
                p.partition == s.partition and p.to_end and begins == 0
                for p, begins, _ in self.ranges()
            )
            for o, s in self.sends
        )
        return nowhere or any(self.missing())

    def skipped(self) -> bool:
        return not all(self.missing())

    def polls_go_back(self) -> bool:
        for poll, begins, _ in self.ranges():
            position = begins
            for offset, _ in poll.records:
                if offset < position:
                    return True
                position = offset + 1
        return False

    def sends_go_back(self) -> bool:
        known = [
            (o.process, s.partition, at)
            for o, s in self.sends
            if o.in_order and (at := self.offset(s.partition, s.value)) is not None
        ]
        return any(a[:2] == b[:2] and b[2] < a[2] for a, b in combinations(known, 2))

    def realtime(self) -> bool:
        acked = [
            (o, s, s.offset) for o, s in self.sends if o.outcome is OK and s.offset is not None
        ]
        return any(
            one[1].partition == other[1].partition
            and one[0].completed < other[0].invoked
            and other[2] <= one[2]
            for one, other in permutations(acked, 2)
        )

    def has_an_order(self, before: set[tuple[int, int]]) -> bool:
        """Return whether the operations can stand in an order that keeps to the dependencies."""
        numbers = range(len(self.operations))
        return any(
            all(order.index(one) < order.index(other) for one, other in before)
            for order in permutations(numbers)
        )

    def circular(self) -> bool:
        number = {id(each): place for place, each in enumerate(self.operations)}
        before = set()
        for operation, poll in self.polls:
            for _, value in poll.records:
                sender = self.sender(poll.partition, value)
                both = sender is not None and sender.transactional and operation.transactional
                if both and poll.read_committed:
                    before.add((number[id(sender)], number[id(operation)]))
        for one, other in permutations(self.operations, 2):
            if one.transactional and other.transactional and one.completed < other.invoked:
                before.add((number[id(one)], number[id(other)]))
        return not self.has_an_order(before)

    def written_in_a_circle(self) -> bool:
        written = [
            (place, s.partition, at)
            for place, o in enumerate(self.operations)
            for s in o.sends
            if o.transactional and o.outcome is OK
            if (at := self.offset(s.partition, s.value)) is not None
            if {v for p, o, v in self.records if (p, o) == (s.partition, at)} == {s.value}
        ]
        before = {
            (a[0], b[0])
            for a, b in permutations(written, 2)
            if a[1] == b[1] and a[2] < b[2] and a[0] != b[0]
        }
        return not self.has_an_order(before)


offsets = st.integers(0, 4)
partitions = st.sampled_from(PARTITIONS)


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Draw up to five operations of any outcome, with any offsets."""
    values = iter("abcdefghijklmnopqrstuvwxyz")
    drawn = []
    for number in range(draw(st.integers(1, 5))):
        sends = tuple(
            SentValue(
                partition=draw(partitions), value=next(values), offset=draw(st.none() | offsets)
            )
            for _ in range(draw(st.integers(0, 2)))
        )
        drawn.append((number, sends))
    sent_values = [(s.partition, s.value, s.offset) for _, sends in drawn for s in sends]
    operations = []
    for number, sends in drawn:
        polls = tuple(draw(polls_of(sent_values)) for _ in range(draw(st.integers(0, 2))))
        invoked = float(draw(st.integers(0, 6)))
        operations.append(
            ClientOperation(
                process=draw(st.sampled_from("xy")),
                outcome=draw(st.sampled_from(OperationOutcome)),
                sends=sends,
                polls=polls,
                invoked=invoked,
                completed=invoked + draw(st.integers(0, 3)) + number / 100,
                transactional=draw(st.booleans()),
                commit_asked=draw(st.sampled_from([-math.inf, 2.0, math.inf])),
                in_order=draw(st.booleans()),
            )
        )
    return History(operations=operations)


@st.composite
def polls_of(
    draw: st.DrawFn, sent_values: Sequence[tuple[TopicPartition, str, Offset | None]]
) -> Poll:
    partition = draw(partitions)
    there = [(value, at) for where, value, at in sent_values if where == partition] or [("?", 0)]
    records = []
    for _ in range(draw(st.integers(0, 3))):
        value, at = draw(st.sampled_from(there))
        records.append((draw(offsets) if at is None or draw(st.integers(0, 4)) == 0 else at, value))
    if draw(st.integers(0, 4)):
        records = sorted(set(records))
    return Poll(
        partition=partition,
        records=tuple(records),
        session=draw(st.sampled_from("cd")),
        begins=draw(st.none() | st.integers(0, 2)),
        ends=draw(st.none() | st.integers(0, 4)),
        to_end=draw(st.booleans()),
        read_committed=draw(st.booleans()),
        at=draw(st.none() | st.integers(0, 4).map(float)),
    )


def names(found: Sequence[Anomaly]) -> set[str]:
    return {each.name for each in found}


@settings(max_examples=100, deadline=None)
@given(histories())
def test_it_finds_what_its_naive_twin_finds(history: History) -> None:
    assert names(anomalies(history)) == Twin(history).names()


@settings(max_examples=100, deadline=None)
@given(histories())
def test_the_least_history_of_each_anomaly_shows_it(history: History) -> None:
    found = anomalies(history)
    for each in found if "duplicate write" not in names(found) else ():
        assert shows(each.name, each.operations), str(each)
