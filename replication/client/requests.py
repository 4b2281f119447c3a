"""A request before its version is known, and its pending response.

A client learns the versions of a broker when it connects, after it has decided what to ask. So a
request is a function of the version; `ask` makes one of a message that is the same in all versions.

    pending = network.send(node, ask(MetadataRequest(...)))
    response = await pending.wait()      # if cancelled, the response is still read, and dropped
    pending.version                      # the version in which it was sent

Callers that do not wait pass `on_done`, which is called at once and in the task of the connection:
a task for each response would cost as much as the request.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import attrs
import trio

from replication.client.errors import UnsupportedVersionError, raised_again
from replication.net.exchange import SentRequest
from replication.wire.apis import API, ApiKey, api_of
from replication.wire.schema import MAX_VERSION, Kind, fields_of
from storage.attributes import define, frozen
from storage.types import TopicPartition

T = TypeVar("T")


@frozen(kw_only=True)
class ClientRequest:
    """A request in any version between two bounds."""

    api_key: ApiKey
    build: Callable[[int], object]
    min_version: int = 0
    max_version: int = MAX_VERSION
    answered: bool = True
    """False for the only request without a response: Produce with acks=0."""

    def __str__(self) -> str:
        return self.api_key.name

    def version_for(self, offered: tuple[int, int] | None) -> int:
        """Return the newest version that this code, the broker and the request allow."""
        api = API[self.api_key]
        if offered is None:
            raise UnsupportedVersionError(f"the broker does not serve {self}")
        low = max(api.min_version, self.min_version, offered[0])
        high = min(api.named_until, self.max_version, offered[1])
        if low > high:
            raise UnsupportedVersionError(
                f"{self}: versions {max(api.min_version, self.min_version)} to"
                f" {min(api.named_until, self.max_version)} are needed,"
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
    """Return a request whose message is the same in every version."""
    return ClientRequest(
        api_key=api_of(type(message)).key,
        build=lambda _: message,
        min_version=min_version,
        max_version=max_version,
        answered=answered,
    )


@define(eq=False)
class PendingResponse:
    """A response to come: exactly one of `complete` and `fail` is called, once."""

    request: ClientRequest
    on_done: "Callable[[PendingResponse], None] | None" = attrs.field(default=None, kw_only=True)
    """Called once, when there is a `result`."""
    deadline: float = attrs.field(kw_only=True)
    """In seconds of the node's clock; a response that is later ends the connection."""
    call: SentRequest | None = attrs.field(init=False, default=None)
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
        """Return the response.

        PeerUnavailableError or ProtocolError if none came, UnsupportedVersionError if the broker
        serves no version of the request.
        """
        await self._done.wait()
        return self.result()

    def result(self) -> Any:
        """Return the response, or raise the error, of a request that is done."""
        assert self.done, "it is waited for first"
        if self._error is not None:
            raise raised_again(self._error) from self._error
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


def nested(
    partitions: Iterable[TopicPartition],
    topic: type[T],
    item: Callable[[TopicPartition], Any] = lambda tp: tp.partition,
) -> list[T]:
    """Return one `topic` of a request for each topic, with the `item` of each of its partitions.

    The first field of the class `topic` is the name of a topic, and its only array has the items.
    """
    grouped: dict[str, list[Any]] = {}
    for name, number in partitions:
        grouped.setdefault(name, []).append(item(TopicPartition(name, number)))
    kind: Any = topic
    topic_name, *_ = (field.name for field in fields_of(kind))
    items = next(field.name for field in fields_of(kind) if field.wire.kind is Kind.ARRAY)
    return [topic(**{topic_name: name, items: each}) for name, each in grouped.items()]
