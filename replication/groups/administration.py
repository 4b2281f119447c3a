"""The requests of administrators about groups: their offsets, a list, deletion."""

from collections.abc import Iterable, Mapping

from replication.errors import ErrorCode, KafkaError
from replication.groups.coordinator import GroupCoordinator
from replication.groups.forgetting import tombstones
from replication.groups.rules.consumer_group.membership import fetch_fault
from replication.groups.rules.group import GroupState
from replication.groups.rules.offsets import CommittedOffset
from replication.groups.shard import HostedGroup
from replication.net.pace import in_steps
from replication.steps import Steps
from replication.wire.list_groups import CLASSIC, CONSUMER
from storage.attributes import frozen
from storage.types import TopicPartition


@frozen
class FetchedOffset:
    """The committed offset of a partition; None without one."""

    committed: CommittedOffset | None = None
    error: ErrorCode = ErrorCode.NONE


def fetch_offsets(
    coordinator: GroupCoordinator,
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    require_stable: bool,
    member_id: str | None = None,
    member_epoch: int = -1,
) -> Steps[dict[TopicPartition, FetchedOffset]]:
    """Return the offsets of `partitions`, or all; raise KafkaError as `serving` does, and where a
    member of a consumer group comes with another epoch.
    """
    hosted = coordinator.serving(group_id).groups.get(group_id)
    if hosted is None:
        return dict.fromkeys(partitions or (), FetchedOffset())
    if hosted.consumers is not None and (member_id is not None or member_epoch >= 0):
        error = fetch_fault(hosted.consumers, member_id=member_id or "", member_epoch=member_epoch)
        if error is not ErrorCode.NONE:
            raise KafkaError(error, f"{member_id} is no member of {group_id} at that epoch")
    offsets = hosted.offsets
    found: dict[TopicPartition, FetchedOffset] = {}
    for each in list(offsets.partitions() if partitions is None else partitions):
        yield 1 + (offsets.pending_commits if require_stable else 0)
        unstable = require_stable and offsets.is_unstable(each)
        found[each] = (
            FetchedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
            if unstable
            else FetchedOffset(offsets.get(each))
        )
    return found


async def delete_offsets(
    coordinator: GroupCoordinator, group_id: str, partitions: Iterable[TopicPartition]
) -> Mapping[TopicPartition, ErrorCode]:
    """Delete committed offsets and return the outcomes; raise KafkaError for the whole group."""
    coordinator.serving_members(group_id)
    made = await in_steps(tombstones(group_id, list(partitions)))
    shard = coordinator.serving_members(group_id)
    hosted = shard.groups.get(group_id)
    if hosted is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
    group, consumers = hosted.group, hosted.consumers
    if group.state is not GroupState.EMPTY and not group.is_consumers:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"{group_id} has members")
    if consumers is not None:
        subscribed = consumers.subscribed_topics()
        kept = {each: None for each in made if each.topic in subscribed}
    else:
        kept = {
            each: None
            for each in made
            if group.state is not GroupState.EMPTY and group.is_subscribed(each.topic)
        }
    free = {each: record for each, record in made.items() if each not in kept}
    error = await coordinator.forgetting.delete_offsets(shard, hosted, free)
    if error is not ErrorCode.NONE:
        raise KafkaError(error, f"the offsets of {group_id} could not be deleted")
    return dict.fromkeys(kept, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC) | dict.fromkeys(
        free, ErrorCode.NONE
    )


async def delete_group(coordinator: GroupCoordinator, group_id: str) -> ErrorCode:
    try:
        shard = coordinator.serving(group_id)
    except KafkaError as error:
        return error.code
    return await coordinator.forgetting.delete_group(shard, group_id)


def type_of(hosted: HostedGroup) -> str:
    return CLASSIC if hosted.consumers is None else CONSUMER


def listed(
    coordinator: GroupCoordinator, states: Iterable[str], types: Iterable[str]
) -> Steps[tuple[ErrorCode, list[HostedGroup]]]:
    """Return the groups of this broker in one of `states` and of one of `types`; empty means any.

    The error says whether some groups are still being loaded.
    """
    wanted_states = {each.lower() for each in states}
    wanted_types = {each.lower() for each in types}
    loading = any(not shard.ready for shard in coordinator.shards.values())
    found = []
    for hosted in coordinator.hosted_groups():
        is_wanted = not wanted_types or type_of(hosted) in wanted_types
        if is_wanted and (not wanted_states or hosted.state_name.lower() in wanted_states):
            found.append(hosted)
        yield 1
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE, found
