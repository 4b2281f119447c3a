"""ApiVersions (KIP-35, 511, 584, 1242): the first request of a client, for the versions that a broker serves.

A version we do not know is answered with the body of version 0, error UNSUPPORTED_VERSION
and the range we do know for this one API; the client then asks again (KIP-511). The
header of the response is always the old one, since its reader cannot know better yet.
"""

from replication.wire.schema import array, boolean, define, int16, int32, int64, string

ANY_NODE = -1
"""The `node_id` of a client that does not know which node it has reached."""
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"
METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
KAFKA_4_4 = 33
"""The level of `metadata.version` in Kafka 4.4 (4.4-IV2)."""
EPOCH_BUMPING_VERSION = 2
"""The level of this feature at which each end of a transaction bumps the producer epoch."""


@define(kw_only=True)
class ApiVersionsRequest:
    client_software_name: str = string("3+")
    client_software_version: str = string("3+")
    cluster_id: str | None = string("5+", nullable="5+", default=None)
    node_id: int = int32("5+", default=ANY_NODE)


@define(kw_only=True)
class ApiVersion:
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@define(kw_only=True)
class SupportedFeatureKey:
    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


@define(kw_only=True)
class FinalizedFeatureKey:
    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


@define(kw_only=True)
class ApiVersionsResponse:
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+")
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2)
    zk_migration_ready: bool = boolean("3+", tag=3)
