"""CreatePartitions (KIP-195, 599): adds partitions to topics.

`count` is the number of partitions in all; with `assignments` null the controller chooses the
brokers of the new ones.
"""

from replication.wire.schema import Kind, array, boolean, define, int16, int32, string


@define(kw_only=True)
class CreatePartitionsAssignment:
    broker_ids: list[int] = array(Kind.INT32)


@define(kw_only=True)
class CreatePartitionsTopic:
    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, nullable="0+"
    )


@define(kw_only=True)
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@define(kw_only=True)
class CreatePartitionsTopicResult:
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@define(kw_only=True)
class CreatePartitionsResponse:
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
