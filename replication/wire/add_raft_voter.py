"""AddRaftVoter (KIP-853, KIP-1186): makes an observer of the metadata log a voter.

Version 1 lets the leader answer once it has written the change, before it is committed: a
controller that adds itself must go on fetching for its own addition to be committed.
"""

from replication.wire.control_records import VoterEndpoint
from replication.wire.schema import array, boolean, define, int16, int32, string, uuid


@define(kw_only=True)
class AddRaftVoterRequest:
    cluster_id: str | None = string(nullable="0+")
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[VoterEndpoint] = array(VoterEndpoint)
    ack_when_committed: bool = boolean("1+", default=True)


@define(kw_only=True)
class AddRaftVoterResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
