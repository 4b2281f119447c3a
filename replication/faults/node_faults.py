"""Fault rules at work, between a server's frames and its handlers (`replication.faults`).

    frame ── request ── any rule for it? ── no ──────────────────────> handler ── response
                              └ yes: wait, refuse, refuse a part of it, change the response,
                                     send none, or send half of it

The decision about a request is carried out in this order:

    wait ─> close-before, drop-request ─> refuse some, handle the rest
         ─> close-after, drop-answer ─> throttle ─> cut-answer, or the answer

Rule 1: without rules a request costs one look at an empty dict.

Rule 2: when a rule is removed, the requests that it holds go on: a delay ends, and a silent
connection is closed.

Rule 3: delays use the node's clock, so they are virtual in a simulation.

Rule 4: a rule counts the calls of a whole cluster. In a cluster of processes one of them counts
(`judge`), and the others ask it about matching calls.
"""

import random
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import trio

from replication.errors import ErrorCode, PeerUnavailableError, UnderstudyError
from replication.events import EventSink, FaultApplied
from replication.faults import (
    AddedRule,
    Call,
    Effect,
    FaultDecision,
    FaultRule,
    FaultRuleError,
    RuleBook,
    judged,
)
from replication.faults.rules.answers import errors_in
from replication.faults.rules.parts import NamedPart, NameOf, WantedPartition
from replication.faults.rules.refusing import refusing
from replication.net.framing import send_parts
from replication.net.regions import region_bytes
from replication.net.seams import Connection, NodeClock, Seams
from replication.wire.apis import ApiKey
from replication.wire.fetch import FetchRequest
from replication.wire.frames import RequestHeader, encode_response
from replication.wire.schema import Part
from storage.attributes import define, frozen
from storage.log.file_region import FileRegion

Respond: TypeAlias = Callable[[Any], Awaitable[Any]]
"""Returns the real response to a request."""
Gone: TypeAlias = Callable[[AddedRule], Awaitable[None]]
"""Returns when a rule is no longer in force."""

_DISCARDED_BYTES = 4096

_OF_A_BROKER = re.compile(r"broker-\d+-")


class FaultInjectedError(Exception):
    """The connection must be closed because of a rule, which the message names."""


@frozen(eq=False, kw_only=True)
class AppliedFaults:
    """One decision while it is carried out."""

    decision: FaultDecision
    header: RequestHeader
    connection: Connection
    clock: NodeClock
    gone: Gone
    name_of: NameOf

    async def answer(self, respond: Respond) -> Any:
        """Return the response; raise FaultInjectedError if the connection must be closed instead."""
        try:
            for added in self.decision.fired:
                await self._wait_for(added)
            return await self._answer(respond)
        except FaultInjectedError as closed:
            self.decision.answered(str(closed))
            raise

    async def _wait_for(self, added: AddedRule) -> None:
        if added.rule.delay_ms:
            with self.clock.move_on_after(added.rule.delay_ms / 1000):
                await self.gone(added)

    async def _answer(self, respond: Respond) -> Any:
        end = self.decision.end
        effect = None if end is None else end.rule.effect
        if effect is Effect.CLOSE_BEFORE:
            raise FaultInjectedError(f"{end}: closed, not handled")
        if end is not None and effect is Effect.DROP_REQUEST:
            await self._be_silent(end, "dropped, not handled")
        response = await self._refused_or_real(respond)
        if effect is Effect.CLOSE_AFTER:
            raise FaultInjectedError(f"{end}: handled, closed unanswered")
        if end is not None and effect is Effect.DROP_ANSWER:
            await self._be_silent(end, "handled, never answered")
        if response is None:
            self.decision.answered("no response was wanted")
            return None
        if self.decision.throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = max(response.throttle_time_ms, self.decision.throttle_ms)
        if effect is Effect.CUT_ANSWER:
            await self._send_half(response)
            raise FaultInjectedError(f"{end}: handled, the answer cut")
        self.decision.answered(_error_names(response, self.header.api_version))
        return response

    async def _refused_or_real(self, respond: Respond) -> Any:
        errors = self.decision.errors
        if not errors:
            return await respond(self.decision.call.request)
        plan = refusing(self.decision.call, errors, self.name_of)
        response = None if plan.rest is None else await respond(plan.rest)
        if plan.refusals and getattr(self.decision.call.request, "acks", None) == 0:
            raise FaultInjectedError(f"{errors[0]}: acks=0 has no response, closed")
        return plan.answer(response)

    async def _be_silent(self, added: AddedRule, why: str) -> None:
        """Wait silently until the peer leaves or the rule is removed, then raise."""
        self.decision.answered(why)
        async with trio.open_nursery() as nursery:

            async def discard() -> None:
                room = memoryview(bytearray(_DISCARDED_BYTES))
                try:
                    while await self.connection.receive_into(room):
                        pass
                except PeerUnavailableError:
                    pass
                nursery.cancel_scope.cancel()

            nursery.start_soon(discard)
            await self.gone(added)
            nursery.cancel_scope.cancel()
        raise FaultInjectedError(f"{added}: {why}")

    async def _send_half(self, response: Any) -> None:
        parts = encode_response(
            response,
            version=self.header.api_version,
            correlation_id=self.header.correlation_id,
        )
        data = b"".join(map(_bytes, parts))
        await send_parts(self.connection, [data[: len(data) // 2]])


def _bytes(part: Part) -> bytes:
    if isinstance(part, FileRegion):
        return region_bytes(part)
    assert isinstance(part, bytes | bytearray | memoryview), "in memory or in a file"
    return bytes(part)


def _error_names(response: Any, version: int) -> str:
    """Return the names of the errors in a response, or NONE."""
    codes = sorted(errors_in(response, version) - {ErrorCode.NONE})
    return ", ".join(ErrorCode.of(code).name for code in codes) or "NONE"


SessionOf: TypeAlias = Callable[[int], Iterable[WantedPartition]]
"""Returns the partitions of a fetch session by its id; none if there is no such session."""
Judge: TypeAlias = Callable[[Call, Sequence[AddedRule]], Awaitable[FaultDecision | None]]
"""Returns the decision about a call that these rules match, from the process that counts."""


class NotHitError(UnderstudyError):
    """A rule was not hit as often as expected in time."""


@define(eq=False)
class Faults:
    """The fault rules of one cluster; `add` returns a rule with its `hits` and `observed`."""

    clock: NodeClock
    judge: Judge | None = None
    """Decides in another process; None if calls are counted here."""
    node_ids: Callable[[], Collection[int]] | None = None
    """Returns the nodes of the cluster, for the check of `broker`; None if they are unknown."""
    _book: RuleBook = attrs.field(init=False, factory=RuleBook)
    _gone: dict[int, trio.Event] = attrs.field(init=False, factory=dict)
    _hit: trio.Event = attrs.field(init=False, factory=trio.Event)

    @property
    def rules(self) -> Mapping[int, AddedRule]:
        """The rules in force, by number."""
        return self._book.rules

    def add(self, rule: FaultRule) -> AddedRule:
        """Put a rule in force on every node, including nodes that start later."""
        added = self._book.add(rule)
        if self.node_ids is not None and rule.broker not in (None, *(there := self.node_ids())):
            self._book.remove(added.number)
            listed = ", ".join(map(str, there))
            raise FaultRuleError(
                "broker", f"{rule.broker} is not a node of this cluster; the nodes are {listed}"
            )
        self._gone[added.number] = trio.Event()
        return added

    def hold_to(self, rules: Mapping[int, FaultRule]) -> None:
        """Replace all rules by `rules`, under the given numbers."""
        for number in set(self.rules) - set(rules):
            self.remove(self.rules[number])
        for number in sorted(set(rules) - set(self.rules)):
            self._book.rules[number] = AddedRule(number, rules[number])
            self._gone[number] = trio.Event()

    def remove(self, rule: AddedRule) -> None:
        """Remove a rule; its counts can still be read. Removing it again does nothing."""
        if self._book.remove(rule.number) is not None:
            self._gone.pop(rule.number).set()
            self._wake_waiting()

    def clear(self) -> None:
        """Remove every rule."""
        for rule in list(self.rules.values()):
            self.remove(rule)

    async def wait_for_hits(self, rule: AddedRule, hits: int = 1, *, timeout: float = 30.0) -> None:
        """Wait until the rule was applied `hits` times in all.

        Raise NotHitError after `timeout` seconds, or if the rule is removed. Raise what the rule's
        `when` has raised.
        """
        with self.clock.move_on_after(timeout):
            while rule.hits < hits and rule.mistake is None and self._is_in_force(rule):
                await self._hit.wait()
        if rule.mistake is not None:
            raise rule.mistake
        if rule.hits < hits:
            why = f"not within {timeout:g} s" if self._is_in_force(rule) else "it was removed"
            raise NotHitError(f"{why}: {rule} was hit {rule.hits} of {hits} times")

    def gate(
        self,
        node_id: int,
        seams: Seams,
        sink: EventSink,
        *,
        name_of: NameOf,
        session_of: SessionOf = lambda _: (),
    ) -> "FaultGate":
        """Return the gate of a node's server."""
        return FaultGate(
            faults=self,
            node_id=node_id,
            clock=seams.clock,
            chance=seams.chance,
            sink=sink,
            name_of=name_of,
            session_of=session_of,
        )

    def concern(self, api: ApiKey) -> bool:
        return self._book.concerns(api)

    async def decide(self, call: Call, chance: random.Random) -> FaultDecision | None:
        matching = self._book.matching(call)
        if self.judge is not None:
            return await self.judge(call, matching) if matching else None
        return self.judged(call, matching, chance)

    def judged(
        self, call: Call, matching: Iterable[AddedRule], chance: random.Random
    ) -> FaultDecision | None:
        """Return the decision about a call that these rules match; each of them counts it."""
        decision = judged(call, matching, chance)
        if decision is not None or any(each.mistake for each in self.rules.values()):
            self._wake_waiting()
        return decision

    def _wake_waiting(self) -> None:
        self._hit.set()
        self._hit = trio.Event()

    def _is_in_force(self, rule: AddedRule) -> bool:
        return rule.number in self.rules

    async def gone(self, rule: AddedRule) -> None:
        """Wait until the rule is no longer in force."""
        if self._is_in_force(rule):
            await self._gone[rule.number].wait()


@define(eq=False, kw_only=True)
class FaultGate:
    """The gate through which every request of one node's server goes."""

    faults: Faults
    node_id: int
    clock: NodeClock
    chance: random.Random
    sink: EventSink
    name_of: NameOf
    session_of: SessionOf
    rules: Mapping[int, AddedRule] = attrs.field(init=False)
    """The rules in force; without any, no request need go through the gate."""

    def __attrs_post_init__(self) -> None:
        self.rules = self.faults.rules

    async def answer(
        self, header: RequestHeader, request: Any, connection: Connection, respond: Respond
    ) -> Any:
        """Return the response; raise FaultInjectedError if the connection must be closed instead."""
        api = ApiKey(header.api_key)
        if not self.faults.concern(api):
            return await respond(request)
        call = self._call(api, header, request, connection)
        decision = await self.faults.decide(call, self.chance)
        if decision is None:
            return await respond(request)
        self._report(decision)
        applied = AppliedFaults(
            decision=decision,
            header=header,
            connection=connection,
            clock=self.clock,
            gone=self.faults.gone,
            name_of=self.name_of,
        )
        return await applied.answer(respond)

    def _call(
        self, api: ApiKey, header: RequestHeader, request: Any, connection: Connection
    ) -> Call:
        replica_id = getattr(getattr(request, "replica", request), "replica_id", -1)
        return Call.of(
            api,
            request,
            version=header.api_version,
            client_id=header.client_id,
            peer=connection.peer,
            broker=self.node_id,
            of_broker=replica_id >= 0 or bool(_OF_A_BROKER.match(header.client_id or "")),
            wall_ms=self.clock.wall_ms(),
            name_of=self.name_of,
            in_session=self._in_session(request),
        )

    def _in_session(self, request: Any) -> Iterable[NamedPart]:
        """Return the partitions of a fetch session, which a fetch need not name again (KIP-227)."""
        if not isinstance(request, FetchRequest) or request.session_epoch <= 0:
            return ()
        forgotten = {
            (topic.topic_id, topic.topic, partition)
            for topic in request.forgotten_topics_data
            for partition in topic.partitions
        }
        return [
            NamedPart(name or self.name_of(topic_id), partition, topic_id)
            for topic_id, name, partition in self.session_of(request.session_id)
            if not {(topic_id, "", partition), (topic_id, name, partition)} & forgotten
        ]

    def _report(self, decision: FaultDecision) -> None:
        for added in decision.fired:
            if added.rule.is_fault:
                self.sink(
                    FaultApplied(
                        rule=added.number,
                        api=decision.call.api.name,
                        client=decision.call.client_id or "",
                        parts=tuple(map(str, decision.call.parts)),
                        fault=added.rule.what,
                    )
                )
