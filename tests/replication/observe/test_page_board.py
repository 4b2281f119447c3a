"""The updates of a browser: everything at first, then the changes, and never a growing queue."""

import json
from typing import Any

import attrs
import trio
import trio.testing

from replication.events import (
    FetchSessionOpened,
    HighWatermarkAdvanced,
    IsrChanged,
    LeaderElected,
    LogTruncated,
    TopicDeleted,
)
from replication.net.clock import TrioClock
from replication.observe.cluster_state import ClusterState, ObservedPartition, Status
from replication.observe.page import Board, Timeline
from replication.observe.page.board import KEPT, ReaderPosition
from replication.observe.page.live import feed_of
from storage.types import TopicPartition

T0 = TopicPartition("t", 0)


def partition(topic: str, epoch: int = 0) -> ObservedPartition:
    return ObservedPartition(
        topic=topic, partition=0, leader=1, leader_epoch=epoch, isr=(1,), replicas=()
    )


def cluster(*partitions: ObservedPartition, now_ms: int = 0) -> ClusterState:
    return ClusterState(
        now_ms=now_ms,
        cluster_id="c",
        controller=0,
        controller_status=Status.UP,
        brokers=(),
        partitions=partitions,
        number_of_partitions=len(partitions),
    )


def board() -> Board:
    return Board(Timeline(lambda: 1234))


def elected(epoch: int) -> LeaderElected:
    return LeaderElected(partition=T0, leader=1, leader_epoch=epoch, isr=(1,), cause="clean")


async def test_a_new_reader_gets_everything_and_then_what_changes() -> None:
    on = board()
    on.put(cluster(partition("a"), partition("b")))
    text, seen = await on.news(ReaderPosition())
    first = json.loads(text)
    assert first["order"] == ["a-0", "b-0"]
    assert [each["topic"] for each in first["partitions"]] == ["a", "b"]
    assert first["cluster"]["controller_status"] == "up"
    on.put(cluster(partition("a"), partition("b", epoch=1)))
    text, seen = await on.news(seen)
    second = json.loads(text)
    assert [each["leader_epoch"] for each in second["partitions"]] == [1]
    assert second.keys() == {"now", "partitions", "events", "missed"}
    on.put(cluster(partition("b", epoch=1)))
    third = json.loads((await on.news(seen))[0])
    assert (third["order"], third["partitions"]) == (["b-0"], [])
    assert third["cluster"]["number_of_partitions"] == 1


async def test_there_is_no_news_while_only_time_passes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    on = board()
    on.put(cluster(partition("a"), now_ms=1))
    _, seen = await on.news(ReaderPosition())
    on.put(cluster(partition("a"), now_ms=2))
    with TrioClock().move_on_after(60) as waited:
        await on.news(seen)
    assert waited.cancelled_caught


async def test_a_reader_that_stops_reading_costs_nothing_and_gets_the_end_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Its socket takes nothing: 3,000 changes later one update waits for it, of one size."""
    on = board()
    sizes: list[int] = []
    may_send = trio.Event()

    async def send(data: str) -> None:
        await may_send.wait()
        sizes.append(len(data))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed_of(on), send)
        for epoch in range(3_000):
            on.put(cluster(partition("a", epoch=epoch)))
            on.timeline.sink(0)(elected(epoch))
            if epoch % 500 == 0:
                await trio.testing.wait_all_tasks_blocked()
        on.put(cluster(partition("a", epoch=3_000)))
        may_send.set()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert len(sizes) == 2, "the one that was on its way, and all the rest"
    assert sizes[1] < 400 * KEPT


async def test_a_late_reader_learns_how_much_it_missed() -> None:
    on = board()
    on.put(cluster())
    _, seen = await on.news(ReaderPosition())
    for epoch in range(KEPT + 7):
        on.timeline.sink(0)(elected(epoch))
    on.put(cluster())
    update = json.loads((await on.news(seen))[0])
    assert update["missed"] == 7
    assert len(update["events"]) == KEPT
    assert update["events"][-1]["text"].startswith(f"b1 leads t-0 in epoch {KEPT + 6}")


def entries(*events: tuple[int, Any]) -> list[tuple[str, str, str]]:
    timeline = Timeline(lambda: 0)
    for node_id, event in events:
        timeline.sink(node_id)(event)
    return [(each.node, each.kind, each.name) for each in timeline.since(0)]


def test_a_timeline_has_an_isr_change_once_and_no_frequent_events() -> None:
    changed = IsrChanged(
        partition=T0, leader_epoch=1, partition_epoch=2, isr=(1,), previous_isr=(1, 2)
    )
    advanced = HighWatermarkAdvanced(
        partition=T0, high_watermark=1, log_end_offset=1, leader_epoch=0
    )
    opened = FetchSessionOpened(session_id=1, partitions=1, privileged=True)
    assert entries((1, advanced), (1, opened), (0, changed), (1, changed)) == [
        ("controller", "decision", "isr_changed")
    ]
    deleted = TopicDeleted(topic="t", topic_id=b"")
    again = [each for _, _, each in entries((1, changed), (1, changed), (1, deleted), (1, changed))]
    assert again == ["isr_changed", "topic_deleted", "isr_changed"], "a node with both roles"


def test_a_timeline_has_decisions_and_truncations_of_internal_topics() -> None:
    internal = TopicPartition("__consumer_offsets", 0)
    cut = LogTruncated(
        partition=internal, from_offset=5, to_offset=3, high_watermark=3, cause="diverging epoch"
    )
    assert entries((2, cut), (0, attrs.evolve(elected(1), partition=internal))) == [
        ("b2", "cut", "log_truncated"),
        ("controller", "decision", "leader_elected"),
    ]
