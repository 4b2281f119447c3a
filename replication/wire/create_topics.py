"""CreateTopics (KIP-4, 195, 464, 525, 599): creates topics, by counts or by explicit assignments.

`num_partitions` and `replication_factor` of -1 take the broker's defaults (KIP-464), and
are -1 too where `assignments` says which broker holds which partition.
"""

from replication.wire.schema import Kind, array, boolean, define, int8, int16, int32, string, uuid


@define(kw_only=True)
class CreatableReplicaAssignment:
    partition_index: int = int32()
    broker_ids: list[int] = array(Kind.INT32)


@define(kw_only=True)
class CreatableTopicConfig:
    name: str = string()
    value: str | None = string(nullable="0+")


@define(kw_only=True)
class CreatableTopic:
    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@define(kw_only=True)
class CreateTopicsRequest:
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60_000)
    validate_only: bool = boolean("1+")


@define(kw_only=True)
class CreatableTopicConfigs:
    name: str = string("5+")
    value: str | None = string("5+", nullable="5+")
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1)
    is_sensitive: bool = boolean("5+")


@define(kw_only=True)
class CreatableTopicResult:
    name: str = string()
    topic_id: bytes = uuid("7+")
    error_code: int = int16()
    error_message: str | None = string("1+", nullable="1+", default=None)
    topic_config_error_code: int = int16("5+", tag=0)
    num_partitions: int = int32("5+", default=-1)
    replication_factor: int = int16("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, "5+", nullable="5+")


@define(kw_only=True)
class CreateTopicsResponse:
    throttle_time_ms: int = int32("2+")
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
