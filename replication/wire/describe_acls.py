"""DescribeAcls (KIP-140, 290): returns the ACLs that match a filter."""

from replication.wire.schema import array, define, int8, int16, int32, string

ANY = 1
LITERAL = 3


@define(kw_only=True)
class AclBindingFilter:
    """A filter of bindings, which DeleteAcls uses too."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8(default=LITERAL)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


@define(kw_only=True)
class DescribeAclsRequest(AclBindingFilter):
    """The request, whose fields are one filter."""


@define(kw_only=True)
class AclDescription:
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@define(kw_only=True)
class DescribeAclsResource:
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=LITERAL)
    acls: list[AclDescription] = array(AclDescription)


@define(kw_only=True)
class DescribeAclsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
