"""The records that our clients should receive, read from the disks without a client in between.

    all records of a partition      as its leader has them, up to its high watermark
    the committed ones              those of a transaction count once its marker says so

Deleted records are not required, though they may be there: on a replica that has not heard of the
deletion, or again, if the leader that had deleted them and answered so was killed before it wrote
that down (KIP-107).

This module uses no index of aborted transactions and no last stable offset: a producer's records
are held back until its marker comes, and are kept or dropped as that says.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from replication.events import GroupMemberLeft
from replication.groups.rules import records as groups
from replication.groups.rules.consumer_group import records as consumer_groups
from replication.groups.rules.consumer_group.group import NO_ASSIGNMENT
from replication.groups.rules.consumer_group.migration import assigned_in
from replication.groups.shard import HostedGroup
from replication.leader.partition import ReplicaSnapshot
from replication.metadata.rules.image import MetadataImage
from scenarios.checkers import client_accounts as accounts
from scenarios.checkers.anomalies import mistakes
from scenarios.checkers.client_accounts import FinalRecords
from scenarios.checkers.group_owners import (
    GroupRecord,
    SettlingGroup,
    mistakes_in_groups,
    waiting,
)
from scenarios.story.log_drawing import whole_batches
from scenarios.story.observed import (
    final_operations,
    reader_operations,
    transaction_operation,
)
from scenarios.story.repeated import copied_twice, repeated_values
from scenarios.story.script import ScriptError
from scenarios.story.stage import Stage
from scenarios.world.clients.copying import copied
from scenarios.world.clients.reading import Reader
from scenarios.world.clients.witness import Given
from scenarios.world.cluster import partition_directory
from scenarios.world.history import History
from scenarios.world.trace import LateBytes
from storage.batch.record_batch import BatchHeader
from storage.batch.records import ControlRecordType, Record, decode_batch, read_marker
from storage.types import Offset, TopicPartition

K = TypeVar("K")
V = TypeVar("V")

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


def _leader(stage: Stage, partition: TopicPartition) -> tuple[str, ReplicaSnapshot] | None:
    leader = stage.cluster.leader(partition)
    manager = stage.cluster.replica_managers.get(leader or "")
    snapshot = None if manager is None else manager.hosted.snapshot(partition)
    return None if leader is None or snapshot is None else (leader, snapshot)


def is_led(stage: Stage, partition: TopicPartition) -> bool:
    return _leader(stage, partition) is not None


def _batches(stage: Stage, partition: TopicPartition) -> Iterator[tuple[BatchHeader, memoryview]]:
    if (led := _leader(stage, partition)) is None:
        raise ScriptError(f"nobody leads {partition}")
    leader, snapshot = led
    disk = stage.cluster.disk(leader)
    for header, batch in whole_batches(disk, partition_directory(disk, leader, partition)):
        if header.last_offset >= snapshot.high_watermark:
            return
        yield header, batch


def records_on_disk(stage: Stage, partition: TopicPartition) -> tuple[FinalRecords, bool]:
    """Return a partition's records, and whether a transaction is open."""
    everything: dict[Offset, str] = {}
    begins = stage.checkers.replicas.latest_log_start(partition)

    def records_of(batch: memoryview) -> dict[Offset, str]:
        records = {
            each.offset: (each.value or b"").decode()
            for each in decode_batch(batch)
            if each.offset >= begins
        }
        everything.update(records)
        return records

    committed, is_open = _committed(_batches(stage, partition), records_of)
    return FinalRecords(all=everything, committed=dict(sorted(committed.items()))), is_open


def _committed(
    batches: Iterable[tuple[BatchHeader, memoryview]], read: Callable[[memoryview], dict[K, V]]
) -> tuple[dict[K, V], bool]:
    """Return what is committed of that which `read` finds in the batches, in the order in which it
    was; and whether a transaction is open.
    """
    committed: dict[K, V] = {}
    held_back: dict[int, dict[K, V]] = {}
    for header, batch in batches:
        if header.is_control:
            of_producer = held_back.pop(header.producer_id, {})
            marker = read_marker(batch)
            if marker is not None and marker.type is ControlRecordType.COMMIT:
                committed |= of_producer
        elif header.is_transactional:
            held_back.setdefault(header.producer_id, {}).update(read(batch))
        else:
            committed |= read(batch)
    return committed, bool(held_back)


def partitions_of(stage: Stage, topic: str) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    while stage.cluster.partition(new := TopicPartition(topic, len(found))) is not None:
        found.append(new)
    return found


def may_have_lost(stage: Stage, partition: TopicPartition) -> bool:
    """Return whether a partition, or what brokers know of our clients' progress in it, may be lost
    or belong to another topic of its name.
    """
    if partition.topic in stage.remade:
        return True
    internal = [each for topic in (OFFSETS, TRANSACTIONS) for each in partitions_of(stage, topic)]
    return any(map(stage.checkers.may_have_lost, [partition, *internal]))


def read_by_our_clients(stage: Stage) -> list[TopicPartition]:
    readers = stage.programs.readers
    by_groups = {topic for each in readers for topic in each.topics}
    partitions = {each for topic in by_groups for each in partitions_of(stage, topic)}
    return sorted(partitions | {partition for each in readers for partition in each.partitions})


def written_in_transactions(stage: Stage) -> set[TopicPartition]:
    sent = {
        batch.partition for each in stage.programs.witness.transactions for batch in each.batches
    }
    return sent | {each.target for each in stage.programs.copiers}


# The conditions that `drain` waits for.


def nothing_is_open(stage: Stage) -> bool:
    return not any(
        records_on_disk(stage, each)[1]
        for each in written_in_transactions(stage)
        if not may_have_lost(stage, each)  # a transaction whose coordinator lost it stays open
    )


def everything_is_read(stage: Stage) -> bool:
    """Return whether each group that has members now, and each reader by itself, has read all. A
    partition that was added may not be led yet.
    """
    read = read_by_our_clients(stage)
    if not all(is_led(stage, each) for each in read) or any(unread(stage, each) for each in read):
        return False
    running = stage.programs.running
    readers = [each for each in stage.programs.readers if running.get(each.name) is each]
    return all(
        has_read_everything(stage, reader, partition)
        for reader in readers
        for partition in reader.partitions
    )


def members_that_wait(stage: Stage) -> list[str]:
    """Return what members of groups wait for: nothing once each has what its target says."""
    running: dict[str, list[Reader]] = {}
    for each in stage.programs.readers:
        if each.group is not None and stage.programs.running.get(each.name) is each:
            running.setdefault(each.group, []).append(each)
    return [
        found
        for group, readers in sorted(running.items())
        for found in _waiting_in(stage, group, readers)
    ]


def _waiting_in(stage: Stage, group: str, readers: Sequence[Reader]) -> Iterator[str]:
    hosted = _hosted(stage, group)
    if hosted is None:
        yield f"{group} has no coordinator"
        return
    topics = {topic for each in readers for topic in each.topics}
    yield from waiting(
        SettlingGroup(
            group=group,
            state=hosted.state_name,
            target=_target_of(hosted, stage.cluster.image),
            has=dict(each.membership for each in readers if each.membership is not None),
            partitions=frozenset(each for topic in topics for each in partitions_of(stage, topic)),
        )
    )


def _hosted(stage: Stage, group: str) -> HostedGroup | None:
    """Return the group as the broker has it that leads its partition."""
    for partition in partitions_of(stage, OFFSETS):
        broker = stage.cluster.brokers.get(stage.cluster.leader(partition) or "")
        shard = None if broker is None else broker.groups.shards.get(partition.partition)
        if shard is not None and group in shard.groups:
            return shard.groups[group]
    return None


def _target_of(hosted: HostedGroup, image: MetadataImage) -> dict[str, frozenset[TopicPartition]]:
    if hosted.consumers is None:
        assigned = {
            each.member_id: assigned_in(each.assignment, image)
            for each in hosted.group.members.values()
        }
    else:
        targets = hosted.consumers.target
        assigned = {each: targets.get(each, NO_ASSIGNMENT) for each in hosted.consumers.members}
    return {
        member_id: frozenset(
            TopicPartition(image.topic_names_by_id.get(topic_id, str(topic_id)), number)
            for topic_id, numbers in assignment.items()
            for number in numbers
        )
        for member_id, assignment in assigned.items()
    }


def has_read_everything(stage: Stage, reader: Reader, partition: TopicPartition) -> bool:
    if may_have_lost(stage, partition):
        return True
    there = records_on_disk(stage, partition)[0].visible(read_committed=reader.read_committed)
    given = [
        each.offset
        for each in stage.programs.witness.happened[partition]
        if isinstance(each, Given) and each.reader == reader.name
    ]
    return not there or (bool(given) and given[-1] >= max(there))


def unread(stage: Stage, partition: TopicPartition) -> list[str]:
    """Return what groups have not read whose members stayed to the end. A member that stays may not
    have heard of the partition yet.
    """
    if may_have_lost(stage, partition):
        return []
    there, _ = records_on_disk(stage, partition)
    happened = stage.programs.witness.happened[partition]
    groups = {
        each.group: there.visible(read_committed=each.read_committed)
        for each in stage.programs.readers
        if each in stage.programs.drained and partition.topic in each.topics
    }
    return [
        wrong
        for group, visible in groups.items()
        if group is not None
        for wrong in accounts.unread(happened, visible, group)
    ]


def everything_is_copied(stage: Stage) -> bool:
    """Return whether copy loops have copied all. A partition that was added may not be led yet."""
    topics = {each.source for each in stage.programs.copiers}
    sources = [each for topic in topics for each in partitions_of(stage, topic)]
    return all(is_led(stage, each) for each in sources) and not any(
        found.startswith("not copied") for _, found in copies(stage)
    )


def copies(stage: Stage) -> Iterator[tuple[TopicPartition, str]]:
    """Yield what is wrong with each copy whose copiers stayed to the end."""
    made = {(each.source, each.target) for each in stage.programs.copiers}
    drained = {
        (each.source, each.target)
        for each in stage.programs.copiers
        if each in stage.programs.drained
    }
    for source, target in sorted(made):
        sources = partitions_of(stage, source)
        if any(may_have_lost(stage, each) for each in [*sources, target]):
            continue
        there = {
            str(each): list(records_on_disk(stage, each)[0].committed.values()) for each in sources
        }
        sent = {value for batch in stage.batches for value in batch.values}
        copy = list(records_on_disk(stage, target)[0].committed.values())
        repeated = repeated_values(stage.batches, trimmed=source in stage.trimmed)
        for wrong in accounts.mistakes_about_copy(there, sent, copy, repeated=repeated):
            if (source, target) in drained or not wrong.startswith("not copied"):
                yield target, wrong


# The mistakes that `judge-clients` reports.


def wrongs(stage: Stage) -> Iterator[tuple[TopicPartition, list[str]]]:
    for partition in read_by_our_clients(stage):
        if not may_have_lost(stage, partition):
            there, _ = records_on_disk(stage, partition)
            happened = stage.programs.witness.happened[partition]
            yield (
                partition,
                accounts.mistakes_about_groups(happened, there) + unread(stage, partition),
            )
    for mistake in mistakes(observed_history(stage)):
        yield mistake.partition, [str(mistake)]
    for transaction in stage.programs.witness.transactions:
        for wrong in accounts.with_a_failure(transaction):
            yield transaction.batches[0].partition, [wrong]
    for partition, wrong in copies(stage):
        yield partition, [wrong]
    for partition in partitions_of(stage, OFFSETS):
        if not may_have_lost(stage, partition):
            yield partition, _wrongs_in_groups(stage, partition)


def wrongs_of_coordinators(stage: Stage) -> list[str]:
    """Return where a coordinator of groups knows another offset than its log says is committed.

    A coordinator that loads knows what its log says, and the log must not be written to.
    """
    wrong = []
    for partition in partitions_of(stage, OFFSETS):
        broker = stage.cluster.brokers.get(stage.cluster.leader(partition) or "")
        shard = None if broker is None else broker.groups.shards.get(partition.partition)
        if shard is None or not shard.ready:
            continue
        known = {
            (group, each): committed.offset
            for group, hosted in shard
            for each in hosted.offsets.partitions()
            if (committed := hosted.offsets.get(each)) is not None
        }
        logged = committed_offsets(_batches(stage, partition))
        wrong += [
            f"{partition} has {logged.get(key)} committed by {key[0]} in {key[1]}, and its"
            f" coordinator knows {known.get(key)}"
            for key in sorted(known.keys() | logged.keys())
            if known.get(key) != logged.get(key)
        ]
    return wrong


def committed_offsets(
    batches: Iterable[tuple[BatchHeader, memoryview]],
) -> dict[tuple[str, TopicPartition], Offset]:
    """Return what groups have committed by these batches, in the order of the log."""

    def offsets_of(batch: memoryview) -> dict[tuple[str, TopicPartition], Offset | None]:
        entries = [groups.parse(each.key, each.value) for each in decode_batch(batch)]
        return {
            (each.group, each.partition): None if each.value is None else each.value.offset
            for each in entries
            if isinstance(each, groups.OffsetEntry)
        }

    committed, _ = _committed(batches, offsets_of)
    return {key: offset for key, offset in committed.items() if offset is not None}


def observed_history(stage: Stage) -> History:
    """Return what our clients did and received in the partitions that have lost nothing."""
    transactions = stage.programs.witness.transactions
    partitions = {*read_by_our_clients(stage), *written_in_transactions(stage)}
    partitions |= {partition for each in transactions for partition, _, _ in each.copied}
    sound = {each for each in partitions if not may_have_lost(stage, each)}
    # A copier sends again what it has sent in a transaction that failed: the last one counts.
    sent_last = {
        (batch.partition, value): batch
        for each in transactions
        for batch in each.batches
        for value in batch.values
    }
    counted = frozenset(map(id, sent_last.values()))
    operations = [
        transaction_operation(each, sound, counted)
        for each in transactions
        if all(batch.partition in sound for batch in each.batches)
    ]
    log_starts = {each: stage.checkers.replicas.latest_log_start(each) for each in sound}
    for partition, log_start in sorted(log_starts.items()):
        happened = stage.programs.witness.happened[partition]
        operations += reader_operations(partition, happened, log_start=log_start)
        operations += final_operations(partition, records_on_disk(stage, partition)[0])
    repeated = repeated_values(stage.batches, trimmed=bool(stage.trimmed))
    again = copied_twice(transactions, log_starts)
    return History(
        operations=operations,
        log_starts=log_starts,
        compacted=[each for each in sound if each.topic in stage.compacted],
        repeated=repeated | {copied(value) for value in repeated | again},
        written_by_others=sound,
    )


def _wrongs_in_groups(stage: Stage, partition: TopicPartition) -> list[str]:
    records = [
        entry
        for header, batch in _batches(stage, partition)
        # What is committed in a transaction counts when the transaction ends.
        if not header.is_control and not header.is_transactional
        for each in decode_batch(batch)
        if (entry := _group_record(each)) is not None
        # A log that has lost its end is read again from there.
        and not (isinstance(entry, groups.OffsetEntry) and may_have_lost(stage, entry.partition))
    ]
    happened = stage.programs.witness.happened
    topic_ids = {
        each.topic: topic_id
        for each in happened
        if each.topic not in stage.remade
        and (topic_id := stage.cluster.image.topic_id(each.topic)) is not None
    }
    events = [entry.event for entry in stage.world.trace.entries]
    left = {each.member for each in events if isinstance(each, GroupMemberLeft)}
    late = {each.source for each in events if isinstance(each, LateBytes)}
    may_come_late = {each.group or "" for each in stage.programs.readers if each.name in late}
    return mistakes_in_groups(records, happened, topic_ids, left, may_come_late)


def _group_record(record: Record) -> GroupRecord | None:
    return consumer_groups.parse(record.key, record.value) or groups.parse(record.key, record.value)
