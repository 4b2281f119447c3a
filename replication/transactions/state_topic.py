"""`__transaction_state`, made when somebody first asks who looks after a transactional id.

Compacted, since of each id only the last record counts, and not with fewer replicas than the
configuration says. (Kafka: AutoTopicCreationManager, TransactionStateManager.)
"""

from replication.config import BrokerConfig
from replication.transactions.rules import TRANSACTION_STATE_TOPIC
from replication.wire.create_topics import CreatableTopic, CreatableTopicConfig


def state_topic(config: BrokerConfig) -> CreatableTopic:
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": str(config.transaction_state_log_min_isr),
        "segment.bytes": str(config.transaction_state_log_segment_bytes),
    }
    return CreatableTopic(
        name=TRANSACTION_STATE_TOPIC,
        num_partitions=config.transaction_state_log_num_partitions,
        replication_factor=config.transaction_state_log_replication_factor,
        configs=[CreatableTopicConfig(name=key, value=configs[key]) for key in configs],
    )
