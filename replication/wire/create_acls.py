"""CreateAcls (KIP-140, 290): creates ACLs."""

from replication.wire.describe_acls import LITERAL
from replication.wire.schema import array, define, int8, int16, int32, string


@define(kw_only=True)
class AclCreation:
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=LITERAL)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@define(kw_only=True)
class CreateAclsRequest:
    creations: list[AclCreation] = array(AclCreation)


@define(kw_only=True)
class AclCreationResult:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@define(kw_only=True)
class CreateAclsResponse:
    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
