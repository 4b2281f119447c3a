"""Requests that a broker of Apache Kafka forwards for its clients, each in an Envelope (KIP-590).

    client ── CreateTopics 5 ──> their broker ── Envelope(CreateTopics 5, User:alice, 10.0.0.7) ──┐
                                                                                                  v
    client <── the response ──── their broker <── Envelope(response) ── handler <── guard(alice) ── here

Rule 1: their broker does not check the ACLs of what it forwards; the guards of our brokers do it here,
with the principal and the host that the envelope names. Only a broker may send one (CLUSTER_ACTION).

Rule 2: an error of the envelope is about the envelope: the client sees UNKNOWN_SERVER_ERROR, or is
disconnected for UNSUPPORTED_VERSION. NOT_CONTROLLER makes the broker look for the active controller.
Everything else that may be wrong is in the response inside (EnvelopeUtils, ForwardingManager).

Brokers of ours check the ACLs themselves, and forward requests as they are.
"""

import ipaddress
from collections.abc import Callable, Mapping
from functools import partial

import attrs

from replication.errors import ErrorCode, KafkaError, ProtocolError
from replication.metadata.rules.image import MetadataImage
from replication.net.framing import LENGTH_SIZE
from replication.net.pace import in_steps
from replication.security.rules.acls import Authorizer
from replication.server.guards import guarded
from replication.server.limits import LIMITED
from replication.server.older_forms import fill_older_form, newest_form
from replication.server.server import Handler, RequestContext
from replication.wire.apis import ApiKey
from replication.wire.codec import decode_versioned, version_of
from replication.wire.envelope import DefaultPrincipalData, EnvelopeRequest, EnvelopeResponse
from replication.wire.frames import (
    decode_request_in_steps,
    encode_response_in_steps,
)
from replication.wire.refusals import refused_whole_in_steps

FORWARDABLE = LIMITED | {ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER}
"""The APIs that an envelope may hold (ApiKeys.forwardable, without delegation tokens)."""

_ACL_CHANGES = frozenset({ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS})


def envelopes(
    handlers: Mapping[ApiKey, Handler],
    authorizer: Authorizer | None,
    image: Callable[[], MetadataImage],
) -> Handler:
    """Return the handler of Envelope, which calls those of the APIs that are forwardable."""
    forwardable = {key: handlers[key] for key in FORWARDABLE}
    if authorizer is None:
        forwardable |= dict.fromkeys(_ACL_CHANGES, _security_disabled)
    else:
        forwardable = guarded(forwardable, authorizer, image, creates_topics=False)
    return partial(_open, forwardable)


async def _open(
    forwardable: Mapping[ApiKey, Handler], context: RequestContext, envelope: EnvelopeRequest
) -> EnvelopeResponse:
    """Answer the request in an envelope; an error of the envelope is an answer, too."""
    try:
        return await _answer(forwardable, context, envelope)
    except KafkaError as error:
        return EnvelopeResponse(error_code=error.code)


async def _answer(
    forwardable: Mapping[ApiKey, Handler], context: RequestContext, envelope: EnvelopeRequest
) -> EnvelopeResponse:
    principal, host = _principal(envelope), _host(envelope)
    try:
        header, request = await in_steps(decode_request_in_steps(memoryview(envelope.request_data)))
    except ProtocolError as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from error
    key, version = ApiKey(header.api_key), header.api_version
    handler = forwardable.get(key)
    if handler is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key.name} is not forwarded")
    inside = attrs.evolve(
        context,
        api_key=key,
        version=version,
        client_id=header.client_id,
        peer=f"{host}:0",
        principal=principal,
    )
    request = newest_form(request, version)
    response = await handler(inside, request)
    fill_older_form(request, response, version)
    (whole,) = await in_steps(
        encode_response_in_steps(response, version=version, correlation_id=header.correlation_id)
    )
    assert isinstance(whole, bytes), "no response of these has records"
    return EnvelopeResponse(response_data=whole[LENGTH_SIZE:])


def _principal(envelope: EnvelopeRequest) -> str:
    """Return the client's principal (DefaultKafkaPrincipalBuilder.deserialize)."""
    data = envelope.request_principal or b""
    try:
        version, found = (
            version_of(data),
            decode_versioned(DefaultPrincipalData, data, 0, flexible=True),
        )
    except ProtocolError as error:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from error
    if version != 0:
        unknown = f"a principal of version {version}"
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, unknown)
    return f"{found.type_}:{found.name}"


def _host(envelope: EnvelopeRequest) -> str:
    try:
        return str(ipaddress.ip_address(envelope.client_host_address))
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error


async def _security_disabled(context: RequestContext, request: object) -> object:
    disabled = ErrorCode.SECURITY_DISABLED
    return await in_steps(
        refused_whole_in_steps(context.api_key, context.version, request, disabled)
    )
