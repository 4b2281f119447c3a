"""The answers of one connection that are still to come, sent in the order of its requests.

    produce 1   append ─────────── followers ────────── answer
    produce 2          append ─────────── followers ────────── answer
    metadata                                                   handler ── answer
                |      |                                       |
                the next request is read here                  and here: the line is empty

Rule 1: a handler that waits only for something to happen elsewhere returns `Later`: Produce with
acks=all, and Fetch without enough to read. Its connection reads the next request then. A request of
`MAY_FOLLOW` is handled while others of its API are still to be answered, since their handlers wait
after their own work is done. Any other request waits until the line is empty, so that it sees what
the earlier ones have done.

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
from typing import Any, Final, TypeAlias

import attrs
import trio

from replication.errors import OnBug, PeerUnavailableError
from replication.net.framing import send_parts, send_parts_at_once
from replication.net.idle import IdleWatch
from replication.net.seams import Connection
from replication.server.request_metrics import Counts, RequestMetrics, Stopwatch
from replication.wire.apis import ApiKey
from replication.wire.frames import encode_response, encode_short_response
from replication.wire.schema import Part
from storage.attributes import define, frozen
from storage.errors import RegionAbortedError

MAY_FOLLOW: Final = frozenset({ApiKey.PRODUCE})
MakeResponse: TypeAlias = Callable[[], Any]
MOST_IN_LINE: Final = 16


@frozen(eq=False)
class Later:
    """The response that a handler will have when something has happened.

    `start` takes a function that is called once, then, with one that makes the response: that is
    short, because it runs in the middle of other work. `start` returns a function that gives the
    wait up.
    """

    start: Callable[[Callable[[MakeResponse], object]], Callable[[], object]]

    def then(self, change: Callable[[Any], Any]) -> "Later":
        """Return the same response after `change`, which is short, too."""
        return Later(lambda respond: self.start(lambda make: respond(lambda: change(make()))))

    async def response(self) -> Any:
        """Return the response, when it is there."""
        made: list[MakeResponse] = []
        done = trio.Event()

        def note(make: MakeResponse) -> None:
            made.append(make)
            done.set()

        give_up = self.start(note)
        try:
            await done.wait()
        finally:
            give_up()
        return made[0]()


async def present(answer: Awaitable[Any]) -> Any:
    """Return the response of a handler, even if that returns `Later`."""
    response = await answer
    return await response.response() if isinstance(response, Later) else response


@define(eq=False)
class _Place:
    """The place of one request in the line."""

    version: int
    correlation_id: int
    counts: Sequence[Counts]
    received: float
    handler: float
    began: float
    """The moment at which the wait began."""
    waited: float
    """How long the handler had waited before, and then the wait, too."""
    answer: float = 0.0
    parts: Sequence[Part] | None = None
    """The frame of the answer, as soon as there is one."""
    give_up: Callable[[], object] | None = None


@define(eq=False)
class AnswerLine:
    """The requests of one connection whose answers are still to come."""

    connection: Connection
    now: Callable[[], float]
    idle: IdleWatch
    metrics: RequestMetrics
    start_soon: Callable[..., object]
    """Starts a task that may outlive the one of the connection, as a nursery does."""
    on_bug: OnBug
    places: deque[_Place] = attrs.field(init=False, factory=deque)
    """The requests whose answers have not been sent, in order."""
    _key: ApiKey | None = attrs.field(init=False, default=None)
    """The API of the requests in line."""
    _sending: bool = attrs.field(init=False, default=False)
    """Whether a task sends an answer."""
    _shorter: trio.Event | None = attrs.field(init=False, default=None)

    async def wait_until_shorter_than(self, length: int) -> None:
        while len(self.places) >= length:
            self._shorter = trio.Event()
            await self._shorter.wait()

    async def wait_for_turn(self, key: ApiKey) -> None:
        """Wait until a request of `key` may be handled (Rule 1)."""
        if key not in MAY_FOLLOW or key is not self._key:
            await self.wait_until_shorter_than(1)

    def add(
        self,
        later: Later,
        *,
        key: ApiKey,
        version: int,
        correlation_id: int,
        counts: Sequence[Counts],
        watch: Stopwatch,
    ) -> None:
        """Take a request into the line that is answered later."""
        self._key = key
        place = _Place(
            version,
            correlation_id,
            counts,
            watch.received,
            watch.handler,
            watch.answer,
            watch.waited.seconds,
        )
        self.places.append(place)
        self.idle.answering += 1
        place.give_up = later.start(partial(self._answered, place))

    def add_ready(
        self, parts: Sequence[Part], *, counts: Sequence[Counts], watch: Stopwatch
    ) -> None:
        """Take an answer into the line that is ready, behind others that are not."""
        place = _Place(0, 0, counts, watch.received, watch.handler, watch.answer, 0.0)
        place.answer, place.parts = watch.answer, parts
        self.places.append(place)

    def close(self) -> None:
        """Close the connection, and give up all waits; nothing is sent any more."""
        self.connection.close()
        for place in self.places:
            if place.give_up is not None:
                place.give_up()
        self.places.clear()
        if self._shorter is not None:
            self._shorter.set()

    def _answered(self, place: _Place, make: MakeResponse) -> None:
        """Send what is ready; an error in it closes this connection, and concerns nobody else."""
        place.answer = self.now()
        place.waited += place.answer - place.began
        self.idle.answering -= 1
        try:
            response, version, number = make(), place.version, place.correlation_id
            place.parts = encode_short_response(
                response, version=version, correlation_id=number
            ) or encode_response(response, version=version, correlation_id=number)
            self._send_ready()
        except Exception as error:  # noqa: BLE001 - it must not reach the request that answers us
            self._failed(error)

    def _send_ready(self) -> None:
        while self.places and not self._sending:
            place = self.places[0]
            if place.parts is None:
                break
            if rest := send_parts_at_once(self.connection, place.parts):
                self._sending = True
                self.start_soon(self._send_rest, rest, place)
                break
            self._sent(place)

    async def _send_rest(self, rest: Sequence[Part], place: _Place) -> None:
        try:
            await send_parts(self.connection, rest)
            self._sending = False
            if self.places and self.places[0] is place:  # the line may be closed
                self._sent(place)
                self._send_ready()
        except Exception as error:  # noqa: BLE001 - it must not reach other connections
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, (PeerUnavailableError, RegionAbortedError)):
            error.add_note(f"answering {self.connection.peer}")
            self.on_bug(error)
        self.close()  # which ends the connection's task

    def _sent(self, place: _Place) -> None:
        self.places.popleft()
        if self._shorter is not None:
            self._shorter.set()
        answer = place.answer
        self.idle.since = sent = self.now()
        moments = (place.received, place.handler, answer, answer, sent, place.waited)
        self.metrics.answered(place.counts, moments)
