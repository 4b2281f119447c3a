"""AlterUserScramCredentials (KIP-554): sets and removes the SCRAM credentials of users."""

from replication.wire.schema import array, define, int8, int16, int32, octets, string


@define(kw_only=True)
class ScramCredentialDeletion:
    name: str = string()
    mechanism: int = int8()


@define(kw_only=True)
class ScramCredentialUpsertion:
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = octets()
    salted_password: bytes = octets()


@define(kw_only=True)
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


@define(kw_only=True)
class AlterUserScramCredentialsResult:
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@define(kw_only=True)
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
