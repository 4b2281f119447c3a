"""Produce (KIP-98, 467, 951): appends records to partitions.

version   what it brought
3         transactional_id, record batches of magic 2; the first one served
5         log_start_offset in the answer
8         the errors of single records of a refused batch (KIP-467)
9         flexible
10        the new leader and its address, in the tagged section (KIP-951)
11        the client may be answered TRANSACTION_ABORTABLE (KIP-890)
12        a partition is in the transaction by being written to (KIP-890)
13        topics have ids instead of names (KIP-516)
"""

from typing import Final

from replication.wire.metadata import NO_CURRENT_LEADER, LeaderIdAndEpoch, NodeEndpoint
from replication.wire.schema import (
    Part,
    array,
    define,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)

ACKS_ALL: Final = -1
"""The `acks` of a producer that waits for every replica in sync."""


@define(kw_only=True)
class PartitionProduceData:
    index: int = int32()
    records: Part | None = records()


@define(kw_only=True)
class TopicProduceData:
    name: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


@define(kw_only=True)
class ProduceRequest:
    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


@define(kw_only=True)
class BatchIndexAndErrorMessage:
    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


@define(kw_only=True)
class PartitionProduceResponse:
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64("2+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+")
    error_message: str | None = string("8+", nullable="8+", default=None)
    current_leader: LeaderIdAndEpoch = struct(
        LeaderIdAndEpoch, "10+", default=NO_CURRENT_LEADER, tag=0
    )


@define(kw_only=True)
class TopicProduceResponse:
    name: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


@define(kw_only=True)
class ProduceResponse:
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32("1+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)
