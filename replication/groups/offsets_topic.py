"""`__consumer_offsets`, made when somebody first asks who looks after a group.

Compacted, since of each group and offset only the last record counts; as many partitions
and replicas as the configuration says, and not with fewer: a group would live on a
replica too few for good. (Kafka: AutoTopicCreationManager.)
"""

from replication.config import BrokerConfig
from replication.groups.rules import GROUP_METADATA_TOPIC
from replication.wire.create_topics import CreatableTopic, CreatableTopicConfig


def offsets_topic(config: BrokerConfig) -> CreatableTopic:
    return CreatableTopic(
        name=GROUP_METADATA_TOPIC,
        num_partitions=config.offsets_topic_num_partitions,
        replication_factor=config.offsets_topic_replication_factor,
        configs=[
            CreatableTopicConfig(name="cleanup.policy", value="compact"),
            CreatableTopicConfig(name="compression.type", value="producer"),
            CreatableTopicConfig(
                name="segment.bytes", value=str(config.offsets_topic_segment_bytes)
            ),
        ],
    )
