"""Users that may log in by SCRAM (KIP-554). A password is salted here and never sent."""

import random
from collections.abc import Iterable, Mapping, Sequence

import attrs

from replication.client.admin.calls import Calls, Outcome, some_failed
from replication.client.errors import raise_for
from replication.errors import ConfigError, ErrorCode, KafkaError
from replication.security.rules.scram import MINIMUM_ITERATIONS, SHA_256, SHA_512, salted_password
from replication.wire.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from replication.wire.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)

_NUMBERS = {SHA_256: 1, SHA_512: 2}
_NAMES = {number: name for name, number in _NUMBERS.items()}
_SALT_BYTES = 20


@attrs.frozen
class ScramCredentialInfo:
    """What is told of a credential."""

    mechanism: str
    iterations: int


@attrs.frozen
class UserScramCredentialUpsertion:
    """`user` may log in by `mechanism` with `password`, and with no earlier one."""

    user: str
    mechanism: str
    password: str = attrs.field(repr=False)
    iterations: int = MINIMUM_ITERATIONS
    salt: bytes | None = None


@attrs.frozen
class UserScramCredentialDeletion:
    """`user` may no more."""

    user: str
    mechanism: str


UserScramCredentialAlteration = UserScramCredentialUpsertion | UserScramCredentialDeletion


async def describe(
    calls: Calls, users: Sequence[str] | None
) -> dict[str, tuple[ScramCredentialInfo, ...]]:
    async def once() -> dict[str, tuple[ScramCredentialInfo, ...]]:
        asked = None if users is None else [UserName(name=name) for name in users]
        response = await calls.any_broker(DescribeUserScramCredentialsRequest(users=asked))
        raise_for(response.error_code, response.error_message or "")
        some_failed(
            {
                each.user: KafkaError(ErrorCode.of(each.error_code), each.error_message or "")
                for each in response.results
                if each.error_code != ErrorCode.NONE
            }
        )
        return {
            each.user: tuple(
                ScramCredentialInfo(_NAMES.get(info.mechanism, "UNKNOWN"), info.iterations)
                for info in each.credential_infos
            )
            for each in response.results
        }

    return await calls.keep_asking(once)


async def alter(
    calls: Calls, alterations: Iterable[UserScramCredentialAlteration], chance: random.Random
) -> None:
    wanted = list(alterations)
    deletions = [
        ScramCredentialDeletion(name=each.user, mechanism=_number(each.mechanism))
        for each in wanted
        if isinstance(each, UserScramCredentialDeletion)
    ]
    upsertions = [
        _upsertion(each, chance)
        for each in wanted
        if isinstance(each, UserScramCredentialUpsertion)
    ]

    async def once(left: Sequence[str]) -> Mapping[str, Outcome]:
        request = AlterUserScramCredentialsRequest(
            deletions=[each for each in deletions if each.name in left],
            upsertions=[each for each in upsertions if each.name in left],
        )
        response = await calls.any_broker(request)
        return {
            each.user: Outcome(each.error_code, each.error_message) for each in response.results
        }

    await calls.for_each(list(dict.fromkeys(each.user for each in wanted)), once)


def _upsertion(
    wanted: UserScramCredentialUpsertion, chance: random.Random
) -> ScramCredentialUpsertion:
    salt = chance.randbytes(_SALT_BYTES) if wanted.salt is None else wanted.salt
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
