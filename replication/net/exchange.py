"""The protocol of one connection to a Kafka broker, without the waiting.

    ask_versions   ApiVersions, the newest version first (KIP-511)
    Exchange       numbers each request, and reads the response to it
    SentRequest    one request that has its number

Four carriers move the bytes, because they wait in different ways:

    replication.net.sasl            a login: the connection has no other user yet
    replication.net.rpc             the caller reads its response itself: no task, and the buffer
                                    of a fetcher is used again
    replication.client.connection   a task reads: callers may be cancelled, and the connection lives
    replication.client.blocking     a thread without a trio loop waits on its socket

A broker answers in the order in which it was asked, so each carrier keeps its calls in line and
reads a response with the call that is first.
"""

from collections.abc import Awaitable, Callable, Mapping

import attrs

from replication.errors import ErrorCode, ProtocolError
from replication.net.pace import in_steps
from replication.steps import Steps
from replication.wire.api_versions import ApiVersionsRequest, ApiVersionsResponse
from replication.wire.apis import API, ApiKey, api_of
from replication.wire.frames import (
    AT_ONCE_BYTES,
    decode_response,
    decode_response_in_steps,
    encode_request,
    encode_request_in_steps,
    encode_short_request,
)
from replication.wire.schema import Part
from storage.attributes import define, frozen

SOFTWARE_NAME = "understudy"
SOFTWARE_VERSION = "0.1.0"
_MAX_CORRELATION_ID = 2**31 - 1

Versions = Mapping[int, tuple[int, int]]
"""The lowest and the highest version that a broker serves, by API key."""


@frozen(eq=False)
class SentRequest:
    """A request under the number that its response will carry."""

    api_key: ApiKey
    version: int
    correlation_id: int

    def __str__(self) -> str:
        return f"{self.api_key.name} v{self.version}"


@define(eq=False)
class Exchange:
    """Requests out and responses in, for one connection to `peer`."""

    peer: str
    client_id: str
    _last_correlation_id: int = attrs.field(init=False, default=-1)

    def number(self, message: object, version: int) -> SentRequest:
        last = self._last_correlation_id
        self._last_correlation_id = 0 if last == _MAX_CORRELATION_ID else last + 1
        return SentRequest(api_of(type(message)).key, version, self._last_correlation_id)

    def frame(self, call: SentRequest, message: object) -> list[Part]:
        """Return the parts of the frame that carries `message`."""
        return encode_request(
            message,
            version=call.version,
            correlation_id=call.correlation_id,
            client_id=self.client_id,
        )

    def short_frame(self, call: SentRequest, message: object) -> list[Part] | None:
        """Return the parts of the same frame; None for a message that takes steps."""
        return encode_short_request(
            message,
            version=call.version,
            correlation_id=call.correlation_id,
            client_id=self.client_id,
        )

    def frame_in_steps(self, call: SentRequest, message: object) -> Steps[list[Part]]:
        """Return the parts of the frame that carries `message`, with pauses on the way."""
        return encode_request_in_steps(
            message,
            version=call.version,
            correlation_id=call.correlation_id,
            client_id=self.client_id,
        )

    def read(self, call: SentRequest, frame: memoryview) -> object:
        """Return the response to `call`; raise ProtocolError if `frame` is not that."""
        return self._checked(
            call, *decode_response(frame, api_key=call.api_key, version=call.version)
        )

    async def read_in_turns(self, call: SentRequest, frame: memoryview) -> object:
        """Return the response to `call`; other tasks have their turn while a long one is read."""
        if frame.nbytes <= AT_ONCE_BYTES:
            answer = decode_response(frame, api_key=call.api_key, version=call.version)
            return self._checked(call, *answer)
        steps = decode_response_in_steps(frame, api_key=call.api_key, version=call.version)
        return self._checked(call, *await in_steps(steps))

    def _checked(self, call: SentRequest, correlation_id: int, response: object) -> object:
        if correlation_id != call.correlation_id:
            raise ProtocolError(
                f"{self.peer} answered request {correlation_id}, not {call.correlation_id} ({call})"
            )
        return response


@frozen
class Features:
    """The finalized features of a cluster, and the epoch of its metadata that has them (KIP-584)."""

    epoch: int = -1
    levels: Mapping[str, int] = attrs.field(factory=dict)


async def ask_versions(
    peer: str, ask: Callable[[ApiVersionsRequest, int], Awaitable[object]]
) -> tuple[Versions, Features]:
    """Return the versions and features of a broker; `ask` sends a request in a version.

    A broker that does not know our newest ApiVersions names the newest that it does know.
    ProtocolError if the broker answers with an error or serves nothing.
    """
    request = ApiVersionsRequest(
        client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
    )
    version = API[ApiKey.API_VERSIONS].max_version
    response = await ask(request, version)
    assert isinstance(response, ApiVersionsResponse)
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        known = [each for each in response.api_keys if each.api_key == ApiKey.API_VERSIONS]
        older = known[0].max_version if known else 0
        response = await ask(request, max(min(older, version - 1), 0))
        assert isinstance(response, ApiVersionsResponse)
    if response.error_code != ErrorCode.NONE or not response.api_keys:
        error = ErrorCode.of(response.error_code)
        raise ProtocolError(f"{peer} does not say what it serves: {error.name}")
    versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    levels = {each.name: each.max_version_level for each in response.finalized_features}
    return versions, Features(response.finalized_features_epoch, levels)
