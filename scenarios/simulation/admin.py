"""What a story's administrator asks for, over the wire; each answer is an error code or more.

alter_topic  delete_topic       any broker forwards it to the controller
delete_records  list_offset     the partition's leader answers
"""

from collections.abc import Mapping

from replication.config import ConfigOperation
from replication.errors import ErrorCode
from replication.wire.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from replication.wire.delete_topics import DeleteTopicsRequest, DeleteTopicState
from replication.wire.describe_configs import ResourceType
from replication.wire.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from scenarios.simulation.client import PATIENCE_MS, StoryClient, closing
from storage.types import Offset, TopicPartition

ALTER_CONFIGS_VERSION = 1
DELETE_TOPICS_VERSION = 6
DELETE_RECORDS_VERSION = 2


async def alter_topic(client: StoryClient, topic: str, configs: Mapping[str, str]) -> ErrorCode:
    resource = AlterConfigsResource(
        resource_type=ResourceType.TOPIC,
        resource_name=topic,
        configs=[
            AlterableConfig(name=key, config_operation=ConfigOperation.SET, value=value)
            for key, value in configs.items()
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    response = await client.ask_somebody(
        lambda rpc: rpc.call(request, version=ALTER_CONFIGS_VERSION, timeout_ms=PATIENCE_MS)
    )
    return ErrorCode.of(response.responses[0].error_code)


async def delete_topic(client: StoryClient, topic: str) -> ErrorCode:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=PATIENCE_MS)
    response = await client.ask_somebody(
        lambda rpc: rpc.call(request, version=DELETE_TOPICS_VERSION, timeout_ms=PATIENCE_MS)
    )
    return ErrorCode.of(response.responses[0].error_code)


async def delete_records(
    client: StoryClient, partition: TopicPartition, offset: Offset
) -> tuple[ErrorCode, Offset]:
    """The partition begins at `offset`, or at its high watermark for -1: the low watermark."""
    wanted = DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=partition.topic, partitions=[wanted])],
        timeout_ms=PATIENCE_MS,
    )
    async with closing(await client.connect_to_leader(partition)) as rpc:
        response = await rpc.call(request, version=DELETE_RECORDS_VERSION, timeout_ms=PATIENCE_MS)
    (answer,) = response.topics[0].partitions
    return ErrorCode.of(answer.error_code), answer.low_watermark
