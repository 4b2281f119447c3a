"""FetchSnapshot (KIP-630): reads a snapshot of the metadata log, piece by piece.

A broker whose copy ends before the controller's log begins is answered by Fetch with the
id of a snapshot; it asks for that by id and position until it has `size` bytes, which
are those of the leader's `.checkpoint` file.
"""

from replication.wire.schema import (
    Part,
    array,
    define,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)
from replication.wire.vote import QuorumEndpoint
from storage.attributes import frozen


@frozen(kw_only=True)
class SnapshotId:
    """`end_offset` is the first offset that it does not contain."""

    end_offset: int = int64()
    epoch: int = int32()


@frozen(kw_only=True)
class SnapshotLeader:
    leader_id: int = int32()
    leader_epoch: int = int32()


@define(kw_only=True)
class PartitionSnapshotRequest:
    partition: int = int32()
    current_leader_epoch: int = int32()
    snapshot_id: SnapshotId = struct(SnapshotId, default=SnapshotId())
    position: int = int64()
    replica_directory_id: bytes = uuid("1+", tag=0)


@define(kw_only=True)
class TopicSnapshotRequest:
    name: str = string()
    partitions: list[PartitionSnapshotRequest] = array(PartitionSnapshotRequest)


@define(kw_only=True)
class FetchSnapshotRequest:
    cluster_id: str | None = string("0+", nullable="0+", default=None, tag=0)
    replica_id: int = int32(default=-1)
    max_bytes: int = int32(default=2**31 - 1)
    topics: list[TopicSnapshotRequest] = array(TopicSnapshotRequest)


@define(kw_only=True)
class PartitionSnapshot:
    index: int = int32()
    error_code: int = int16()
    snapshot_id: SnapshotId = struct(SnapshotId, default=SnapshotId())
    current_leader: SnapshotLeader = struct(SnapshotLeader, default=SnapshotLeader(), tag=0)
    size: int = int64()
    position: int = int64()
    unaligned_records: Part = records(nullable="", default=b"")


@define(kw_only=True)
class TopicSnapshot:
    name: str = string()
    partitions: list[PartitionSnapshot] = array(PartitionSnapshot)


@define(kw_only=True)
class FetchSnapshotResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[TopicSnapshot] = array(TopicSnapshot)
    node_endpoints: list[QuorumEndpoint] = array(QuorumEndpoint, "1+", tag=0)
