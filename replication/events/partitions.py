"""Events of topics and partitions: leaders, followers and the ISR."""

from typing import ClassVar

import attrs

from replication.events.event import Event
from storage.types import LeaderEpoch, Offset, TopicId, TopicPartition


@attrs.frozen(kw_only=True)
class TopicCreated(Event):
    """A topic was created."""

    name: ClassVar[str] = "topic_created"
    topic: str
    topic_id: TopicId
    partitions: int  # the number of partitions
    replication_factor: int  # the number of replicas of each partition


@attrs.frozen(kw_only=True)
class TopicDeleted(Event):
    """A topic was deleted."""

    name: ClassVar[str] = "topic_deleted"
    topic: str
    topic_id: TopicId


@attrs.frozen(kw_only=True)
class LeaderElected(Event):
    """The controller has elected a leader for a partition."""

    name: ClassVar[str] = "leader_elected"
    partition: TopicPartition
    leader: int
    leader_epoch: LeaderEpoch
    isr: tuple[int, ...]
    cause: str  # "clean", "eligible", "last known", "unclean" (`election.py`), or "created"
    previous_leader: int = -1  # the leader before; -1 if there was none


@attrs.frozen(kw_only=True)
class PartitionOffline(Event):
    """A partition has no leader, because no replica may lead."""

    name: ClassVar[str] = "partition_offline"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    isr: tuple[int, ...]
    cause: str


@attrs.frozen(kw_only=True)
class BecameLeader(Event):
    """A broker has become the leader of a partition."""

    name: ClassVar[str] = "became_leader"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    leader_epoch_start_offset: Offset  # the log end when this epoch began
    high_watermark: Offset
    isr: tuple[int, ...] = ()


@attrs.frozen(kw_only=True)
class BecameFollower(Event):
    """A broker has become a follower of a partition, at a new leader epoch."""

    name: ClassVar[str] = "became_follower"
    partition: TopicPartition
    leader: int
    leader_epoch: LeaderEpoch
    log_end_offset: Offset
    high_watermark: Offset = -1


@attrs.frozen(kw_only=True)
class PartitionStopped(Event):
    """A broker no longer holds a replica."""

    name: ClassVar[str] = "partition_stopped"
    partition: TopicPartition
    deleted: bool  # whether its log is deleted too


@attrs.frozen(kw_only=True)
class DuplicateRecognised(Event):
    """An idempotent producer has sent a batch again that is in the log.

    It is answered with the offset of the first one, and nothing is written.
    """

    name: ClassVar[str] = "duplicate_recognised"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    base_offset: Offset  # the first offset of that batch
    last_offset: Offset  # its last offset, inclusive


@attrs.frozen(kw_only=True)
class IsrChangeProposed(Event):
    """A leader has asked the controller for another ISR (AlterPartition, KIP-497)."""

    name: ClassVar[str] = "isr_change_proposed"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: tuple[int, ...]  # the proposed ISR
    leaving: tuple[int, ...]  # the brokers that leave it
    joining: tuple[int, ...]  # the brokers that join it
    high_watermark: Offset
    log_end_offset: Offset
    lag: int  # records that the leaving or joining broker furthest behind lacks
    lag_ms: int = -1  # for how long it has been behind


@attrs.frozen(kw_only=True)
class IsrChangeRefused(Event):
    """The controller has refused an ISR change; the leader keeps its ISR, or asks again."""

    name: ClassVar[str] = "isr_change_refused"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    partition_epoch: int
    error: str
    isr: tuple[int, ...] = ()


@attrs.frozen(kw_only=True)
class IsrChanged(Event):
    """The ISR of a partition has changed: the leader asked for it, or a broker was fenced."""

    name: ClassVar[str] = "isr_changed"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: tuple[int, ...]
    previous_isr: tuple[int, ...] = ()  # the ISR before
