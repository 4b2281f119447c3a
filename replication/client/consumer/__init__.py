"""A consumer for trio, after KafkaConsumer.

without a network:
    position  subscription      the partitions that are read, and the position in each (KIP-320)
    completed_fetch  records    a response, read as far as its records were taken
    fetch_collector             the records that are handed over, and the meaning of errors
    metrics  errors  config

with a network:
    fetcher                     the fetches from each broker (KIP-227, KIP-392)
    offset_fetcher              where to begin, and whether a position is still valid
    poll_loop                   one poll after the other
    hooks                       interceptors and listeners of the program
    group/                      joining, assigning, committing, by either group protocol
    assembly  consumer          the parts, and the class that programs see
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
from replication.client.consumer.hooks import ConsumerInterceptor, ConsumerRebalanceListener
from replication.client.consumer.records import (
    ConsumerRecord,
    ConsumerRecords,
    Deserializer,
    OffsetAndMetadata,
    OffsetAndTimestamp,
)
from replication.client.consumer.subscription import SubscriptionPattern
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
    "SubscriptionPattern",
]
