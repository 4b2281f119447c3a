"""A consumer for trio, after KafkaConsumer.

without a network:
    position  subscription      what is read, and where in it (KIP-320)
    offset_reset                auto.offset.reset
    fetch_requests              which partitions are fetched from whom next (KIP-227, KIP-392)
    completed_fetch  records    an answer, read as far as its records were taken
    fetch_buffer                what was fetched and not handed over
    fetch_collector             what is handed over, and what errors mean
    metrics  errors  config

with one:
    fetcher                     sends fetches, brings what comes of them
    offset_fetcher  list_offsets    where to begin, and whether a position still holds
    poll_loop                   one poll after the other
    interceptors                what a program hangs in
    group/                      joining, committing, who reads what
    assembly  consumer          what programs see
"""

from replication.client.consumer.config import ConsumerConfig
from replication.client.consumer.consumer import Consumer
from replication.client.consumer.errors import (
    CommitFailedError,
    CorruptRecordsError,
    FencedInstanceIdError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RebalanceInProgressError,
    RecordDeserializationError,
    RetriableCommitFailedError,
)
from replication.client.consumer.group.listener import ConsumerRebalanceListener
from replication.client.consumer.interceptors import ConsumerInterceptor
from replication.client.consumer.records import (
    ConsumerRecord,
    ConsumerRecords,
    Deserializer,
    OffsetAndMetadata,
    OffsetAndTimestamp,
)
from replication.client.offsets import ConsumerGroupMetadata

__all__ = [
    "CommitFailedError",
    "Consumer",
    "ConsumerConfig",
    "ConsumerGroupMetadata",
    "ConsumerInterceptor",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerRecords",
    "CorruptRecordsError",
    "Deserializer",
    "FencedInstanceIdError",
    "LogTruncationError",
    "NoOffsetForPartitionError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRangeError",
    "RebalanceInProgressError",
    "RecordDeserializationError",
    "RetriableCommitFailedError",
]
