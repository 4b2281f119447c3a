"""Envelope (KIP-590): a broker of Apache Kafka forwards a client's request, and who the client is.

The controller decides as the client, and the broker hands the response on unread.
"""

from replication.wire.schema import boolean, define, int16, octets, string


@define(kw_only=True)
class EnvelopeRequest:
    """`request_data` is a request with its header, in the client's version."""

    request_data: bytes = octets()
    request_principal: bytes | None = octets(nullable="0+", default=None)
    client_host_address: bytes = octets()


@define(kw_only=True)
class EnvelopeResponse:
    """`response_data` is the response with its header; None beside an error."""

    response_data: bytes | None = octets(nullable="0+", default=None)
    error_code: int = int16()


@define(kw_only=True)
class DefaultPrincipalData:
    """A client's principal, as `request_principal` has it behind two bytes for its version."""

    type_: str = string()
    name: str = string()
    token_authenticated: bool = boolean()
