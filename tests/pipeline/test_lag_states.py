"""The states of a partition: what brokers left behind that shut down on request is no trouble."""

import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")

from pipeline.journals.lag import LagReport, LagState, PartitionLag, verdict, with_shutdowns
from pipeline.journals.timeline import Interval, Outage
from storage.types import TopicPartition

TP = TopicPartition("orders", 0)
INTERNAL = TopicPartition("__consumer_offsets", 7)


def state(from_ms: int, to_ms: int, leader: int, *isr: int) -> LagState:
    interval = Interval(from_ms=from_ms, to_ms=to_ms, leader=leader, leader_epoch=1, isr=isr)
    return LagState(topic_partition=TP, interval=interval, replication_factor=3, min_isr=2)


def shut_down(broker: int, at_ms: int) -> dict[int, Outage]:
    outage = Outage(
        broker=broker,
        began_ms=at_ms,
        fenced_ms=None,
        silent_ms=-1,
        cause="controlled shutdown",
        over_ms=None,
        planned=True,
    )
    return {broker: outage}


@pytest.mark.parametrize(
    ("states", "stopped", "names"),
    [
        pytest.param(
            [state(0, 10, 1, 1, 2, 3), state(10, 20, 1, 1, 3), state(20, 30, -1, 3)],
            shut_down(2, 9) | shut_down(1, 19) | shut_down(3, 19),
            ["whole", "shut down", "shut down"],
            id="all shut down, the last one stays in the ISR",
        ),
        pytest.param(
            [state(0, 10, 1, 1, 2, 3), state(10, 20, 1, 1, 3), state(20, 30, 1, 1)],
            shut_down(2, 9),
            ["whole", "shut down", "under min ISR"],
            id="another one is missing too",
        ),
        pytest.param(
            [state(0, 10, 1, 1, 2, 3), state(10, 30, -1, 3)],
            shut_down(1, 9) | shut_down(2, 9),
            ["whole", "offline"],
            id="one is up, and nobody leads",
        ),
        pytest.param(
            [state(0, 10, 1, 1, 2, 3), state(10, 20, 1, 1, 3), state(20, 30, 1, 1, 2, 3)],
            shut_down(2, 29),
            ["whole", "under-replicated", "whole"],
            id="it was missing before it shut down",
        ),
        pytest.param(
            [state(0, 10, 1, 1, 3)], shut_down(2, 0), ["under-replicated"], id="nobody knows of it"
        ),
    ],
)
def test_what_only_brokers_left_behind_that_shut_down_is_no_trouble(
    states: list[LagState], stopped: dict[int, Outage], names: list[str]
) -> None:
    assert [each.name for each in with_shutdowns(states, stopped)] == names


def test_the_verdict_on_lag_after_a_shutdown_is_that_nothing_is_wrong() -> None:
    states = tuple(
        with_shutdowns(
            [state(0, 10, 1, 1, 2, 3), state(10, 20, -1)],
            shut_down(1, 10) | shut_down(2, 10) | shut_down(3, 10),
        )
    )
    partitions = tuple(
        PartitionLag(topic=each.topic, partition=each.partition, replication_factor=3)
        for each in (TP, INTERNAL)
    )
    found = verdict(LagReport(partitions, states, (), {}, (1, 2, 3)))
    assert str(found) == (
        "All is well: every ISR of 1 partition was whole all the time. Where the journals end,"
        " nothing is wrong (b1, b2, b3 shut down). The failover report shows whether records were"
        " lost."
    )
