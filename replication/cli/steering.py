"""A node that another process steers, and the messages between the two.

    steered = SteeredNode(node_id)
    Broker(seams=steered.seams, faults=steered.faults, ...)
    await nursery.start(steered.run)     # has started once it has its first state
    await steered.parent_gone.wait()     # the steering process is gone

The messages go over the node's standard input:

    to the node      state, sequence, rules, cuts, ports, wants_events
                                                           all faults and cuts from now on
                     fired, question, hit, rules           the matching rules that fire
                     look, question, partitions            a question for its replicas of these
    from the node    applied, sequence                     it applies that state
                     matched, question, rules, call        a request that these rules match
                     answered, hit, text                   the result of a request that was hit
                     seen, question, replicas              its replicas of these partitions
                     happened, entry                       an event as in journals, if wanted

Rule 1: a state is complete: a node that has the newest one needs no earlier one.

Rule 2: a node begins when it has its first state, and shuts down in good order when the line
ends.

Rule 3: the node finds the rules that match a request. The steering process counts calls and decides
which rules fire. So a rule that fires once does so once in the cluster, whichever node is asked.
"""

import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import msgpack
import trio

from replication.cli.running import STANDARD_INPUT
from replication.events import Event, FollowersBehind, HighWatermarkAdvanced, MetadataApplied
from replication.faults import AddedRule, Call, FaultDecision, applied
from replication.faults.impairments import Impairments
from replication.faults.node_faults import Faults
from replication.faults.rules.as_json import rule_from_json
from replication.faults.rules.parts import NamedPart
from replication.net.seams import Seams
from replication.observe.journal import encode_entry
from replication.wire.apis import ApiKey
from storage.attributes import define
from storage.types import TopicPartition

if TYPE_CHECKING:
    from replication.leader.partition import Partition


OnMessage: TypeAlias = Callable[[list[Any]], None]
_RECEIVED_BYTES = 64 * 1024

FREQUENT = (FollowersBehind, HighWatermarkAdvanced, MetadataApplied)


class SteeringWord(StrEnum):
    """The first item of a message, which names its kind."""

    STATE = "state"
    APPLIED = "applied"
    MATCHED = "matched"
    FIRED = "fired"
    ANSWERED = "answered"
    LOOK = "look"
    SEEN = "seen"
    HAPPENED = "happened"


@define(eq=False)
class SteeringLine:
    """Messages in msgpack, both ways, over one end of a socket pair; the socket stays open."""

    _socket: socket.socket
    _unsent: bytearray = attrs.field(init=False, factory=bytearray)
    _more: trio.Event = attrs.field(init=False, factory=trio.Event)

    def send(self, word: SteeringWord, *rest: object) -> None:
        """Send a message as soon as the other side takes it, without waiting for that."""
        self._unsent += msgpack.packb([word.value, *rest])
        self._more.set()

    async def run(self, on_message: OnMessage) -> None:
        """Exchange messages until the other side is gone."""
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(self._socket.dup()))
        async with stream, trio.open_nursery() as nursery:
            nursery.start_soon(self._send, stream)
            await _receive(stream, on_message)
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


async def _receive(stream: trio.SocketStream, on_message: OnMessage) -> None:
    messages = msgpack.Unpacker(strict_map_key=False)
    try:
        while data := await stream.receive_some(_RECEIVED_BYTES):
            messages.feed(data)
            for message in messages:
                on_message(message)
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


@define(eq=False)
class _FiringQuestion:
    answered: trio.Event = attrs.field(init=False, factory=trio.Event)
    hit: int = attrs.field(init=False, default=0)
    fired: frozenset[int] = attrs.field(init=False, default=frozenset())


@define(eq=False)
class SteeredNode:
    """A node steered by the process at the other end of its standard input."""

    node_id: int
    hosted: Callable[[], Mapping[TopicPartition, "Partition"]] = dict
    """Returns the broker's replicas; none on a controller."""
    seams: Seams = attrs.field(init=False)
    faults: Faults = attrs.field(init=False)
    parent_gone: trio.Event = attrs.field(init=False, factory=trio.Event)
    _impairments: Impairments = attrs.field(init=False, factory=Impairments)
    _line: SteeringLine = attrs.field(init=False)
    _wants_events: bool = attrs.field(init=False, default=False)
    _first_state: trio.Event = attrs.field(init=False, factory=trio.Event)
    _numbers: "count[int]" = attrs.field(init=False, factory=count)
    _questions: dict[int, _FiringQuestion] = attrs.field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self.seams = self._impairments.seams(self.node_id)
        self.faults = Faults(self.seams.clock, judge=self._judge)
        self._line = SteeringLine(socket.socket(fileno=STANDARD_INPUT))

    def sink(self, event: Event) -> None:
        """Send an event to the steering process, if it wants events."""
        if self._wants_events and not isinstance(event, FREQUENT):
            entry = encode_entry(event, at_ms=self.seams.clock.wall_ms(), broker=self.node_id)
            self._line.send(SteeringWord.HAPPENED, entry)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until the steering process is gone; the task has started with the first state."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen)
            await self._first_state.wait()
            task_status.started()

    async def _listen(self) -> None:
        await self._line.run(self._on_message)
        self.parent_gone.set()
        self._first_state.set()

    def _on_message(self, message: list[Any]) -> None:
        match message:
            case [SteeringWord.STATE, sequence, rules, cuts, ports, wants_events]:
                self._wants_events = wants_events
                self.faults.hold_to({number: rule_from_json(words) for number, words in rules})
                self._impairments.know(dict(ports).get)
                self._impairments.hold_to(map(tuple, cuts))
                self._line.send(SteeringWord.APPLIED, sequence)
                self._first_state.set()
            case [SteeringWord.LOOK, question, names]:
                self._line.send(SteeringWord.SEEN, question, self._seen(names))
            case [SteeringWord.FIRED, number, hit, fired]:
                question = self._questions.pop(number, None)
                if question is not None:
                    question.hit, question.fired = hit, frozenset(fired)
                    question.answered.set()
            case _:
                raise AssertionError(f"the steering process never sends {message}")

    def _seen(self, names: Iterable[tuple[str, int]]) -> list[object]:
        hosted = self.hosted()
        return [
            (
                *name,
                partition.leader_epoch,
                partition.log.high_watermark,
                [
                    (each.epoch, each.start_offset)
                    for each in partition.log.leader_epoch_cache.entries
                ],
            )
            for name in (TopicPartition(topic, number) for topic, number in names)
            if (partition := hosted.get(name)) is not None
        ]

    async def _judge(self, call: Call, matching: Sequence[AddedRule]) -> FaultDecision | None:
        number, question = next(self._numbers), _FiringQuestion()
        self._questions[number] = question
        self._line.send(
            SteeringWord.MATCHED, number, [each.number for each in matching], facts_of(call)
        )
        try:
            await question.answered.wait()
        finally:
            self._questions.pop(number, None)
        fired = [each for each in matching if each.number in question.fired]
        if not fired:
            return None
        tell = partial(self._line.send, SteeringWord.ANSWERED, question.hit)
        return attrs.evolve(applied(call, fired), tell=tell)
