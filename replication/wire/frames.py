"""Frames: a length, a header, a message. Bytes in, messages out; no sockets here.

    request     length  api key  version  correlation id  client id  [tags]  body
    response    length  correlation id  [tags]  body

A `decode_` function gets a frame without its length. Flexible versions (KIP-482) have `[tags]`,
except the response to ApiVersions.

An encoded frame is a list of parts, its length in front: small fields joined, and between them
the records as they were given, in memory or in a file. A decoded message holds views of the
frame; it is valid as long as the frame's memory is.
"""

import struct
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import Final

from replication.errors import ErrorCode, ProtocolError
from replication.steps import Steps
from replication.wire import codec
from replication.wire.api_versions import ApiVersion, ApiVersionsResponse
from replication.wire.apis import API, Api, ApiKey, api_numbered, api_of
from replication.wire.encoder_source import size_of
from replication.wire.primitives import skip_tags
from replication.wire.schema import Part
from storage.attributes import define, frozen

MAX_ITEMS = 100_000
"""The items that all arrays of a request may have together.

Kafka has no such limit. An item of two bytes becomes an object of a hundred, and all of them are
freed at once when the request is answered.
"""

MAX_ITEMS_OF = {
    **dict.fromkeys((ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH), 200_000),
    **dict.fromkeys((ApiKey.METADATA, ApiKey.OFFSET_FETCH), 300_000),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: 50_000,
}
"""The limits of APIs with another one.

A request that may name everything in a broker or a cluster has a higher limit, one whose items are
sorted has a lower.
"""

AT_ONCE_BYTES = 4096
"""A frame up to that long is read at once; reading it in steps would take longer."""

_REQUEST = struct.Struct(">ihhi")
_LENGTH_SIZE = 4
_CLIENT_ID_SIZE = struct.Struct(">h")
_REQUEST_HEADER = struct.Struct(">hhih")
_RESPONSE = struct.Struct(">ii")
_CORRELATION_ID = struct.Struct(">i")
_ERROR_CODE = struct.Struct(">h")
_NO_TAGS = b"\0"


@define
class RequestHeader:
    """The header of every request; `api_key` may be unknown."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


class UnsupportedApiVersionError(ProtocolError):
    """A request of an API or a version that is not served; `header` names it."""

    def __init__(self, header: RequestHeader) -> None:
        super().__init__(f"API {header.api_key} version {header.api_version} is not served")
        self.header = header


@frozen(eq=False)
class _Form:
    """The frames of one version of an API."""

    api: Api
    flexible: bool
    request_tags: bytes
    response_tags: bytes


class _Forms(dict[tuple[int, int], _Form | None]):
    """The frames of each API and version that is served, filled on first use; None for another."""

    def __missing__(self, key: tuple[int, int]) -> _Form | None:
        number, version = key
        api = api_numbered(number)
        if api is None or not api.serves(version):
            return None  # and not kept: a peer may send any number
        flexible = api.is_flexible(version)
        self[key] = form = _Form(
            api,
            flexible,
            request_tags=_NO_TAGS if flexible else b"",
            response_tags=_NO_TAGS if api.response_header_is_flexible(version) else b"",
        )
        return form


_FORMS: Final = _Forms()


def _find_form_of(message_class: type, version: int) -> _Form:
    form = _FORMS[api_of(message_class).key, version]
    assert form is not None, f"{message_class.__name__} has no version {version} here"
    return form


_form_of: Callable[[type, int], _Form] = cache(_find_form_of)


def encode_request(
    request: object, *, version: int, correlation_id: int, client_id: str | None
) -> list[Part]:
    """Return the parts of a request frame, its length in front."""
    form = _form_of(type(request), version)
    body = codec.encode(request, version=version, flexible=form.flexible)
    return _request(form, version, correlation_id, client_id, body)


def encode_short_request(
    request: object, *, version: int, correlation_id: int, client_id: str | None
) -> list[Part] | None:
    """Return the parts of a short request frame; None for a long one, which is written in steps."""
    form = _form_of(type(request), version)
    body = codec.encode_short(request, version=version, flexible=form.flexible)
    return None if body is None else _request(form, version, correlation_id, client_id, body)


def encode_request_in_steps(
    request: object, *, version: int, correlation_id: int, client_id: str | None
) -> Steps[list[Part]]:
    """Return the parts of a request frame, with pauses on the way."""
    form = _form_of(type(request), version)
    body = yield from codec.encode_in_steps(request, version=version, flexible=form.flexible)
    return _request(form, version, correlation_id, client_id, body)


def _request(
    form: _Form, version: int, correlation_id: int, client_id: str | None, body: list[Part]
) -> list[Part]:
    numbers = form.api.key, version, correlation_id
    return _framed(_REQUEST, numbers, _client(client_id, form.request_tags), body)


@lru_cache
def _client(client_id: str | None, tags: bytes) -> bytes:
    """Return the end of a request's header, which all requests of a client have in common."""
    if client_id is None:
        return _CLIENT_ID_SIZE.pack(-1) + tags
    name = client_id.encode()
    return _CLIENT_ID_SIZE.pack(len(name)) + name + tags


def encode_response(response: object, *, version: int, correlation_id: int) -> list[Part]:
    """Return the parts of a response frame, its length in front; records are not copied."""
    form = _form_of(type(response), version)
    body = codec.encode(response, version=version, flexible=form.flexible)
    return _framed(_RESPONSE, (correlation_id,), form.response_tags, body)


def encode_short_response(
    response: object, *, version: int, correlation_id: int
) -> list[Part] | None:
    """Return the parts of a short response frame; None for a long one, which is written in steps."""
    form = _form_of(type(response), version)
    body = codec.encode_short(response, version=version, flexible=form.flexible)
    return None if body is None else _framed(_RESPONSE, (correlation_id,), form.response_tags, body)


def encode_response_in_steps(
    response: object, *, version: int, correlation_id: int
) -> Steps[list[Part]]:
    """Return the parts of a response frame, with pauses on the way."""
    form = _form_of(type(response), version)
    body = yield from codec.encode_in_steps(response, version=version, flexible=form.flexible)
    return _framed(_RESPONSE, (correlation_id,), form.response_tags, body)


def decode_request(frame: memoryview) -> tuple[RequestHeader, object]:
    """Return header and message; raise UnsupportedApiVersionError if it is not served."""
    header, form, position = _request_body(frame)
    message: object = codec.decode(
        form.api.request, frame, position, version=header.api_version, flexible=form.flexible
    )
    return header, message


def request_header(frame: memoryview) -> tuple[RequestHeader, int | None]:
    """Return the header of any request, and where its body begins; None if it is not served."""
    try:
        header, _, position = _request_body(frame)
    except UnsupportedApiVersionError as error:
        return error.header, None
    return header, position


def decode_request_in_steps(frame: memoryview) -> Steps[tuple[RequestHeader, object]]:
    """Return header and message; a long request is read in steps."""
    header, form, position = _request_body(frame)
    message: object = yield from codec.decode_in_steps(
        form.api.request,
        frame,
        position,
        version=header.api_version,
        flexible=form.flexible,
        most_items=MAX_ITEMS_OF.get(form.api.key, MAX_ITEMS),
    )
    return header, message


def decode_response(frame: memoryview, *, api_key: ApiKey, version: int) -> tuple[int, object]:
    """Return correlation id and message of the answer to a request of `version`."""
    correlation_id, version, flexible, position = _response_body(frame, api_key, version)
    message: object = codec.decode(
        API[api_key].response, frame, position, version=version, flexible=flexible
    )
    return correlation_id, message


def decode_response_in_steps(
    frame: memoryview, *, api_key: ApiKey, version: int
) -> Steps[tuple[int, object]]:
    """Return correlation id and message; a long response is read in steps."""
    correlation_id, version, flexible, position = _response_body(frame, api_key, version)
    message: object = yield from codec.decode_in_steps(
        API[api_key].response,
        frame,
        position,
        version=version,
        flexible=flexible,
        most_items=len(frame),
    )
    return correlation_id, message


def refusal(header: RequestHeader) -> list[Part] | None:
    """Return the response to a request that is not served; None if the connection is closed.

    Only ApiVersions has one (KIP-511): version 0, the error, and the range of versions.
    """
    if header.api_key != ApiKey.API_VERSIONS:
        return None
    api = API[ApiKey.API_VERSIONS]
    known = ApiVersion(
        api_key=api.key, min_version=api.advertised_from, max_version=api.max_version
    )
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[known])
    return encode_response(response, version=0, correlation_id=header.correlation_id)


def total_size(parts: Iterable[Part], size: int = 0) -> int:
    """Return the size of all parts in bytes, and of `size` bytes before them."""
    for part in parts:
        size += len(part) if type(part) is bytes else size_of(part)
    return size


def _framed(
    head: struct.Struct, numbers: tuple[int, ...], after: bytes, body: list[Part]
) -> list[Part]:
    """Return the parts of a frame: its size and `numbers` as `head` packs them, `after`, the body."""
    if body:
        # The first part is small and ours: whatever comes before the first records.
        first = body[0]
        assert type(first) is bytes, "a message begins with a field, not with records"
        after += first
    size = total_size(body[1:], head.size - _LENGTH_SIZE + len(after))
    return [head.pack(size, *numbers) + after, *body[1:]]


def _request_body(frame: memoryview) -> tuple[RequestHeader, _Form, int]:
    """Return the header, how the request is framed, and where its body begins."""
    try:
        key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame)
        position = _REQUEST_HEADER.size
        client_id = None
        if length != -1:
            if not 0 <= length <= frame.nbytes - position:
                raise ProtocolError(f"a client id of {length} bytes")
            client_id = str(frame[position : position + length], "utf-8")
            position += length
    except (struct.error, UnicodeDecodeError) as broken:
        raise ProtocolError(f"not a request header: {broken}") from broken
    header = RequestHeader(key, version, correlation_id, client_id)
    form = _FORMS[header.api_key, header.api_version]
    if form is None:
        raise UnsupportedApiVersionError(header)
    return header, form, _behind_tags(frame, position, form.request_tags)


def _response_body(frame: memoryview, api_key: ApiKey, version: int) -> tuple[int, int, bool, int]:
    """Return the correlation id, and the body's version, whether it is flexible, and its place."""
    form = _FORMS[api_key, version]
    assert form is not None, f"{api_key.name} has no version {version} here"
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
    except struct.error as broken:
        raise ProtocolError(f"a response of {len(frame)} bytes") from broken
    position = _behind_tags(frame, _CORRELATION_ID.size, form.response_tags)
    if api_key is ApiKey.API_VERSIONS and _was_downgraded(frame, position):
        return correlation_id, 0, form.api.is_flexible(0), position
    return correlation_id, version, form.flexible, position


def _behind_tags(frame: memoryview, position: int, tags: bytes) -> int:
    """Return the end of a header's tagged section, where it has one; all tags are unknown."""
    if not tags:
        return position
    try:
        return position + 1 if frame[position] == 0 else skip_tags(frame, position)
    except IndexError as broken:
        raise ProtocolError("a header that ends within its tags") from broken


def _was_downgraded(frame: memoryview, position: int) -> bool:
    """Return whether a response to ApiVersions is the body of version 0, with an error."""
    if len(frame) < position + _ERROR_CODE.size:
        return False
    (error_code,) = _ERROR_CODE.unpack_from(frame, position)
    return bool(error_code == ErrorCode.UNSUPPORTED_VERSION)
