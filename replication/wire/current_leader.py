"""The current leader of a partition, and its address, in Fetch and Produce responses (KIP-951)."""

import attrs

from replication.wire.schema import int32, string


@attrs.frozen(kw_only=True)
class LeaderIdAndEpoch:
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


@attrs.define(kw_only=True)
class NodeEndpoint:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


NO_CURRENT_LEADER = LeaderIdAndEpoch()
