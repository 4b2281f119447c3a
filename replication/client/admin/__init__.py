"""An admin client for trio: topics, partitions, configurations, brokers, groups.

admin       the client, with the functions of the next line as its methods
topics  offsets  brokers  cluster  groups  security     one function for each method
calls       which broker is asked, how often, and for how long
values      what the client takes and returns
"""

from replication.client.admin.admin import Admin
from replication.client.admin.brokers import ALL_BROKERS
from replication.client.admin.calls import SomeFailedError
from replication.client.admin.cluster import (
    ClientQuota,
    FeatureDescription,
    QuorumDescription,
    QuorumReplicaDescription,
)
from replication.client.admin.security import (
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from replication.client.admin.values import NewTopic
from replication.client.offsets import OffsetAndMetadata
from replication.security.rules.acls import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from replication.wire.describe_configs import ConfigResourceType

__all__ = [
    "ALL_BROKERS",
    "Acl",
    "AclFilter",
    "Admin",
    "ClientQuota",
    "ConfigResourceType",
    "FeatureDescription",
    "NewTopic",
    "OffsetAndMetadata",
    "Operation",
    "PatternType",
    "Permission",
    "QuorumDescription",
    "QuorumReplicaDescription",
    "ResourceType",
    "ScramCredentialInfo",
    "SomeFailedError",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
]
