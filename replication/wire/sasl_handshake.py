"""SaslHandshake: names the mechanism of a login.

After version 0 tokens travel bare, each behind its length; since version 1 they are wrapped in
SaslAuthenticate (KIP-152). librdkafka concludes from a missing version 0 that SASL is not offered.
"""

from replication.wire.schema import Kind, array, define, int16, string


@define(kw_only=True)
class SaslHandshakeRequest:
    mechanism: str = string()


@define(kw_only=True)
class SaslHandshakeResponse:
    error_code: int = int16()
    mechanisms: list[str] = array(Kind.STRING)
