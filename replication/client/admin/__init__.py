"""An admin client for trio: topics, partitions, configurations, brokers, groups.

admin       what programs see
calls       whom to ask, how often, for how long
topics  offsets  brokers  groups  scram  acls     what is asked
pages       topics partition by partition, a page at a time
values      what is given and got back
"""

from replication.client.admin.admin import ALL_BROKERS, Admin
from replication.client.admin.calls import SomeFailedError
from replication.client.admin.scram import (
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

__all__ = [
    "ALL_BROKERS",
    "Acl",
    "AclFilter",
    "Admin",
    "NewTopic",
    "OffsetAndMetadata",
    "Operation",
    "PatternType",
    "Permission",
    "ResourceType",
    "ScramCredentialInfo",
    "SomeFailedError",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
]
