"""RemoveRaftVoter (KIP-853): makes a voter of the metadata log's quorum an observer."""

from replication.wire.schema import define, int16, int32, string, uuid


@define(kw_only=True)
class RemoveRaftVoterRequest:
    cluster_id: str | None = string(nullable="0+")
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()


@define(kw_only=True)
class RemoveRaftVoterResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
