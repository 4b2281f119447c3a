"""Users that may log in by SCRAM (KIP-554), and the ACLs that say what they may do.

A password is salted here and never sent.
"""

from collections.abc import Iterable
from typing import Any

import attrs

from replication.client.admin.calls import OpenAdmin, outcomes_by, raise_if_refused, some_failed
from replication.errors import ConfigError, ErrorCode, KafkaError
from replication.security.rules.acls import Acl, AclFilter
from replication.security.rules.scram import (
    MINIMUM_ITERATIONS,
    SALT_BYTES,
    SHA_256,
    SHA_512,
    salted_password,
)
from replication.wire.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from replication.wire.create_acls import AclCreation, CreateAclsRequest
from replication.wire.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from replication.wire.describe_acls import DescribeAclsRequest
from replication.wire.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from storage.attributes import frozen

_NUMBERS = {SHA_256: 1, SHA_512: 2}
_NAMES = {number: name for name, number in _NUMBERS.items()}


@frozen
class ScramCredentialInfo:
    """The mechanism and the iterations of a credential; nothing more is shown of it."""

    mechanism: str
    iterations: int


@frozen
class UserScramCredentialUpsertion:
    """A new password with which `user` may log in by `mechanism`, in place of an earlier one."""

    user: str
    mechanism: str
    password: str = attrs.field(repr=False)
    iterations: int = MINIMUM_ITERATIONS
    salt: bytes | None = None


@frozen
class UserScramCredentialDeletion:
    """The removal of the password with which `user` may log in by `mechanism`."""

    user: str
    mechanism: str


UserScramCredentialAlteration = UserScramCredentialUpsertion | UserScramCredentialDeletion


async def describe_user_scram_credentials(
    admin: OpenAdmin, users: Iterable[str] | None = None
) -> dict[str, tuple[ScramCredentialInfo, ...]]:
    """Return the credentials of `users`, or of all users."""
    asked = None if users is None else [UserName(name=name) for name in users]
    response = await admin.calls.ask(DescribeUserScramCredentialsRequest(users=asked))
    some_failed({each.user: _error(each) for each in response.results if each.error_code})
    return {
        each.user: tuple(
            ScramCredentialInfo(_NAMES.get(info.mechanism, "UNKNOWN"), info.iterations)
            for info in each.credential_infos
        )
        for each in response.results
    }


async def alter_user_scram_credentials(
    admin: OpenAdmin, alterations: Iterable[UserScramCredentialAlteration]
) -> None:
    """Set or remove the passwords of users of SCRAM (KIP-554).

    The cluster stores a salted hash, which cannot be used to log in, and never the password.
    """
    calls, wanted = admin.calls, list(alterations)
    deletions = [
        ScramCredentialDeletion(name=each.user, mechanism=_number(each.mechanism))
        for each in wanted
        if isinstance(each, UserScramCredentialDeletion)
    ]
    upsertions = [
        _upsertion(
            each, calls.network.chance.randbytes(SALT_BYTES) if each.salt is None else each.salt
        )
        for each in wanted
        if isinstance(each, UserScramCredentialUpsertion)
    ]

    await calls.ask_about(
        list(dict.fromkeys(each.user for each in wanted)),
        lambda left: AlterUserScramCredentialsRequest(
            deletions=[each for each in deletions if each.name in left],
            upsertions=[each for each in upsertions if each.name in left],
        ),
        lambda response: outcomes_by("user", response.results),
    )


def _upsertion(wanted: UserScramCredentialUpsertion, salt: bytes) -> ScramCredentialUpsertion:
    number = _number(wanted.mechanism)
    return ScramCredentialUpsertion(
        name=wanted.user,
        mechanism=number,
        iterations=wanted.iterations,
        salt=salt,
        salted_password=salted_password(
            wanted.mechanism, password=wanted.password, salt=salt, iterations=wanted.iterations
        ),
    )


def _number(mechanism: str) -> int:
    if mechanism not in _NUMBERS:
        raise ConfigError(f"mechanism {mechanism}: expected one of {', '.join(_NUMBERS)}")
    return _NUMBERS[mechanism]


async def describe_acls(admin: OpenAdmin, acl_filter: AclFilter | None = None) -> list[Acl]:
    """Return the ACLs that match the filter, or all."""
    request = DescribeAclsRequest(**_filter(acl_filter or AclFilter()))
    resources = (await admin.calls.ask(request)).resources
    return [_acl(resource, each) for resource in resources for each in resource.acls]


async def create_acls(admin: OpenAdmin, new_acls: Iterable[Acl]) -> None:
    """Create ACLs; those that exist already stay as they are."""
    calls, acls = admin.calls, list(new_acls)
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
        # A second attempt creates none of them twice.
        response = await calls.any_broker(CreateAclsRequest(creations=creations))
        answered = zip(acls, response.results, strict=True)
        some_failed({acl: _error(result) for acl, result in answered if result.error_code})

    await calls.keep_asking(once)


async def delete_acls(admin: OpenAdmin, filters: Iterable[AclFilter]) -> list[Acl]:
    """Delete the ACLs that match any of the filters; return them."""
    calls = admin.calls
    wanted = [DeleteAclsFilter(**_filter(each)) for each in filters]

    async def once() -> list[Acl]:
        response = await calls.any_broker(DeleteAclsRequest(filters=wanted))
        gone: dict[Acl, None] = {}
        for result in response.filter_results:
            raise_if_refused(result)
            gone |= dict.fromkeys(_acl(each, each) for each in result.matching_acls)
        return list(gone)

    return await calls.keep_asking(once)


def _acl(resource: Any, each: Any) -> Acl:
    return Acl(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        pattern_type=resource.pattern_type,
        principal=each.principal,
        host=each.host,
        operation=each.operation,
        permission=each.permission_type,
    )


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


def _error(answer: Any) -> KafkaError:
    return KafkaError(ErrorCode.of(answer.error_code), answer.error_message or "")
