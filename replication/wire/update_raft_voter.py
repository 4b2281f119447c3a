"""UpdateRaftVoter (KIP-853): a voter reports its endpoints and its versions of KRaft to the leader."""

from replication.wire.control_records import KRaftVersionFeature, VoterEndpoint
from replication.wire.schema import array, define, int16, int32, string, struct, uuid
from storage.attributes import frozen


@define(kw_only=True)
class UpdateRaftVoterRequest:
    cluster_id: str | None = string(nullable="0+")
    current_leader_epoch: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[VoterEndpoint] = array(VoterEndpoint)
    kraft_version_feature: KRaftVersionFeature = struct(
        KRaftVersionFeature, default=KRaftVersionFeature()
    )


@frozen(kw_only=True)
class UpdateRaftVoterLeader:
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    host: str = string()
    port: int = int32()


@define(kw_only=True)
class UpdateRaftVoterResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    current_leader: UpdateRaftVoterLeader = struct(
        UpdateRaftVoterLeader, default=UpdateRaftVoterLeader(), tag=0
    )
