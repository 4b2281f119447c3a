"""DescribeLogDirs (KIP-113, KIP-827): returns the replicas and the space in a broker's log directories.

With null topics all replicas are returned.
"""

from typing import Final

from replication.wire.schema import Kind, array, boolean, define, int16, int32, int64, string

UNKNOWN_SPACE: Final = -1
NO_OFFSET_LAG: Final = -1


@define(kw_only=True)
class DescribableLogDirTopic:
    topic: str = string()
    partitions: list[int] = array(Kind.INT32)


@define(kw_only=True)
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


@define(kw_only=True)
class DescribeLogDirsPartition:
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


@define(kw_only=True)
class DescribeLogDirsTopic:
    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


@define(kw_only=True)
class DescribeLogDirsResult:
    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64("4+", default=UNKNOWN_SPACE)
    usable_bytes: int = int64("4+", default=UNKNOWN_SPACE)
    is_cordoned: bool = boolean("5+")


@define(kw_only=True)
class DescribeLogDirsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16("3+")
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
