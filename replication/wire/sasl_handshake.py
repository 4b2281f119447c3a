"""SaslHandshake: by which mechanism a client means to log in.

After version 0 tokens travel bare, each behind its length; since version 1 they are wrapped in
SaslAuthenticate (KIP-152). A librdkafka that does not find version 0 takes SASL for not offered.
"""

import attrs

from replication.wire.schema import Kind, array, int16, string


@attrs.define(kw_only=True)
class SaslHandshakeRequest:
    mechanism: str = string()


@attrs.define(kw_only=True)
class SaslHandshakeResponse:
    error_code: int = int16()
    mechanisms: list[str] = array(Kind.STRING)
