"""What journals tell of a partition, folded: tables of rules and a naive twin, without Spark."""

import itertools
from typing import Any

import pytest
from hypothesis import given, strategies as st

pytest.importorskip("pyarrow", reason="the Arrow extra is not installed: understudy[arrow]")

from pipeline.journals.rows import SCHEMA
from pipeline.journals.timeline import (
    FIRST_WRITE,
    REACHED,
    Fact,
    Failover,
    failovers,
    intervals,
    outages,
)


def fact(name: str, at_ms: int, **fields: Any) -> Fact:
    return dict.fromkeys(SCHEMA.names) | {"name": name, "at_ms": at_ms, "node": 0} | fields


def elected(at_ms: int, leader: int, epoch: int, *isr: int, cause: str = "clean") -> Fact:
    return fact(
        "leader_elected", at_ms, leader=leader, leader_epoch=epoch, isr=list(isr), cause=cause
    )


def isr(at_ms: int, epoch: int, partition_epoch: int, *members: int) -> Fact:
    return fact(
        "isr_changed",
        at_ms,
        leader_epoch=epoch,
        partition_epoch=partition_epoch,
        isr=list(members),
    )


def in_order(events: list[Fact], end_ms: int) -> list[tuple[Any, ...]]:
    return [
        (each.from_ms, each.to_ms, each.leader, each.leader_epoch, each.isr)
        for each in intervals(events, end_ms)
    ]


def test_a_failover_is_three_intervals() -> None:
    events = [
        elected(10, 1, 0, 1, 2, 3, cause="created"),
        elected(70, 2, 1, 2, 3),
        isr(70, 1, 1, 2, 3),
        isr(90, 1, 2, 1, 2, 3),
        isr(95, 1, 2, 1, 2, 3),  # the leader tells of the same change
    ]
    assert in_order(events, 100) == [
        (10, 70, 1, 0, (1, 2, 3)),
        (70, 90, 2, 1, (2, 3)),
        (90, 100, 2, 1, (1, 2, 3)),
    ]


def test_an_old_change_that_a_leader_tells_late_is_no_news() -> None:
    events = [elected(1, 1, 0, 1, 2), isr(5, 0, 4, 1), isr(6, 0, 5, 1, 2), isr(7, 0, 4, 1)]
    assert in_order(events, 10)[-1] == (6, 10, 1, 0, (1, 2))


def test_what_came_and_went_within_a_millisecond_is_not_seen() -> None:
    events = [elected(1, 1, 0, 1, 2), isr(5, 0, 1, 1), isr(5, 0, 2, 1, 2)]
    assert in_order(events, 10) == [(1, 10, 1, 0, (1, 2))]


def test_offline_and_deleted() -> None:
    offline = fact("partition_offline", 5, leader_epoch=1, isr=[])
    events = [elected(1, 1, 0, 1), offline, fact("topic_deleted", 8), elected(9, 1, 0, 1)]
    assert in_order(events, 20) == [(1, 5, 1, 0, (1,)), (5, 8, -1, 1, ())]


def test_without_events_there_is_no_interval() -> None:
    assert in_order([], 10) == []
    assert in_order([fact("became_leader", 1, leader_epoch=0)], 10) == []


changes = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.sampled_from(["elected", "offline", "isr", "stale", "other"]),
        st.sets(st.integers(1, 3)),
    ),
    max_size=10,
)


def made(drawn: list[tuple[int, str, set[int]]]) -> list[Fact]:
    at_ms, epoch, partition_epoch, events = 0, 0, 0, []
    for step, kind, members in drawn:
        at_ms += step
        if kind == "elected":
            epoch += 1
            events.append(elected(at_ms, max(members, default=1), epoch, *members))
        elif kind == "offline":
            epoch += 1
            events.append(fact("partition_offline", at_ms, leader_epoch=epoch, isr=[]))
        elif kind == "isr":
            partition_epoch += 1
            events.append(isr(at_ms, epoch, partition_epoch, *members))
        elif kind == "stale":
            events.append(isr(at_ms, epoch, partition_epoch, 9))
        else:
            events.append(fact("log_truncated", at_ms, leader_epoch=epoch))
    return events


def naive(events: list[Fact], at_ms: int) -> tuple[int, int, tuple[int, ...]] | None:
    """The state in one millisecond, from everything before it."""
    state: tuple[int, int, tuple[int, ...]] | None = None
    newest = 0
    for event in events:
        if event["at_ms"] > at_ms:
            break
        leader, epoch, _ = state or (-1, -1, ())
        if event["name"] == "leader_elected":
            state = (event["leader"], event["leader_epoch"], tuple(event["isr"]))
        elif event["name"] == "partition_offline":
            state = (-1, event["leader_epoch"], ())
        elif event["name"] == "isr_changed" and event["partition_epoch"] > newest:
            newest = event["partition_epoch"]
            state = (leader, max(epoch, event["leader_epoch"]), tuple(event["isr"]))
    return state


@given(changes)
def test_intervals_are_what_a_naive_twin_sees_in_every_millisecond(
    drawn: list[tuple[int, str, set[int]]],
) -> None:
    events = [event for event in made(drawn) if event["partition_epoch"] != 0]
    found = intervals(events, 50)
    for before, after in itertools.pairwise(found):
        assert before.to_ms == after.from_ms
        assert (before.leader, before.leader_epoch, before.isr) != (
            (after.leader, after.leader_epoch, after.isr)
        )
    for at_ms in range(50):
        now = [each for each in found if each.from_ms <= at_ms < each.to_ms]
        states = [(each.leader, each.leader_epoch, each.isr) for each in now]
        seen = naive(events, at_ms)
        assert states == ([] if seen is None else [seen])


def broker(name: str, at_ms: int, broker_id: int, **fields: Any) -> Fact:
    return fact(name, at_ms, broker=broker_id, **fields)


FENCED = broker("broker_fenced", 70, 1, cause="session expired", since_heartbeat_ms=20)


def test_an_outage_begins_with_its_first_sign_and_ends_when_the_broker_is_back() -> None:
    found = outages(
        [
            FENCED,
            broker("broker_unfenced", 90, 1),
            broker("controlled_shutdown_started", 95, 1),
            broker("broker_fenced", 97, 1, cause="controlled shutdown", since_heartbeat_ms=-1),
            broker("broker_unfenced", 99, 2),
        ]
    )
    assert [(each.broker, each.began_ms, each.fenced_ms, each.silent_ms) for each in found] == [
        (1, 70, 70, 20),
        (1, 95, 97, -1),
    ]
    assert [each.over_ms for each in found] == [90, None]
    assert [each.planned for each in found] == [False, True]


def test_a_broker_that_dies_on_its_way_out_is_an_outage() -> None:
    (found,) = outages(
        [
            broker("controlled_shutdown_started", 95, 1),
            broker("broker_fenced", 97, 1, cause="session expired", since_heartbeat_ms=2),
        ]
    )
    assert (found.cause, found.planned, found.began_ms) == ("session expired", False, 95)


def of_failover(*more: Fact) -> Failover:
    events = [
        elected(10, 1, 0, 1, 2, 3, cause="created"),
        fact(REACHED, 60, node=1, leader_epoch=0, high_watermark=40),
        elected(71, 2, 1, 2, 3),
        *more,
    ]
    events.sort(key=lambda event: event["at_ms"])
    (found,) = failovers(events, outages([FENCED]))
    return found


LEADS = fact("became_leader", 72, node=2, leader_epoch=1, leader_epoch_start_offset=40)


def test_a_failover_has_its_moments_and_their_chain() -> None:
    found = of_failover(
        LEADS,
        fact(FIRST_WRITE, 75, node=2, leader_epoch=1, high_watermark=43),
        isr(71, 1, 1, 2, 3),
        isr(99, 1, 2, 1, 2, 3),
    )
    assert (found.elected_ms, found.leading_ms, found.first_write_ms, found.isr_whole_ms) == (
        (71, 72, 75, 99)
    )
    assert (found.lost_committed, found.truncated) == (0, 0)
    assert found.chain == (
        "-0.020 s  b1 was last heard of",
        "+0.000 s  b1 was fenced: session expired",
        "+0.001 s  b2 was elected (clean) for epoch 1",
        "+0.002 s  b2 leads from offset 40",
        "+0.005 s  a first write was committed, up to 43",
        "+0.029 s  the ISR is whole again: b1, b2, b3",
    )


def test_what_was_lost_is_counted() -> None:
    begins_lower = LEADS | {"leader_epoch_start_offset": 30}
    cut = fact(
        "log_truncated",
        80,
        node=1,
        leader_epoch=1,
        from_offset=45,
        to_offset=30,
        high_watermark=40,
        cause="diverging epoch",
    )
    found = of_failover(begins_lower, cut)
    assert (found.lost_committed, found.truncated, found.truncated_committed) == (10, 15, 10)
    assert found.chain[-1] == ("+0.010 s  b1 cut off offsets 30 to 45 (exclusive): diverging epoch")


def test_what_never_came_is_none() -> None:
    events = [elected(10, 1, 0, 1, 2), fact("partition_offline", 71, leader_epoch=1, isr=[1])]
    (found,) = failovers(events, outages([FENCED]))
    assert (found.elected_ms, found.leader, found.first_write_ms, found.isr_whole_ms) == (
        (None,) * 4
    )


def test_a_partition_that_another_broker_led_has_no_failover() -> None:
    assert not list(failovers([elected(10, 2, 0, 1, 2)], outages([FENCED])))
