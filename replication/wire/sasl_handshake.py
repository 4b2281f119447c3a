"""SaslHandshake: by which mechanism a client means to log in.

Version 0, after which tokens travel outside of Kafka's messages, is not spoken: every client
since 1.0 wraps them (KIP-152).
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
