"""DescribeUserScramCredentials (KIP-554): returns the SCRAM mechanisms of users, never a secret."""

from replication.wire.schema import array, define, int8, int16, int32, string


@define(kw_only=True)
class UserName:
    name: str = string()


@define(kw_only=True)
class DescribeUserScramCredentialsRequest:
    users: list[UserName] | None = array(UserName, nullable="0+")


@define(kw_only=True)
class CredentialInfo:
    mechanism: int = int8()
    iterations: int = int32()


@define(kw_only=True)
class DescribeUserScramCredentialsResult:
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


@define(kw_only=True)
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
