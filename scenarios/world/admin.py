"""What a story's administrator asks for, over the wire; each answer is an error code or more.

alter_topic  add_partition  delete_topic       any broker forwards it to the controller
reassign  elect                 so too
alter_broker                    that broker, which has to approve of it, and forwards it
delete_records  list_offset     the partition's leader answers
"""

from collections.abc import Mapping, Sequence

from replication.config import ConfigOperation
from replication.errors import ErrorCode
from replication.wire.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from replication.wire.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from replication.wire.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from replication.wire.delete_topics import DeleteTopicsRequest, DeleteTopicState
from replication.wire.describe_configs import ConfigResourceType
from replication.wire.elect_leaders import ElectionTopic, ElectLeadersRequest
from replication.wire.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from scenarios.world.client import PATIENCE_MS, Address, StoryClient, closing
from storage.types import Offset, TopicPartition

ALTER_CONFIGS_VERSION = 1
CREATE_PARTITIONS_VERSION = 3
DELETE_TOPICS_VERSION = 6
DELETE_RECORDS_VERSION = 2
REASSIGN_VERSION = 1
ELECT_VERSION = 2
# An administrator waits less long for the controller than a story does for its records.
ADMIN_PATIENCE_MS = 2_000


async def alter_topic(client: StoryClient, topic: str, configs: Mapping[str, str]) -> ErrorCode:
    return await _alter(client, ConfigResourceType.TOPIC, topic, configs)


async def alter_broker(
    client: StoryClient, broker: int, at: Address, configs: Mapping[str, str]
) -> ErrorCode:
    return await _alter(client, ConfigResourceType.BROKER, str(broker), configs, among=[at])


async def _alter(
    client: StoryClient,
    resource_type: ConfigResourceType,
    name: str,
    configs: Mapping[str, str],
    among: Sequence[Address] = (),
) -> ErrorCode:
    resource = IncrementalAlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            IncrementalAlterableConfig(name=key, config_operation=ConfigOperation.SET, value=value)
            for key, value in configs.items()
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    response = await client.ask_somebody(
        lambda rpc: rpc.call(
            request, version=ALTER_CONFIGS_VERSION, timeout_ms=2 * ADMIN_PATIENCE_MS
        ),
        among,
    )
    return ErrorCode.of(response.responses[0].error_code)


async def add_partition(
    client: StoryClient, topic: str, count: int, replicas: list[int]
) -> ErrorCode:
    """Add partitions to a topic until it has `count`; the new one is placed on `replicas`."""
    wanted = CreatePartitionsTopic(
        name=topic, count=count, assignments=[CreatePartitionsAssignment(broker_ids=replicas)]
    )
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=ADMIN_PATIENCE_MS)
    response = await client.ask_somebody(
        lambda rpc: rpc.call(
            request, version=CREATE_PARTITIONS_VERSION, timeout_ms=2 * ADMIN_PATIENCE_MS
        )
    )
    return ErrorCode.of(response.results[0].error_code)


async def delete_topic(client: StoryClient, topic: str) -> ErrorCode:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=PATIENCE_MS)
    response = await client.ask_somebody(
        lambda rpc: rpc.call(request, version=DELETE_TOPICS_VERSION, timeout_ms=PATIENCE_MS)
    )
    return ErrorCode.of(response.responses[0].error_code)


async def reassign(
    client: StoryClient, partition: TopicPartition, replicas: list[int] | None
) -> ErrorCode:
    """Move a partition to these replicas; None cancels a move."""
    wanted = ReassignablePartition(partition_index=partition.partition, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=ADMIN_PATIENCE_MS,
        topics=[ReassignableTopic(name=partition.topic, partitions=[wanted])],
    )
    response = await client.ask_somebody(
        lambda rpc: rpc.call(request, version=REASSIGN_VERSION, timeout_ms=2 * ADMIN_PATIENCE_MS)
    )
    if response.error_code != ErrorCode.NONE:
        return ErrorCode.of(response.error_code)
    return ErrorCode.of(response.responses[0].partitions[0].error_code)


async def elect(client: StoryClient, partition: TopicPartition, kind: int) -> ErrorCode:
    wanted = ElectionTopic(topic=partition.topic, partitions=[partition.partition])
    request = ElectLeadersRequest(
        election_type=kind, topic_partitions=[wanted], timeout_ms=ADMIN_PATIENCE_MS
    )
    response = await client.ask_somebody(
        lambda rpc: rpc.call(request, version=ELECT_VERSION, timeout_ms=2 * ADMIN_PATIENCE_MS)
    )
    if response.error_code != ErrorCode.NONE:
        return ErrorCode.of(response.error_code)
    return ErrorCode.of(response.replica_election_results[0].partition_result[0].error_code)


async def delete_records(
    client: StoryClient, partition: TopicPartition, offset: Offset
) -> tuple[ErrorCode, Offset]:
    """Delete the records before `offset`, or all committed ones for -1; return the low watermark."""
    wanted = DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=partition.topic, partitions=[wanted])],
        timeout_ms=PATIENCE_MS,
    )
    async with closing(await client.connect_to_leader(partition)) as rpc:
        response = await rpc.call(request, version=DELETE_RECORDS_VERSION, timeout_ms=PATIENCE_MS)
    (answer,) = response.topics[0].partitions
    return ErrorCode.of(answer.error_code), answer.low_watermark
