"""Who may do what: ACLs, made, described and taken away."""

from collections.abc import Sequence
from typing import Any

import attrs

from replication.client.admin.calls import Calls, some_failed
from replication.client.errors import raise_for
from replication.errors import ErrorCode, KafkaError
from replication.security.rules.acls import Acl, AclFilter
from replication.wire.create_acls import AclCreation, CreateAclsRequest
from replication.wire.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from replication.wire.describe_acls import DescribeAclsRequest


async def describe(calls: Calls, wanted: AclFilter) -> list[Acl]:
    async def once() -> list[Acl]:
        response = await calls.any_broker(DescribeAclsRequest(**_filter(wanted)))
        raise_for(response.error_code, response.error_message or "")
        return [
            Acl(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                pattern_type=resource.pattern_type,
                principal=each.principal,
                host=each.host,
                operation=each.operation,
                permission=each.permission_type,
            )
            for resource in response.resources
            for each in resource.acls
        ]

    return await calls.keep_asking(once)


async def create(calls: Calls, acls: Sequence[Acl]) -> None:
    creations = [
        AclCreation(
            resource_type=each.resource_type,
            resource_name=each.resource_name,
            resource_pattern_type=each.pattern_type,
            principal=each.principal,
            host=each.host,
            operation=each.operation,
            permission_type=each.permission,
        )
        for each in acls
    ]

    async def once() -> None:
        # Whoever asks twice has each of them once.
        response = await calls.any_broker(CreateAclsRequest(creations=creations))
        some_failed(
            {
                acl: KafkaError(ErrorCode.of(result.error_code), result.error_message or "")
                for acl, result in zip(acls, response.results, strict=True)
                if result.error_code != ErrorCode.NONE
            }
        )

    await calls.keep_asking(once)


async def delete(calls: Calls, filters: Sequence[AclFilter]) -> list[Acl]:
    wanted = [DeleteAclsFilter(**_filter(each)) for each in filters]

    async def once() -> list[Acl]:
        response = await calls.any_broker(DeleteAclsRequest(filters=wanted))
        gone: dict[Acl, None] = {}
        for result in response.filter_results:
            raise_for(result.error_code, result.error_message or "")
            for each in result.matching_acls:
                acl = Acl(
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                    pattern_type=each.pattern_type,
                    principal=each.principal,
                    host=each.host,
                    operation=each.operation,
                    permission=each.permission_type,
                )
                gone[acl] = None
        return list(gone)

    return await calls.keep_asking(once)


def _filter(wanted: AclFilter) -> dict[str, Any]:
    values = attrs.asdict(wanted)
    return {
        "resource_type_filter": values["resource_type"],
        "resource_name_filter": values["resource_name"],
        "pattern_type_filter": values["pattern_type"],
        "principal_filter": values["principal"],
        "host_filter": values["host"],
        "operation": values["operation"],
        "permission_type": values["permission"],
    }
