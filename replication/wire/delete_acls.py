"""DeleteAcls (KIP-140, 290): deletes the ACLs that match any of several filters."""

from replication.wire.describe_acls import LITERAL, AclBindingFilter
from replication.wire.schema import array, define, int8, int16, int32, string


@define(kw_only=True)
class DeleteAclsFilter(AclBindingFilter):
    """One filter of a request."""


@define(kw_only=True)
class DeleteAclsRequest:
    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


@define(kw_only=True)
class DeleteAclsMatchingAcl:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=LITERAL)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@define(kw_only=True)
class DeleteAclsFilterResult:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


@define(kw_only=True)
class DeleteAclsResponse:
    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
