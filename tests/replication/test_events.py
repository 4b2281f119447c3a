"""Events are frozen facts with stable names; sinks compose; watermarks are coalesced."""

from functools import partial

import attrs
import pytest

from replication.events import (
    EVENTS,
    RARELY_MS,
    BrokerFenced,
    Event,
    HighWatermarkAdvanced,
    HighWatermarkReporter,
    PeerContradicted,
    RareReporter,
    fan_out,
    ignore,
)
from storage.types import TopicPartition

TP = TopicPartition("t", 0)


def test_every_event_has_a_name_of_its_own() -> None:
    assert len({event.name for event in EVENTS}) == len(EVENTS) > 50


def test_an_event_cannot_be_changed() -> None:
    event = BrokerFenced(broker=1, broker_epoch=2, cause="session expired")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        event.broker = 2  # type: ignore[misc]


def test_fan_out_calls_each_sink_in_order() -> None:
    seen: list[str] = []
    sink = fan_out(lambda e: seen.append(f"a {e.name}"), lambda e: seen.append(f"b {e.name}"))
    sink(BrokerFenced(broker=1, broker_epoch=2, cause="session expired"))
    assert seen == ["a broker_fenced", "b broker_fenced"]


def test_fan_out_to_no_listener_is_the_sink_that_ignores() -> None:
    assert fan_out() is ignore
    assert fan_out(ignore, ignore) is ignore
    seen: list[Event] = []
    only = seen.append
    assert fan_out(ignore, only) is only


def test_a_tick_reports_the_last_advance_of_each_partition() -> None:
    seen: list[Event] = []
    reporter = HighWatermarkReporter(seen.append)
    other = TopicPartition("t", 1)
    for end in (1, 2, 3):
        reporter.advanced(TP, high_watermark=end, log_end_offset=3, leader_epoch=0)
    reporter.advanced(other, high_watermark=9, log_end_offset=9, leader_epoch=0)
    assert seen == []
    reporter.tick()
    reporter.tick()
    assert seen == [
        HighWatermarkAdvanced(partition=TP, high_watermark=3, log_end_offset=3, leader_epoch=0),
        HighWatermarkAdvanced(partition=other, high_watermark=9, log_end_offset=9, leader_epoch=0),
    ]


def test_a_rare_report_says_how_many_were_left_out() -> None:
    seen: list[Event] = []
    times = (5, 6, RARELY_MS + 4, RARELY_MS + 5, 2 * RARELY_MS + 5)
    reporter = RareReporter(seen.append, partial(next, iter(times)))

    def claimed(left_out: int) -> Event:
        return PeerContradicted(claim="two lead", left_out=left_out)

    for _ in times:
        reporter.report(claimed)
    assert seen == [claimed(0), claimed(2), claimed(0)]


def test_advances_without_a_listener_are_not_kept() -> None:
    reporter = HighWatermarkReporter(ignore)
    reporter.advanced(TP, high_watermark=1, log_end_offset=1, leader_epoch=0)
    assert reporter == HighWatermarkReporter(ignore)
