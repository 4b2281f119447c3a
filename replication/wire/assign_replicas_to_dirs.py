"""AssignReplicasToDirs (KIP-858): a broker reports the log directory of each of its replicas."""

from replication.wire.schema import array, define, int16, int32, int64, uuid


@define(kw_only=True)
class AssignedPartitionData:
    partition_index: int = int32()


@define(kw_only=True)
class AssignedTopicData:
    topic_id: bytes = uuid()
    partitions: list[AssignedPartitionData] = array(AssignedPartitionData)


@define(kw_only=True)
class DirectoryData:
    id_: bytes = uuid()
    topics: list[AssignedTopicData] = array(AssignedTopicData)


@define(kw_only=True)
class AssignReplicasToDirsRequest:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    directories: list[DirectoryData] = array(DirectoryData)


@define(kw_only=True)
class AssignedPartitionResult:
    partition_index: int = int32()
    error_code: int = int16()


@define(kw_only=True)
class TopicResult:
    topic_id: bytes = uuid()
    partitions: list[AssignedPartitionResult] = array(AssignedPartitionResult)


@define(kw_only=True)
class DirectoryResult:
    id_: bytes = uuid()
    topics: list[TopicResult] = array(TopicResult)


@define(kw_only=True)
class AssignReplicasToDirsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    directories: list[DirectoryResult] = array(DirectoryResult)
