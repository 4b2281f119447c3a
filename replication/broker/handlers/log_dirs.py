"""DescribeLogDirs: the logs in each log directory, their sizes, and the space of its volume.

    directory     online: the size of its volume and the space left, and the logs asked for
                  offline: KAFKA_STORAGE_ERROR, and nothing else
    partition     the bytes of its segments; how far its end is behind its high watermark,
                  -1 where no replica runs on it

The metadata log is in the same directories but belongs to no topic, and is left out, as in Kafka.
(KafkaApis.handleDescribeLogDirsRequest, ReplicaManager.describeLogDirs.)
"""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from replication.broker.handlers.node import BrokerNode
from replication.errors import ErrorCode, KafkaError
from replication.metadata.rules.records import METADATA_PARTITION
from replication.net.pace import in_steps
from replication.server.server import RequestContext
from replication.steps import Steps, each_of
from replication.wire.describe_log_dirs import (
    NO_OFFSET_LAG,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from storage.filesystem import FileSystem, Space
from storage.log.log import Log
from storage.manager.log_directory import LogDirectory
from storage.types import TopicPartition


async def describe_log_dirs(
    node: BrokerNode, _: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    directories = node.logs.directories
    spaces = await node.offload(partial(_spaces, node.logs.file_system, directories))
    asked = await in_steps(_asked(request))
    results = []
    for directory, space in zip(directories, spaces, strict=True):
        results.append(await in_steps(_result(node, directory, space, asked)))
    return DescribeLogDirsResponse(results=results)


def _spaces(file_system: FileSystem, directories: Iterable[LogDirectory]) -> list[Space | None]:
    return [_space(file_system, each) for each in directories]


def _space(file_system: FileSystem, directory: LogDirectory) -> Space | None:
    if directory.failure is not None:
        return None
    try:
        return file_system.space(directory.path)
    except OSError:
        return None


def _asked(request: DescribeLogDirsRequest) -> Steps[set[TopicPartition] | None]:
    """Return the partitions that the request names; None for all."""
    if request.topics is None:
        return None
    asked: set[TopicPartition] = set()
    for topic in request.topics:
        asked.update((yield from each_of(partial(TopicPartition, topic.topic), topic.partitions)))
    return asked


def _logs(directory: LogDirectory, asked: set[TopicPartition] | None) -> Steps[list[Log]]:
    """Return the logs in `directory` that were asked for, in order of topic and partition."""
    logs = {}
    for partition, log in directory.open_logs():
        yield 1
        if partition != METADATA_PARTITION and (asked is None or partition in asked):
            logs[partition] = log
    return [logs[each] for each in sorted(logs)]


def _result(
    node: BrokerNode,
    directory: LogDirectory,
    space: Space | None,
    asked: set[TopicPartition] | None,
) -> Steps[DescribeLogDirsResult]:
    yield 1
    path = str(Path(directory.path).absolute())
    if directory.failure is not None:
        return DescribeLogDirsResult(log_dir=path, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    if space is None:
        return DescribeLogDirsResult(log_dir=path, error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    topics: dict[str, DescribeLogDirsTopic] = {}
    for log in (yield from _logs(directory, asked)):
        name = log.topic_partition.topic
        topic = topics.setdefault(name, DescribeLogDirsTopic(name=name))
        topic.partitions.append(_partition(node, log))
        yield 1 + len(log.segments)
    return DescribeLogDirsResult(
        log_dir=path,
        topics=list(topics.values()),
        total_bytes=space.total_bytes,
        usable_bytes=space.usable_bytes,
    )


def _partition(node: BrokerNode, log: Log) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=log.topic_partition.partition,
        partition_size=log.size,
        offset_lag=_offset_lag(node, log),
    )


def _offset_lag(node: BrokerNode, log: Log) -> int:
    try:
        node.replica_manager.hosted.get(log.topic_partition)
    except KafkaError:
        return NO_OFFSET_LAG
    return max(0, log.high_watermark - log.log_end_offset)
