"""The metadata of the cluster: records in a log, and the image that they add up to.

    controller     appends records to __understudy_metadata-0, syncs them, applies them
    brokers        fetch that log and apply the same records in the same order

Rule 1: a record holds a change, never its cause; an image is a value and never changes.

Rule 2: two nodes that have applied the log up to one offset hold equal images.

Rule 3: a record that this version does not know stops the reader, with its name. Skipping it
would break rule 2 in silence.

    records.py   the records and their bytes (msgpack, a type and a version each)
    image.py     the image, batches applied to it, and the difference of two images
    security_image.py    its credentials and ACLs
    snapshot.py  an image as bytes, for a log that no longer begins at 0
"""

from replication.metadata.rules.image import (
    FEATURES,
    MIN_INSYNC_REPLICAS,
    BrokerRegistration,
    MetadataDelta,
    MetadataImage,
    PartitionRegistration,
    RemovedPartition,
    TopicImage,
    apply_batches,
    delta_between,
)
from replication.metadata.rules.records import (
    MAX_RECORDS,
    METADATA_PARTITION,
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    TOO_LARGE,
    AclRecord,
    BrokerConfigRecord,
    BrokerDirectoriesRecord,
    BrokerRegistrationChangeRecord,
    ClusterRecord,
    ConfigRecord,
    ControllerRecord,
    Endpoint,
    FeatureLevelRecord,
    LeaderRecoveryState,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAclRecord,
    RemoveScramCredentialRecord,
    RemoveTopicRecord,
    ReplicaDirectoryRecord,
    ScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    batch_of,
    decode_record,
    encode_record,
)
from replication.metadata.rules.security_image import SecurityImage
from replication.metadata.rules.snapshot import decode_snapshot, encode_snapshot, snapshot_id
from replication.wire.api_versions import TRANSACTION_VERSION
from replication.wire.metadata import NO_LEADER

__all__ = [
    "FEATURES",
    "MAX_RECORDS",
    "METADATA_PARTITION",
    "METADATA_TOPIC",
    "METADATA_TOPIC_ID",
    "MIN_INSYNC_REPLICAS",
    "NO_LEADER",
    "TOO_LARGE",
    "TRANSACTION_VERSION",
    "AclRecord",
    "BrokerConfigRecord",
    "BrokerDirectoriesRecord",
    "BrokerRegistration",
    "BrokerRegistrationChangeRecord",
    "ClusterRecord",
    "ConfigRecord",
    "ControllerRecord",
    "Endpoint",
    "FeatureLevelRecord",
    "LeaderRecoveryState",
    "MetadataDelta",
    "MetadataImage",
    "MetadataRecord",
    "PartitionChangeRecord",
    "PartitionRecord",
    "PartitionRegistration",
    "ProducerIdsRecord",
    "RegisterBrokerRecord",
    "RemoveAclRecord",
    "RemoveScramCredentialRecord",
    "RemoveTopicRecord",
    "RemovedPartition",
    "ReplicaDirectoryRecord",
    "ScramCredentialRecord",
    "SecurityImage",
    "TopicImage",
    "TopicRecord",
    "UnregisterBrokerRecord",
    "apply_batches",
    "batch_of",
    "decode_record",
    "decode_snapshot",
    "delta_between",
    "encode_record",
    "encode_snapshot",
    "snapshot_id",
]
