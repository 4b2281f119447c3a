"""AlterUserScramCredentials (KIP-554): sets and removes the SCRAM credentials of users."""

import attrs

from replication.wire.schema import array, int8, int16, int32, octets, string


@attrs.define(kw_only=True)
class ScramCredentialDeletion:
    name: str = string()
    mechanism: int = int8()


@attrs.define(kw_only=True)
class ScramCredentialUpsertion:
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = octets()
    salted_password: bytes = octets()


@attrs.define(kw_only=True)
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


@attrs.define(kw_only=True)
class AlterUserScramCredentialsResult:
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@attrs.define(kw_only=True)
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
