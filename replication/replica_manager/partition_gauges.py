"""The gauges of each partition held here, and of each follower of those led here.

    kafka.cluster:type=Partition    the leader's view; a follower counts nothing
    kafka.log:type=Log              its log, on leaders and followers
    understudy:type=Partition       on leaders: what is not committed yet, the leader epoch
    understudy:type=Follower        on leaders: what each follower lacks, and for how long

Names are made when they are read: there are about fifteen for each partition.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from replication.leader.partition import Partition
from replication.leader.rules.isr import NEVER_MS, FollowerState
from replication.leader.rules.leadership import Leadership
from replication.metrics import Family, MetricName
from replication.replica_manager.hosted import HostedPartitions
from storage.attributes import frozen
from storage.types import TopicPartition

OfPartition: TypeAlias = Callable[[Partition], float | None]
OfFollower: TypeAlias = Callable[[Leadership, FollowerState], float | None]


def partition_metric(name: str, partition: TopicPartition) -> MetricName:
    return MetricName("kafka.cluster", "Partition", name, _tags(partition))


def log_metric(name: str, partition: TopicPartition) -> MetricName:
    return MetricName("kafka.log", "Log", name, _tags(partition))


def led_metric(name: str, partition: TopicPartition) -> MetricName:
    return MetricName("understudy", "Partition", name, _tags(partition))


def follower_metric(name: str, partition: TopicPartition, follower: int) -> MetricName:
    tags = (*_tags(partition), ("follower", str(follower)))
    return MetricName("understudy", "Follower", name, tags)


def _tags(partition: TopicPartition) -> tuple[tuple[str, str], ...]:
    return ("topic", partition.topic), ("partition", str(partition.partition))


# Gauges of one partition. On a follower it is never under-replicated: only the leader knows.


def _of_leader(read: Callable[[Leadership], int]) -> Callable[[Partition], int]:
    def value(partition: Partition) -> int:
        return 0 if partition.leadership is None else read(partition.leadership)

    return value


def _only_of_leader(read: Callable[[Leadership], int]) -> OfPartition:
    return lambda each: None if each.leadership is None else read(each.leadership)


def _under_replicated(leadership: Leadership) -> int:
    return int(len(leadership.isr) < 1 + len(leadership.followers))


def _at_min_isr(leadership: Leadership) -> int:
    return int(len(leadership.isr) == leadership.effective_min_isr)


OF_PARTITION: Mapping[str, Callable[[Partition], int]] = {
    "UnderReplicated": _of_leader(_under_replicated),
    "InSyncReplicasCount": _of_leader(lambda leadership: len(leadership.isr)),
    "UnderMinIsr": _of_leader(lambda leadership: int(leadership.under_min_isr)),
    "AtMinIsr": _of_leader(_at_min_isr),
    "ReplicasCount": _of_leader(lambda leadership: 1 + len(leadership.followers)),
    "LastStableOffsetLag": lambda partition: max(
        0, partition.log.high_watermark - partition.log.last_stable_offset
    ),
}

OF_LOG: Mapping[str, OfPartition] = {
    "LogEndOffset": lambda partition: partition.log.log_end_offset,
    "LogStartOffset": lambda partition: partition.log.log_start_offset,
    "Size": lambda partition: partition.log.size,
    "NumLogSegments": lambda partition: len(partition.log.segments),
}

OF_LED: Mapping[str, OfPartition] = {
    "high_watermark_lag_records": _only_of_leader(
        lambda leadership: leadership.log.log_end_offset - leadership.log.high_watermark
    ),
    "leader_epoch": _only_of_leader(lambda leadership: leadership.leader_epoch),
}


def _lag(leadership: Leadership, follower: FollowerState) -> float | None:
    if follower.log_end_offset < 0:
        return None  # this follower has not fetched yet
    return max(0, leadership.log.log_end_offset - follower.log_end_offset)


def _behind_seconds(leadership: Leadership, follower: FollowerState) -> float | None:
    """Return the seconds that are compared with replica.lag.time.max.ms."""
    if follower.log_end_offset == leadership.log.log_end_offset:
        return 0.0
    if follower.last_caught_up_ms == NEVER_MS:
        return None
    return (leadership.around.now_ms() - follower.last_caught_up_ms) / 1000


OF_FOLLOWER: Mapping[str, OfFollower] = {
    "follower_lag_records": _lag,
    "follower_behind_seconds": _behind_seconds,
}


@frozen
class PartitionGauges:
    """The gauges of one table, for all partitions."""

    hosted: HostedPartitions
    named: Callable[[str, TopicPartition], MetricName]
    table: Mapping[str, OfPartition]

    def names(self) -> list[MetricName]:
        return [name for name, _ in self.snapshot()]

    def read(self, name: MetricName) -> float | None:
        topic_partition = _partition_of(name)
        partition = self.hosted.find(topic_partition)
        ours = name.name in self.table and name == self.named(name.name, topic_partition)
        return self.table[name.name](partition) if ours and partition is not None else None

    def snapshot(self) -> Iterator[tuple[MetricName, float]]:
        for partition in self.hosted:
            for name, read in self.table.items():
                if (value := read(partition)) is not None:
                    yield self.named(name, partition.topic_partition), value


@frozen
class FollowerGauges:
    """The gauges of all followers of all partitions led here."""

    hosted: HostedPartitions

    def names(self) -> list[MetricName]:
        return [name for name, _ in self.snapshot()]

    def read(self, name: MetricName) -> float | None:
        topic_partition, tags = _partition_of(name), dict(name.tags)
        partition = self.hosted.find(topic_partition)
        if partition is None or partition.leadership is None or name.name not in OF_FOLLOWER:
            return None
        for broker_id, follower in partition.leadership.followers.items():
            if tags.get("follower") == str(broker_id):
                return OF_FOLLOWER[name.name](partition.leadership, follower)
        return None

    def snapshot(self) -> Iterator[tuple[MetricName, float]]:
        for partition in self.hosted:
            if (leadership := partition.leadership) is None:
                continue
            for broker_id, follower in list(leadership.followers.items()):
                for name, read in OF_FOLLOWER.items():
                    if (value := read(leadership, follower)) is not None:
                        yield follower_metric(name, partition.topic_partition, broker_id), value


def _partition_of(name: MetricName) -> TopicPartition:
    tags = dict(name.tags)
    number = tags.get("partition", "")
    return TopicPartition(tags.get("topic", ""), int(number) if number.isdigit() else -1)


def partition_families(hosted: HostedPartitions) -> list[Family]:
    return [
        PartitionGauges(hosted, partition_metric, OF_PARTITION),
        PartitionGauges(hosted, log_metric, OF_LOG),
        PartitionGauges(hosted, led_metric, OF_LED),
        FollowerGauges(hosted),
    ]
