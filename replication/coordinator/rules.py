"""The topics of both coordinators, and the partition of a key in them.

    topics        compacted, since only the last record of each key counts, and created by a broker
                  when a client first looks for a coordinator: with all the replicas that the
                  configuration asks for or not at all, since a partition would keep too few
    partition     the hash of a group or transactional id, modulo the partitions of the topic

(AutoTopicCreationManager, GroupMetadataManager, TransactionStateManager.)
"""

from typing import Final, NamedTuple

from replication.config import BrokerConfig
from replication.errors import ErrorCode
from replication.java_hash import java_string_hash, place_of
from replication.wire.create_topics import CreatableTopic, CreatableTopicConfig

GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"


def offsets_topic(config: BrokerConfig) -> CreatableTopic:
    """Return `__consumer_offsets`."""
    return _compacted(
        GROUP_METADATA_TOPIC,
        partitions=config.offsets_topic_num_partitions,
        replication_factor=config.offsets_topic_replication_factor,
        configs={
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
    )


def transaction_state_topic(config: BrokerConfig) -> CreatableTopic:
    """Return `__transaction_state`."""
    return _compacted(
        TRANSACTION_STATE_TOPIC,
        partitions=config.transaction_state_log_num_partitions,
        replication_factor=config.transaction_state_log_replication_factor,
        configs={
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
        },
    )


def _compacted(
    name: str, *, partitions: int, replication_factor: int, configs: dict[str, str]
) -> CreatableTopic:
    configs = {"cleanup.policy": "compact"} | configs
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )


class KeyAndValue(NamedTuple):
    """A record to write; without a value it is a tombstone."""

    key: bytes
    value: bytes | None


def write_error(error: ErrorCode) -> ErrorCode:
    """Return the error of a request whose records could not be written: `error` is the log's.

    (Kafka: CoordinatorOperationExceptionHelper, TransactionStateManager.)
    """
    match error:
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode.REQUEST_TIMED_OUT
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return error


def partition_for(key: str, partitions: int) -> int:
    """Return the partition, of so many, that keeps a group or a transactional id."""
    return place_of(java_string_hash(key), partitions)
