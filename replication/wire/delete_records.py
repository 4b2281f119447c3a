"""DeleteRecords (KIP-107): deletes the records of partitions before an offset."""

from typing import Final

from replication.wire.schema import array, define, int16, int32, int64, string

HIGH_WATERMARK: Final = -1
"""As an offset: all that is committed."""


@define(kw_only=True)
class DeleteRecordsPartition:
    partition_index: int = int32()
    offset: int = int64()


@define(kw_only=True)
class DeleteRecordsTopic:
    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@define(kw_only=True)
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@define(kw_only=True)
class DeleteRecordsPartitionResult:
    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


@define(kw_only=True)
class DeleteRecordsTopicResult:
    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@define(kw_only=True)
class DeleteRecordsResponse:
    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
