"""The answers of one connection that are still to come, sent in the order of its requests.

    produce 1   append ─────────── followers ────────── answer
    produce 2          append ─────────── followers ────────── answer
    metadata                                                   handler ── answer
                |      |                                       |
                the next request is read here                  and here: the line is empty

Rule 1: a handler that has done its work, and waits only for something to happen elsewhere, returns
`Later`. Its connection reads the next request then. Requests of `MAY_FOLLOW` are handled while
others are still to be answered, since each of their handlers waits only after its own work is
done; all others wait until the line is empty, so that they see what the earlier ones have done.

Rule 2: answers are sent in the order of the requests, as Kafka's clients expect. Apache Kafka reads
no request of a connection before the last one is answered; an idempotent producer with five
batches on their way waits there for five rounds of replication, here for one.

Rule 3: an answer is sent on the stack of the request that completes it, without a task of its own.
If the connection does not take it at once, a task sends the rest; until that is done the others stay in line.

Rule 4: at most `MOST_IN_LINE` requests of a connection are in line. Nothing in line refers to the
frame of its request.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import attrs
import trio

from replication.errors import OnBug, PeerUnavailableError
from replication.net.idle import IdleWatch
from replication.net.seams import Connection
from replication.server.request_metrics import Counts, RequestMetrics, Stopwatch
from replication.wire.apis import ApiKey
from replication.wire.frames import encode_response
from replication.wire.schema import Part
from storage.types import Buffer

MAY_FOLLOW: Final = frozenset({ApiKey.PRODUCE})
MOST_IN_LINE: Final = 16


@attrs.frozen(eq=False)
class Later:
    """The response that a handler will have when something has happened.

    `start` takes a function that is called with the response, once, in the middle of other work:
    it is short, and it does not fail. It returns a function that gives the wait up.
    """

    start: Callable[[Callable[[Any], object]], Callable[[], None]]

    def then(self, change: Callable[[Any], Any]) -> "Later":
        """Return the same response after `change`, which is short and does not fail either."""
        return Later(lambda respond: self.start(lambda response: respond(change(response))))

    async def response(self) -> Any:
        """Return the response, when it is there."""
        responses: list[Any] = []
        done = trio.Event()

        def note(response: Any) -> None:
            responses.append(response)
            done.set()

        give_up = self.start(note)
        try:
            await done.wait()
        finally:
            give_up()
        return responses[0]


async def present(answer: Awaitable[Any]) -> Any:
    """Return the response of a handler, even if that returns `Later`."""
    response = await answer
    return await response.response() if isinstance(response, Later) else response


@attrs.define(eq=False)
class _Place:
    """The place of one request in the line."""

    version: int
    correlation_id: int
    counts: Sequence[Counts]
    watch: Stopwatch
    parts: Sequence[Part] | None = None
    """The frame of the answer, as soon as there is one; all of it is in memory."""
    give_up: Callable[[], None] | None = None


@attrs.define(eq=False)
class AnswerLine:
    """The requests of one connection whose answers are still to come."""

    connection: Connection
    idle: IdleWatch
    metrics: RequestMetrics
    start_soon: Callable[..., object]
    """Starts a task that may outlive the one of the connection, as a nursery does."""
    on_bug: OnBug
    places: deque[_Place] = attrs.field(init=False, factory=deque)
    """The requests whose answers have not been sent, in order."""
    _sending: bool = attrs.field(init=False, default=False)
    """Whether a task sends an answer."""
    _shorter: trio.Event | None = attrs.field(init=False, default=None)

    async def wait_until_shorter_than(self, length: int) -> None:
        while len(self.places) >= length:
            self._shorter = trio.Event()
            await self._shorter.wait()

    def add(
        self,
        later: Later,
        *,
        version: int,
        correlation_id: int,
        counts: Sequence[Counts],
        watch: Stopwatch,
    ) -> None:
        """Take a request into the line that is answered later."""
        place = _Place(version, correlation_id, counts, watch.for_later())
        self.places.append(place)
        self.idle.answering += 1
        place.give_up = later.start(partial(self._answered, place))

    def add_ready(
        self, parts: Sequence[Part], *, counts: Sequence[Counts], watch: Stopwatch
    ) -> None:
        """Take an answer into the line that is ready, behind others that are not."""
        self.places.append(_Place(0, 0, counts, watch.for_later(), parts))

    def close(self) -> None:
        """Close the connection, and give up all waits; nothing is sent any more."""
        self.connection.close()
        for place in self.places:
            if place.give_up is not None:
                place.give_up()
        self.places.clear()
        self._wake()

    def _wake(self) -> None:
        if self._shorter is not None:
            self._shorter.set()

    def _answered(self, place: _Place, response: Any) -> None:
        """Send what is ready; an error in it closes this connection, and concerns nobody else."""
        place.watch.answered()
        self.idle.answering -= 1
        try:
            place.parts = encode_response(
                response, version=place.version, correlation_id=place.correlation_id
            )
            self._send_ready()
        except PeerUnavailableError:
            self.close()  # which ends the connection's task
        except Exception as error:  # noqa: BLE001 - it must not reach the request that answers us
            error.add_note(f"answering {self.connection.peer}")
            self.on_bug(error)
            self.close()

    def _send_ready(self) -> None:
        while self.places and not self._sending:
            place = self.places[0]
            if place.parts is None:
                break
            rest = self.connection.send_at_once(place.parts)  # type: ignore[arg-type] # no file
            if rest:
                self._sending = True
                self.start_soon(self._send_rest, rest, place)
                break
            self._sent(place)

    async def _send_rest(self, rest: Sequence[Buffer], place: _Place) -> None:
        try:
            await self.connection.send_buffers(rest)
            self._sending = False
            if self.places and self.places[0] is place:  # the line may be closed
                self._sent(place)
                self._send_ready()
        except PeerUnavailableError:
            self.close()

    def _sent(self, place: _Place) -> None:
        self.places.popleft()
        self._wake()
        self.idle.since = place.watch.sent = place.watch.now()
        self.metrics.answered(place.counts, place.watch)
