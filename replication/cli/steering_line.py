"""What a node and the process that steers it say to each other, over the node's standard input.

    to the node      state, sequence, rules, cuts, ports, wants_events
                                                           what goes wrong from now on: all of it
                     fired, question, hit, rules           those of the matching rules that fire
                     look, question, partitions            what the node has of them
    from the node    heard, sequence                       it holds to that state
                     matched, question, rules, call        a request that these rules match
                     answered, hit, text                   what became of one that was hit
                     seen, question, replicas              what it has of each partition asked for
                     happened, entry                       an event, as journals have it, if that is wanted

Rule 1: a state is whole. Who has heard of the newest one has heard of everything.

Rule 2: a node begins when it has heard of one, and leaves in good order when the line ends.

Rule 3: calls are counted by who steers, so a rule that fires once does so once in a cluster,
whichever of its processes is asked.
"""

import socket
from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeAlias

import attrs
import msgpack
import trio

from replication.faults import Call
from replication.faults.rules.parts import Part
from replication.wire.apis import ApiKey

Hear: TypeAlias = Callable[[list[Any]], None]
_RECEIVED_BYTES = 64 * 1024


class Word(StrEnum):
    """What a message begins with."""

    STATE = "state"
    HEARD = "heard"
    MATCHED = "matched"
    FIRED = "fired"
    ANSWERED = "answered"
    LOOK = "look"
    SEEN = "seen"
    HAPPENED = "happened"


@attrs.define(eq=False)
class Line:
    """Messages in msgpack, both ways, over one end of a socket pair; the socket stays open."""

    _socket: socket.socket
    _unsent: bytearray = attrs.field(init=False, factory=bytearray)
    _more: trio.Event = attrs.field(init=False, factory=trio.Event)

    def say(self, word: Word, *rest: object) -> None:
        """Sent as soon as the other side takes it; nobody waits for that."""
        self._unsent += msgpack.packb([word.value, *rest])
        self._more.set()

    async def run(self, hear: Hear) -> None:
        """Until the other side is gone."""
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
            pass  # what is received tells of the end


async def _receive(stream: trio.SocketStream, hear: Hear) -> None:
    messages = msgpack.Unpacker(strict_map_key=False)
    try:
        while data := await stream.receive_some(_RECEIVED_BYTES):
            messages.feed(data)
            for message in messages:
                hear(message)
    except trio.BrokenResourceError:
        pass  # it was killed with something unread: the same end


def facts_of(call: Call) -> list[object]:
    """What is told of a call where it is counted."""
    parts = [(each.topic, each.partition) for each in call.parts]
    return [call.api, call.version, call.client_id, call.peer, call.broker, parts, call.wall_ms]


def call_of(facts: list[Any]) -> Call:
    """The same there: without the request, which is only needed where rules are matched."""
    api, version, client_id, peer, broker, parts, wall_ms = facts
    return Call(
        api=ApiKey(api),
        version=version,
        client_id=client_id,
        peer=peer,
        broker=broker,
        of_broker=False,
        request=None,
        parts=tuple(Part(topic, partition) for topic, partition in parts),
        names_all=False,
        wall_ms=wall_ms,
    )
