"""DescribeAcls from the metadata; CreateAcls and DeleteAcls by the controller."""

from replication.broker.handlers.node import BrokerNode
from replication.controller.rules.acls import filter_of
from replication.errors import ErrorCode, KafkaError, PeerUnavailableError
from replication.metadata.rules.image import MetadataImage
from replication.net.pace import in_steps
from replication.server.server import RequestContext
from replication.steps import Steps, each_of
from replication.wire.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from replication.wire.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from replication.wire.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

_DISABLED = "No Authorizer is configured."


async def describe_acls(
    node: BrokerNode, _: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    if node.config.authorizer is None:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=_DISABLED)
    await node.metadata.catch_up()
    return await in_steps(_found(node.metadata.image, request))


def _found(image: MetadataImage, request: DescribeAclsRequest) -> Steps[DescribeAclsResponse]:
    wanted = filter_of(request)
    found: dict[tuple[int, str, int], list[AclDescription]] = {}
    for acl in image.security.acls.values():
        yield 1
        if wanted.matches(acl):
            described = AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            key = (acl.resource_type, acl.resource_name, acl.pattern_type)
            found.setdefault(key, []).append(described)
    resources = yield from each_of(_resource, [*found.items()])
    return DescribeAclsResponse(resources=resources)


def _resource(found: tuple[tuple[int, str, int], list[AclDescription]]) -> DescribeAclsResource:
    (kind, name, pattern), acls = found
    return DescribeAclsResource(
        resource_type=kind, resource_name=name, pattern_type=pattern, acls=acls
    )


async def create_acls(
    node: BrokerNode, _: RequestContext, request: CreateAclsRequest
) -> CreateAclsResponse:
    try:
        response = await _ask_controller(node, request)
    except KafkaError as error:
        result = AclCreationResult(error_code=error.code, error_message=error.detail)
        return CreateAclsResponse(results=[result] * len(request.creations))
    assert isinstance(response, CreateAclsResponse), "an answer decodes as asked"
    return response


async def delete_acls(
    node: BrokerNode, _: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    try:
        response = await _ask_controller(node, request)
    except KafkaError as error:
        result = DeleteAclsFilterResult(error_code=error.code, error_message=error.detail)
        return DeleteAclsResponse(filter_results=[result] * len(request.filters))
    assert isinstance(response, DeleteAclsResponse), "an answer decodes as asked"
    return response


async def _ask_controller(
    node: BrokerNode, request: CreateAclsRequest | DeleteAclsRequest
) -> object:
    """Return the controller's answer; raise KafkaError without an authorizer or a controller."""
    if node.config.authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, _DISABLED)
    try:
        return await node.forward(request, timeout_ms=node.config.request_timeout_ms)
    except PeerUnavailableError as error:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, str(error)) from error
