"""DescribeProducers (KIP-664): returns the producers whose state a partition keeps."""

from replication.wire.schema import Kind, array, define, int16, int32, int64, string


@define(kw_only=True)
class DescribeProducersTopic:
    name: str = string()
    partition_indexes: list[int] = array(Kind.INT32)


@define(kw_only=True)
class DescribeProducersRequest:
    topics: list[DescribeProducersTopic] = array(DescribeProducersTopic)


@define(kw_only=True)
class ActiveProducerState:
    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


@define(kw_only=True)
class PartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    active_producers: list[ActiveProducerState] = array(ActiveProducerState)


@define(kw_only=True)
class TopicResponse:
    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


@define(kw_only=True)
class DescribeProducersResponse:
    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
