"""The coordinators' topics as a broker creates them, when a client first looks for a coordinator.

Both are compacted, since only the last record of each key counts. They are created with all the
replicas that the configuration asks for or not at all: a partition would keep too few replicas
for good. (Kafka: AutoTopicCreationManager.)
"""

from replication.config import BrokerConfig
from replication.coordinator.rules import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from replication.wire.create_topics import CreatableTopic, CreatableTopicConfig


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
