"""The view of `understudy follow`: progress, rates and notable events of a copy."""

from rich.console import Console

from replication.cli.follow import MirrorMoment, Rates, metrics_text, notable
from replication.events import FetcherStarted, LogTruncated, PartitionFailed
from replication.metrics import MetricsRegistry
from replication.mirror import PartitionProgress
from replication.replica_manager.bytes_in import REPLICATION, metric
from storage.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def progress(
    partition: TopicPartition, end: int, lag: int | None, trouble: str | None = None
) -> PartitionProgress:
    return PartitionProgress(
        topic_partition=partition,
        leader=2,
        leader_epoch=7,
        log_start_offset=0,
        log_end_offset=end,
        lag=lag,
        trouble=trouble,
    )


def test_partitions_behind_or_in_trouble_come_first() -> None:
    partitions = [progress(T0, 5000, 0), progress(T1, 10, 12, "its leader cannot be reached")]
    moment = MirrorMoment(
        partitions=partitions, trouble=None, bytes_per_second=2.5e6, offsets_per_second={T0: 420.0}
    )
    console = Console(width=100)
    with console.capture() as shown:
        console.print(moment.table())
    lines = [line.split() for line in shown.get().splitlines() if line.strip()]
    assert " ".join(lines[0]) == "2 partitions, 12 records behind, 2.5 MB/s, 1 in trouble"
    assert lines[2] == [
        "t-1",
        "2",
        "7",
        "0",
        "10",
        "12",
        "0",
        "its",
        "leader",
        "cannot",
        "be",
        "reached",
    ]
    assert lines[3] == ["t-0", "2", "7", "0", "5,000", "0", "420"]


def test_a_copy_has_caught_up_once_every_leader_has_answered() -> None:
    def at(*partitions: PartitionProgress) -> bool:
        return MirrorMoment(partitions=partitions, trouble=None, bytes_per_second=0.0).caught_up

    assert at(progress(T0, 5, 0))
    assert not at()
    assert not at(progress(T0, 5, 0), progress(T1, 5, None))
    assert not at(progress(T0, 5, 0), progress(T1, 5, 0, "its leader cannot be reached"))


def test_a_source_that_does_not_answer_is_named() -> None:
    moment = MirrorMoment(partitions=[], trouble="no connection to b1", bytes_per_second=0.0)
    assert moment.line().endswith("the source does not answer: no connection to b1")


def test_rates_cover_the_time_since_the_last_look() -> None:
    metrics = MetricsRegistry(lambda: 0.0)
    rates = Rates(metrics, 0.0)
    assert rates.since_last(1.0, [progress(T0, 100, 0)]) == (0.0, {T0: 0.0})
    metrics.meter(metric(REPLICATION)).mark(3000)
    assert rates.since_last(3.0, [progress(T0, 300, 0)]) == (1500.0, {T0: 100.0})
    assert f"{metric(REPLICATION)} 3000\n" in metrics_text(metrics)


def test_only_events_that_change_the_copy_are_shown() -> None:
    cut = LogTruncated(
        partition=T0,
        from_offset=9,
        to_offset=7,
        high_watermark=9,
        cause="diverging epoch",
        leader_epoch=3,
    )
    assert notable(cut) == "t-0: truncated from offset 9 to 7 (diverging epoch), like the source"
    failed = PartitionFailed(partition=T1, cause="its disk")
    assert notable(failed) == "t-1: no longer followed: its disk"
    assert notable(FetcherStarted(leader=1, fetcher_id=0)) is None


def test_a_missing_topic_is_shown_and_keeps_the_copy_from_catching_up() -> None:
    progress = PartitionProgress(
        topic_partition=TopicPartition("t", 0),
        leader=1,
        leader_epoch=0,
        log_start_offset=0,
        log_end_offset=5,
        lag=0,
    )
    moment = MirrorMoment(
        partitions=[progress], trouble=None, missing=["nope"], bytes_per_second=0.0
    )
    assert not moment.caught_up
    assert moment.line().endswith("; not in the source: nope")
