"""DeleteGroups (KIP-229): deletes groups without members, with their offsets."""

from replication.wire.schema import Kind, array, define, int16, int32, string


@define(kw_only=True)
class DeleteGroupsRequest:
    groups_names: list[str] = array(Kind.STRING)


@define(kw_only=True)
class DeletedGroup:
    group_id: str = string()
    error_code: int = int16()
    error_message: str | None = string("3+", nullable="3+", default=None)


@define(kw_only=True)
class DeleteGroupsResponse:
    throttle_time_ms: int = int32()
    results: list[DeletedGroup] = array(DeletedGroup)
