"""DeleteRecords (KIP-107): deletes the records of partitions before an offset."""

from typing import Final

import attrs

from replication.wire.schema import array, int16, int32, int64, string

HIGH_WATERMARK: Final = -1
"""As an offset: all that is committed."""


@attrs.define(kw_only=True)
class DeleteRecordsPartition:
    partition_index: int = int32()
    offset: int = int64()


@attrs.define(kw_only=True)
class DeleteRecordsTopic:
    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@attrs.define(kw_only=True)
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@attrs.define(kw_only=True)
class DeleteRecordsPartitionResult:
    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


@attrs.define(kw_only=True)
class DeleteRecordsTopicResult:
    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@attrs.define(kw_only=True)
class DeleteRecordsResponse:
    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
