"""The messages between a node and the process that steers it, over the node's standard input.

    to the node      state, sequence, rules, cuts, ports, wants_events
                                                           all faults and cuts from now on
                     fired, question, hit, rules           the matching rules that fire
                     look, question, partitions            a question for its replicas of these
    from the node    heard, sequence                       it applies that state
                     matched, question, rules, call        a request that these rules match
                     answered, hit, text                   the result of a request that was hit
                     seen, question, replicas              its replicas of these partitions
                     happened, entry                       an event as in journals, if wanted

Rule 1: a state is complete: a node that has heard the newest one needs no earlier one.

Rule 2: a node begins when it has heard its first state, and shuts down in good order when the line
ends.

Rule 3: the steering process counts calls. So a rule that fires once does so once in the cluster,
whichever node is asked.
"""

import socket
from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeAlias

import attrs
import msgpack
import trio

from replication.faults import Call
from replication.faults.rules.parts import NamedPart
from replication.wire.apis import ApiKey

Hear: TypeAlias = Callable[[list[Any]], None]
_RECEIVED_BYTES = 64 * 1024


class Word(StrEnum):
    """The first item of a message, which names its kind."""

    STATE = "state"
    HEARD = "heard"
    MATCHED = "matched"
    FIRED = "fired"
    ANSWERED = "answered"
    LOOK = "look"
    SEEN = "seen"
    HAPPENED = "happened"


@attrs.define(eq=False)
class SteeringLine:
    """Messages in msgpack, both ways, over one end of a socket pair; the socket stays open."""

    _socket: socket.socket
    _unsent: bytearray = attrs.field(init=False, factory=bytearray)
    _more: trio.Event = attrs.field(init=False, factory=trio.Event)

    def say(self, word: Word, *rest: object) -> None:
        """Send a message as soon as the other side takes it, without waiting for that."""
        self._unsent += msgpack.packb([word.value, *rest])
        self._more.set()

    async def run(self, hear: Hear) -> None:
        """Exchange messages until the other side is gone."""
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(self._socket.dup()))
        async with stream, trio.open_nursery() as nursery:
            nursery.start_soon(self._send, stream)
            await _receive(stream, hear)
            nursery.cancel_scope.cancel()

    async def _send(self, stream: trio.SocketStream) -> None:
        try:
            while True:
                await self._more.wait()
                self._more = trio.Event()
                unsent, self._unsent = self._unsent, bytearray()
                await stream.send_all(unsent)
        except trio.BrokenResourceError:
            pass  # `_receive` ends too


async def _receive(stream: trio.SocketStream, hear: Hear) -> None:
    messages = msgpack.Unpacker(strict_map_key=False)
    try:
        while data := await stream.receive_some(_RECEIVED_BYTES):
            messages.feed(data)
            for message in messages:
                hear(message)
    except trio.BrokenResourceError:
        pass  # it was killed with unread data


def facts_of(call: Call) -> list[object]:
    """Return what the steering process needs to know of a call."""
    parts = [(each.topic, each.partition) for each in call.parts]
    return [call.api, call.version, call.client_id, call.peer, call.broker, parts, call.wall_ms]


def call_of(facts: list[Any]) -> Call:
    """Return the call of `facts`; it lacks the request, which only matching needs."""
    api, version, client_id, peer, broker, parts, wall_ms = facts
    return Call(
        api=ApiKey(api),
        version=version,
        client_id=client_id,
        peer=peer,
        broker=broker,
        of_broker=False,
        request=None,
        parts=tuple(NamedPart(topic, partition) for topic, partition in parts),
        names_all=False,
        wall_ms=wall_ms,
    )
