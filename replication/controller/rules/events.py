"""The events that follow from the records of one decision.

They are emitted when the high watermark has passed the records, so that they are durable.
"""

from collections.abc import Collection, Iterable, Iterator

from replication.events import (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    ControlledShutdownStarted,
    Event,
    IsrChanged,
    LeaderElected,
    PartitionOffline,
    TopicCreated,
    TopicDeleted,
)
from replication.metadata.rules.image import MetadataImage, PartitionRegistration
from replication.metadata.rules.records import LeaderRecoveryState
from replication.wire.metadata import NO_LEADER
from replication.wire.metadata_records import (
    NO_LEADER_CHANGE,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from storage.types import TopicPartition


def events_of(
    records: Iterable[MetadataRecord],
    before: MetadataImage,
    after: MetadataImage,
    *,
    cause: str,
    silent_ms: int = -1,
) -> Iterator[Event]:
    """Yield the events; `silent_ms` is the time without a heartbeat of a fenced broker.

    A decision of Apache Kafka's may change one partition twice: each event is of its own record.
    """
    changed: dict[TopicPartition, PartitionRegistration] = {}
    for record in records:
        match record:
            case RegisterBrokerRecord():
                known = before.broker(record.broker_id)
                yield BrokerRegistered(
                    broker=record.broker_id,
                    broker_epoch=record.broker_epoch,
                    incarnation_id=record.incarnation_id,
                    previous_broker_epoch=-1 if known is None else known.broker_epoch,
                )
                if known is not None and not known.fenced and record.fenced:
                    yield _fenced(record.broker_id, record.broker_epoch, cause, silent_ms)
            case BrokerRegistrationChangeRecord():
                yield from _broker_changed(record, before, cause, silent_ms)
            case TopicRecord():
                partitions = after.topics[record.name].partitions
                yield TopicCreated(
                    topic=record.name,
                    topic_id=record.topic_id,
                    partitions=len(partitions),
                    replication_factor=max(len(each.replicas) for each in partitions.values()),
                )
            case RemoveTopicRecord():
                name = before.topic_names_by_id[record.topic_id]
                yield TopicDeleted(topic=name, topic_id=record.topic_id)
            case PartitionRecord():
                name = after.topic_names_by_id[record.topic_id]
                yield LeaderElected(
                    partition=TopicPartition(name, record.partition_id),
                    leader=record.leader,
                    leader_epoch=record.leader_epoch,
                    isr=tuple(record.isr),
                    cause="created",
                    reason="created",
                )
            case PartitionChangeRecord():
                where = TopicPartition(
                    after.topic_names_by_id[record.topic_id], record.partition_id
                )
                was = changed.get(where) or before.partition(where)
                assert was is not None, "a changed partition exists before"
                changed[where] = now = was.merge(record)
                yield from _partition_changed(record, where, was, now, before, after, cause)
            case _:
                pass  # the other records have no event


def _fenced(broker_id: int, broker_epoch: int, cause: str, silent_ms: int) -> BrokerFenced:
    return BrokerFenced(
        broker=broker_id, broker_epoch=broker_epoch, cause=cause, since_heartbeat_ms=silent_ms
    )


def _broker_changed(
    record: BrokerRegistrationChangeRecord, before: MetadataImage, cause: str, silent_ms: int
) -> Iterator[Event]:
    if record.fenced > 0:
        yield _fenced(record.broker_id, record.broker_epoch, cause, silent_ms)
    elif record.fenced < 0:
        yield BrokerUnfenced(broker=record.broker_id, broker_epoch=record.broker_epoch)
    if record.in_controlled_shutdown:
        leading = sum(
            partition.leader == record.broker_id for _, _, partition in before.partitions()
        )
        yield ControlledShutdownStarted(
            broker=record.broker_id, broker_epoch=record.broker_epoch, leading=leading
        )


def _partition_changed(  # noqa: PLR0917 - the partition and the image, before and after
    record: PartitionChangeRecord,
    topic_partition: TopicPartition,
    was: PartitionRegistration,
    now: PartitionRegistration,
    before: MetadataImage,
    after: MetadataImage,
    cause: str,
) -> Iterator[Event]:
    if record.leader == NO_LEADER:
        yield PartitionOffline(
            partition=topic_partition, leader_epoch=now.leader_epoch, isr=now.isr, cause=cause
        )
    elif record.leader != NO_LEADER_CHANGE:
        yield LeaderElected(
            partition=topic_partition,
            leader=now.leader,
            leader_epoch=now.leader_epoch,
            isr=now.isr,
            cause=_cause(was, now, _surely_whole(was, now, before, after)),
            previous_leader=was.leader,
            reason=_reason(was, now, before, after),
        )
    if record.isr is not None:
        yield IsrChanged(
            partition=topic_partition,
            leader_epoch=now.leader_epoch,
            partition_epoch=now.partition_epoch,
            isr=now.isr,
            previous_isr=was.isr,
        )


def _surely_whole(
    was: PartitionRegistration,
    now: PartitionRegistration,
    before: MetadataImage,
    after: MetadataImage,
) -> list[int]:
    """Return the replicas that were eligible and still were when the leader was elected.

    A broker that has not been shut down cleanly leaves the ELR by the same decision by which it
    registers. A clean one that registers leads to no election: it was fenced, and stays so.
    """
    return [
        replica
        for replica in was.elr
        if replica in now.replicas and _epoch(replica, before) == _epoch(replica, after)
    ]


def _epoch(broker_id: int, image: MetadataImage) -> int:
    broker = image.broker(broker_id)
    return -1 if broker is None else broker.broker_epoch


def _cause(
    was: PartitionRegistration, now: PartitionRegistration, eligible: Collection[int]
) -> str:
    """Return how this leader was elected, as `replication.controller.rules.election` names it."""
    if now.leader in was.isr:
        return "clean"
    if now.leader in was.elr:
        return "eligible"
    if now.leader_recovery_state is LeaderRecoveryState.RECOVERED:
        return "clean"  # it joined the ISR by the same change, which completed a reassignment
    return "last known" if now.leader in was.last_known_elr and not eligible else "unclean"


def _reason(
    was: PartitionRegistration,
    now: PartitionRegistration,
    before: MetadataImage,
    after: MetadataImage,
) -> str:
    """Return why there was an election: what had become of the leader before."""
    leader = was.leader
    if leader == NO_LEADER:
        return "no leader before"
    if _epoch(leader, before) != _epoch(leader, after):
        return "leader registered again" if after.broker(leader) else "leader unregistered"
    if not after.is_alive(leader):
        return "leader fenced"
    if not after.may_join_isr(leader):
        return "leader shuts down"
    if leader not in now.replicas:
        return "leader moved away"
    if not after.is_in_place(now, leader):
        return "log directory of leader lost"
    if leader not in now.isr:
        return "leader out of sync"
    if now.leader != leader:
        return "preferred"
    return "replicas changed" if was.replicas != now.replicas else "leader epoch raised"
