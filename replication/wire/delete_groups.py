"""DeleteGroups (KIP-229): deletes groups without members, with their offsets."""

import attrs

from replication.wire.schema import Kind, array, int16, int32, string


@attrs.define(kw_only=True)
class DeleteGroupsRequest:
    groups_names: list[str] = array(Kind.STRING)


@attrs.define(kw_only=True)
class DeletedGroup:
    group_id: str = string()
    error_code: int = int16()
    error_message: str | None = string("3+", nullable="3+", default=None)


@attrs.define(kw_only=True)
class DeleteGroupsResponse:
    throttle_time_ms: int = int32()
    results: list[DeletedGroup] = array(DeletedGroup)
