"""Commits: offsets of members, of consumers without a group, and of transactions (KIP-98, KIP-447).

commit       checked ── being written ── written ──> committed
transaction  checked ── pending ── written ──> pending until the transaction ends
                                └── failed ──> as before
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

from replication.coordinator.rules import KeyAndValue
from replication.errors import ErrorCode, KafkaError
from replication.groups.coordinator import GroupCoordinator
from replication.groups.rules.consumer_group.membership import commit_faults
from replication.groups.rules.group import Group
from replication.groups.rules.offsets import CommittedOffset, commit_error, transaction_error
from replication.groups.rules.presence import commit
from replication.groups.rules.records import offset_record
from replication.groups.shard import HostedGroup
from replication.net.pace import in_steps
from replication.steps import Steps, each_of
from storage.producers.verification import VerificationGuard
from storage.types import TopicPartition

Verify = Callable[[TopicPartition], Awaitable[VerificationGuard | None]]
"""Verifies the transaction in the partition with the group's offsets. Returns the guard of a batch
that opens the transaction there; raises KafkaError where the transaction is not ongoing.
"""

Outcome = ErrorCode | dict[TopicPartition, ErrorCode]
"""The error of a whole commit, or those of each of its partitions."""


async def commit_offsets(
    coordinator: GroupCoordinator,
    group_id: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    *,
    member_id: str,
    group_instance_id: str | None,
    generation: int,
    knows_epochs: bool,
) -> Outcome:
    """Commit offsets, and return once every replica in sync has them.

    `knows_epochs`: the request is one of KIP-848 and later (OffsetCommit 9).
    """
    try:
        coordinator.serving(group_id)
        records = await in_steps(_records(group_id, offsets))
        shard = coordinator.serving(group_id)
    except KafkaError as error:
        return error.code
    hosted = shard.groups.get(group_id)
    if hosted is None:
        if generation >= 0:
            return ErrorCode.GROUP_ID_NOT_FOUND if knows_epochs else ErrorCode.ILLEGAL_GENERATION
        hosted = shard.add(Group(group_id))
    faults = _faults_of(
        coordinator,
        hosted,
        offsets,
        member_id=member_id,
        group_instance_id=group_instance_id,
        generation=generation,
        from_old_client=not knows_epochs,
    )
    if isinstance(faults, dict):
        offsets = {each: offset for each, offset in offsets.items() if each not in faults}
    elif faults is not ErrorCode.NONE:
        return faults
    if not offsets:
        return faults
    hosted.offsets.begin(offsets)
    submission = hosted.log.submit([records[each] for each in offsets])
    await submission.wait()
    if submission.is_in_log:
        # A commit that was not replicated in time is in the log: the next coordinator will know it,
        # and a member that begins now must not begin before it.
        hosted.offsets.written(offsets, log_offset=submission.log_offset)
    else:
        hosted.offsets.failed(offsets)
    return _outcome(faults, offsets, commit_error(submission.error))


async def commit_in_transaction(
    coordinator: GroupCoordinator,
    group_id: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    *,
    producer: tuple[int, int],
    member_id: str,
    group_instance_id: str | None,
    generation: int,
    names_faults: bool,
    verify: Verify,
) -> Outcome:
    """Write offsets that are pending until the transaction of `producer` (id and epoch) ends.

    A member that its group no longer has is fenced. Without `names_faults` an unknown group and a
    stale member epoch are answered ILLEGAL_GENERATION. The offsets are pending before they are
    written: a consumer that takes the partition over meanwhile must not begin before them.
    """
    try:
        shard = coordinator.serving_members(group_id)
        records = await in_steps(_records(group_id, offsets))
        guard = await verify(shard.partition)
        shard = coordinator.serving_members(group_id)
    except KafkaError as refusal:
        return transaction_error(refusal.code)
    hosted = shard.groups.get(group_id)
    is_member = generation >= 0 or bool(member_id) or group_instance_id is not None
    if hosted is None:
        if is_member:
            return ErrorCode.GROUP_ID_NOT_FOUND if names_faults else ErrorCode.ILLEGAL_GENERATION
        hosted = shard.add(Group(group_id))
    faults: Outcome = ErrorCode.NONE
    if is_member:
        faults = _faults_of(
            coordinator,
            hosted,
            offsets,
            member_id=member_id,
            group_instance_id=group_instance_id,
            generation=generation,
        )
        hidden: set[ErrorCode] = set() if names_faults else {ErrorCode.STALE_MEMBER_EPOCH}
        if isinstance(faults, dict):
            faults = {each: _shown(error, hidden) for each, error in faults.items()}
            offsets = {each: offset for each, offset in offsets.items() if each not in faults}
        elif faults is not ErrorCode.NONE:
            return _shown(faults, hidden)
    if not offsets:
        return faults
    producer_id, _ = producer
    hosted.offsets.begin_pending(producer_id, offsets)
    written = [records[each] for each in offsets]
    submission = hosted.log.submit(written, producer=producer, guard=guard)
    await submission.wait()
    if submission.error is ErrorCode.NONE:
        hosted.offsets.pending_written(producer_id, offsets, log_offset=submission.log_offset)
    else:
        hosted.offsets.pending_failed(producer_id, offsets)
    return _outcome(faults, offsets, commit_error(submission.error))


def _shown(error: ErrorCode, hidden: Collection[ErrorCode]) -> ErrorCode:
    return ErrorCode.ILLEGAL_GENERATION if error in hidden else error


def _outcome(faults: Outcome, written: Iterable[TopicPartition], error: ErrorCode) -> Outcome:
    if isinstance(faults, dict):
        return faults | dict.fromkeys(written, error)
    return error


def _faults_of(
    coordinator: GroupCoordinator,
    hosted: HostedGroup,
    partitions: Iterable[TopicPartition],
    *,
    member_id: str,
    group_instance_id: str | None,
    generation: int,
    from_old_client: bool = False,
) -> Outcome:
    """Return the error of a commit; `generation` is the epoch of a member of a consumer group."""
    if hosted.consumers is not None:
        return commit_faults(
            hosted.consumers,
            partitions,
            coordinator.consumers.image(),
            member_id=member_id,
            member_epoch=generation,
            from_old_client=from_old_client,
        )
    return commit(
        hosted.machine,
        member_id=member_id,
        group_instance_id=group_instance_id,
        generation=generation,
        at=coordinator.at,
    )


def _records(
    group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
) -> Steps[dict[TopicPartition, KeyAndValue]]:
    """Return the records of a commit, which are made before it is checked: that takes no pause."""
    records = yield from each_of(
        lambda each: offset_record(group_id, each, offsets[each].value()), list(offsets)
    )
    return dict(zip(offsets, records, strict=True))
