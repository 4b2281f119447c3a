"""Topics, who leads and follows their partitions, and what of them is in sync."""

from typing import ClassVar

import attrs

from replication.events.event import Event
from storage.types import LeaderEpoch, Offset, TopicId, TopicPartition


@attrs.frozen(kw_only=True)
class TopicCreated(Event):
    """A topic is in the metadata."""

    name: ClassVar[str] = "topic_created"
    topic: str
    topic_id: TopicId
    partitions: int  # so many
    replication_factor: int  # replicas of each partition


@attrs.frozen(kw_only=True)
class TopicDeleted(Event):
    """A topic is in the metadata no more."""

    name: ClassVar[str] = "topic_deleted"
    topic: str
    topic_id: TopicId


@attrs.frozen(kw_only=True)
class LeaderElected(Event):
    """The controller has a leader for a partition."""

    name: ClassVar[str] = "leader_elected"
    partition: TopicPartition
    leader: int
    leader_epoch: LeaderEpoch
    isr: tuple[int, ...]
    cause: str  # "clean", "eligible", "last known", "unclean" (`election.py`), or "created"
    previous_leader: int = -1  # who led before; -1: nobody


@attrs.frozen(kw_only=True)
class PartitionOffline(Event):
    """No replica may lead."""

    name: ClassVar[str] = "partition_offline"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    isr: tuple[int, ...]
    cause: str


@attrs.frozen(kw_only=True)
class BecameLeader(Event):
    """A broker leads a partition: it takes produce requests for it."""

    name: ClassVar[str] = "became_leader"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    leader_epoch_start_offset: Offset  # its log end when this epoch began
    high_watermark: Offset
    isr: tuple[int, ...] = ()


@attrs.frozen(kw_only=True)
class BecameFollower(Event):
    """A broker follows a partition's leader."""

    name: ClassVar[str] = "became_follower"
    partition: TopicPartition
    leader: int
    leader_epoch: LeaderEpoch
    log_end_offset: Offset
    high_watermark: Offset = -1


@attrs.frozen(kw_only=True)
class PartitionStopped(Event):
    """A replica that this broker no longer hosts."""

    name: ClassVar[str] = "partition_stopped"
    partition: TopicPartition
    deleted: bool  # with its log


@attrs.frozen(kw_only=True)
class DuplicateRecognised(Event):
    """An idempotent producer sent again what is in the log: it hears where, and nothing is
    written.
    """

    name: ClassVar[str] = "duplicate_recognised"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    base_offset: Offset  # of that batch
    last_offset: Offset  # inclusive


@attrs.frozen(kw_only=True)
class IsrChangeProposed(Event):
    """A leader asks the controller for another ISR (AlterPartition, KIP-497), and why."""

    name: ClassVar[str] = "isr_change_proposed"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: tuple[int, ...]  # as proposed
    leaving: tuple[int, ...]  # who is to go
    joining: tuple[int, ...]  # who is to come
    high_watermark: Offset
    log_end_offset: Offset
    lag: int  # records the furthest behind of those that leave or join lacks
    lag_ms: int = -1  # and since when it has lacked any


@attrs.frozen(kw_only=True)
class IsrChangeRefused(Event):
    """The controller has said no; the leader goes on with the ISR it has, or asks again."""

    name: ClassVar[str] = "isr_change_refused"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    partition_epoch: int
    error: str
    isr: tuple[int, ...] = ()


@attrs.frozen(kw_only=True)
class IsrChanged(Event):
    """The controller has another ISR for a partition: the leader's wish, or a broker was fenced."""

    name: ClassVar[str] = "isr_changed"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: tuple[int, ...]
    previous_isr: tuple[int, ...] = ()  # the one before
