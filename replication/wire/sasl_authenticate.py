"""SaslAuthenticate (KIP-152, 368): exchanges the tokens of a login."""

import attrs

from replication.wire.schema import int16, int64, octets, string


@attrs.define(kw_only=True)
class SaslAuthenticateRequest:
    auth_bytes: bytes = octets()


@attrs.define(kw_only=True)
class SaslAuthenticateResponse:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    auth_bytes: bytes = octets()
    session_lifetime_ms: int = int64("1+")
