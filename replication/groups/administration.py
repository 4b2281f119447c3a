"""The requests of administrators about groups: their offsets, a list, deletion."""

from collections.abc import Iterable, Mapping

import attrs

from replication.errors import ErrorCode, KafkaError
from replication.groups.coordinator import GroupCoordinator
from replication.groups.forgetting import tombstones
from replication.groups.rules.group import GroupState
from replication.groups.rules.offsets import CommittedOffset
from replication.groups.shard import HostedGroup
from replication.net.pace import in_steps
from replication.steps import Steps
from storage.types import TopicPartition

CLASSIC = "classic"
"""The type of every group here; KIP-848's is another."""


@attrs.frozen
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
) -> Steps[dict[TopicPartition, FetchedOffset]]:
    """Return the offsets of `partitions`, or all; raise KafkaError as `serving` does."""
    hosted = coordinator.serving(group_id).groups.get(group_id)
    if hosted is None:
        return dict.fromkeys(partitions or (), FetchedOffset())
    offsets = hosted.offsets
    found: dict[TopicPartition, FetchedOffset] = {}
    for each in list(offsets.partitions() if partitions is None else partitions):
        yield 1 + (offsets.open_transactions if require_stable else 0)
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
    group = hosted.group
    if group.state is not GroupState.EMPTY and not group.is_consumers:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"{group_id} has members")
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
    if not wanted_types or CLASSIC in wanted_types:
        for hosted in coordinator.hosted_groups():
            if not wanted_states or hosted.group.state.value.lower() in wanted_states:
                found.append(hosted)
            yield 1
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE, found
