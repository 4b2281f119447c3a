"""SaslAuthenticate (KIP-152, 368): exchanges the tokens of a login."""

from replication.wire.schema import define, int16, int64, octets, string


@define(kw_only=True)
class SaslAuthenticateRequest:
    auth_bytes: bytes = octets()


@define(kw_only=True)
class SaslAuthenticateResponse:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    auth_bytes: bytes = octets()
    session_lifetime_ms: int = int64("1+")
