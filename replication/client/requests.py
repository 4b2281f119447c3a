"""A request before its version is known, and the answer that is waited for.

A client learns which versions a broker speaks when it connects, after it has decided what
to ask. So a request is a function of the version; `ask` makes one of a message that says
the same in all of them.

    pending = network.send(node, ask(MetadataRequest(...)))
    response = await pending.wait()      # cancelled: the answer is read all the same, and dropped
    pending.version                      # the one that was spoken

Who has more to do than to wait takes `on_done`, which is called at once and in the task of the
connection: a task for each answer would cost as much as the request.
"""

from collections.abc import Callable
from typing import Any

import attrs
import trio

from replication.client.errors import UnsupportedVersionError
from replication.errors import PeerUnavailableError, ProtocolError
from replication.net.exchange import Call
from replication.wire.apis import API, ApiKey, api_of

MAX_VERSION = 32767


@attrs.frozen(kw_only=True)
class ClientRequest:
    """What to ask, for whatever version is chosen between the two bounds."""

    api_key: ApiKey
    build: Callable[[int], object]
    min_version: int = 0
    max_version: int = MAX_VERSION
    answered: bool = True
    """False for the one request that has no response: Produce with acks=0."""

    def __str__(self) -> str:
        return self.api_key.name

    def version_for(self, offered: tuple[int, int] | None) -> int:
        """The newest version that this code, the broker and the request allow."""
        api = API[self.api_key]
        if offered is None:
            raise UnsupportedVersionError(f"the broker does not serve {self}")
        low = max(api.min_version, self.min_version, offered[0])
        high = min(api.max_version, self.max_version, offered[1])
        if low > high:
            raise UnsupportedVersionError(
                f"{self}: versions {max(api.min_version, self.min_version)} to"
                f" {min(api.max_version, self.max_version)} are needed,"
                f" the broker serves {offered[0]} to {offered[1]}"
            )
        return high


def ask(
    message: object,
    *,
    min_version: int = 0,
    max_version: int = MAX_VERSION,
    answered: bool = True,
) -> ClientRequest:
    """A request whose message is the same in every version."""
    return ClientRequest(
        api_key=api_of(type(message)).key,
        build=lambda _: message,
        min_version=min_version,
        max_version=max_version,
        answered=answered,
    )


@attrs.define(eq=False)
class PendingResponse:
    """An answer to come: exactly one of `complete` and `fail` is called, once."""

    request: ClientRequest
    on_done: "Callable[[PendingResponse], None] | None" = attrs.field(default=None, kw_only=True)
    """Told once, when there is a `result`."""
    deadline: float = attrs.field(kw_only=True)
    """By the node's clock; an answer later than that costs the connection."""
    call: Call | None = attrs.field(init=False, default=None)
    """The request under its number, once it is sent."""
    _response: Any = attrs.field(init=False, default=None)
    _error: Exception | None = attrs.field(init=False, default=None)
    _done: trio.Event = attrs.field(init=False, factory=trio.Event)

    def __str__(self) -> str:
        return str(self.call or self.request)

    @property
    def version(self) -> int:
        """The version in which the request was sent; -1 before."""
        return -1 if self.call is None else self.call.version

    @property
    def done(self) -> bool:
        return self._done.is_set()

    async def wait(self) -> Any:
        """The response. PeerUnavailableError or ProtocolError where none came, and
        UnsupportedVersionError where none could have.
        """
        await self._done.wait()
        return self.result()

    def result(self) -> Any:
        """The same, once it is done."""
        assert self.done, "it is waited for first"
        if self._error is not None:
            raise _again(self._error) from self._error
        return self._response

    def complete(self, response: object) -> None:
        assert not self.done, "a request is answered once"
        self._response = response
        self._end()

    def fail(self, error: Exception) -> None:
        assert not self.done, "a request that was answered has not failed"
        self._error = error
        self._end()

    def _end(self) -> None:
        self._done.set()
        if self.on_done is not None:
            self.on_done(self)


def _again(error: Exception) -> Exception:
    """One for each waiter: an exception that is raised twice gathers both tracebacks."""
    if isinstance(error, PeerUnavailableError | ProtocolError | UnsupportedVersionError):
        copy = type(error).__new__(type(error), *error.args)
        copy.__dict__.update(error.__dict__)
        return copy
    return error
