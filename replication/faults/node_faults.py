"""Fault rules at work, between a server's frames and its handlers (`replication.faults`).

    frame ── request ── any rule for it? ── no ──────────────────────> handler ── answer
                              └ yes: wait, refuse, take a part of it out, say something else
                                     of the answer, or nothing, or half of it

Rule 1: as long as there is no rule a request costs one look at an empty dict.

Rule 2: a rule that is removed lets go of those it holds: who waits for its delay goes on, and a
connection that it made a black hole is closed.

Rule 3: waiting is on the node's clock, so on virtual time where that is virtual.

Rule 4: a rule counts the calls of a whole cluster. Where that is several processes, one of them
counts (`judge`), and each asks it about what matches there.
"""

import random
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import trio

from replication.errors import UnderstudyError
from replication.events import EventSink, FaultApplied
from replication.faults import (
    AddedRule,
    Call,
    Decision,
    FaultRule,
    FaultRuleError,
    RuleBook,
    judged,
)
from replication.faults.applied_faults import AppliedFaults, Respond
from replication.faults.rules.parts import NamedPart, NameOf
from replication.leader.rules.fetch_session.session import FetchSession
from replication.net.seams import Connection, NodeClock, Seams
from replication.wire.apis import ApiKey
from replication.wire.fetch import FetchRequest
from replication.wire.frames import RequestHeader

SessionOf: TypeAlias = Callable[[int], FetchSession | None]
"""A fetch session by its id."""
Judge: TypeAlias = Callable[[Call, Sequence[AddedRule]], Awaitable[Decision | None]]
"""What comes of a call that these rules match, from who counts them."""

_OF_A_BROKER = re.compile(r"broker-\d+-")


class NotHitError(UnderstudyError):
    """A rule was not hit as often as was waited for."""


@attrs.define(eq=False)
class Faults:
    """The rules of one cluster. `add` returns what `hits` and `observed` are read from."""

    clock: NodeClock
    judge: Judge | None = None
    """None: calls are counted here."""
    node_ids: Callable[[], Collection[int]] | None = None
    """The nodes of the cluster, one of which a rule must mean if it names one; None: unknown."""
    _book: RuleBook = attrs.field(init=False, factory=RuleBook)
    _gone: dict[int, trio.Event] = attrs.field(init=False, factory=dict)
    _hit: trio.Event = attrs.field(init=False, factory=trio.Event)

    @property
    def rules(self) -> Mapping[int, AddedRule]:
        """Those in force, by number."""
        return self._book.rules

    def add(self, rule: FaultRule) -> AddedRule:
        """From now on, for every broker, those that start later included."""
        added = self._book.add(rule)
        if self.node_ids is not None and rule.broker not in (None, *(there := self.node_ids())):
            self._book.remove(added.number)
            listed = ", ".join(map(str, there))
            raise FaultRuleError("broker", f"{rule.broker} is no node of this cluster: {listed}")
        self._gone[added.number] = trio.Event()
        return added

    def hold_to(self, rules: Mapping[int, FaultRule]) -> None:
        """These rules of a cluster's and no others, under the numbers that they have there."""
        for number in set(self.rules) - set(rules):
            self.remove(self.rules[number])
        for number in sorted(set(rules) - set(self.rules)):
            self._book.rules[number] = AddedRule(number, rules[number])
            self._gone[number] = trio.Event()

    def remove(self, rule: AddedRule) -> None:
        """What it has counted can still be read; twice is harmless."""
        if self._book.remove(rule.number) is not None:
            self._gone.pop(rule.number).set()
            self._tell_who_waits()

    def clear(self) -> None:
        """Remove every rule."""
        for rule in list(self.rules.values()):
            self.remove(rule)

    async def wait_for_hits(self, rule: AddedRule, hits: int = 1, *, timeout: float = 30.0) -> None:
        """Until the rule was applied so often in all. Seconds; NotHitError after them, and of a
        rule that has been removed.

        What the rule's `when` has raised meanwhile is raised here.
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
        session_of: SessionOf = lambda _: None,
    ) -> "FaultGate":
        """Which the server of a node asks."""
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

    async def decide(self, call: Call, chance: random.Random) -> Decision | None:
        matching = self._book.matching(call)
        if self.judge is not None:
            return await self.judge(call, matching) if matching else None
        return self.judged(call, matching, chance)

    def judged(
        self, call: Call, matching: Iterable[AddedRule], chance: random.Random
    ) -> Decision | None:
        """What comes of a call that these rules match; each counts it."""
        decision = judged(call, matching, chance)
        if decision is not None or any(each.mistake for each in self.rules.values()):
            self._tell_who_waits()
        return decision

    def _tell_who_waits(self) -> None:
        self._hit.set()
        self._hit = trio.Event()

    def _is_in_force(self, rule: AddedRule) -> bool:
        return rule.number in self.rules

    async def gone(self, rule: AddedRule) -> None:
        """Returns when the rule is not in force any more."""
        if self._is_in_force(rule):
            await self._gone[rule.number].wait()


@attrs.define(eq=False, kw_only=True)
class FaultGate:
    """What one node's server asks about each request."""

    faults: Faults
    node_id: int
    clock: NodeClock
    chance: random.Random
    sink: EventSink
    name_of: NameOf
    session_of: SessionOf

    @property
    def is_open(self) -> bool:
        """Whether there is no rule at all."""
        return not self.faults.rules

    async def answer(
        self, header: RequestHeader, request: Any, connection: Connection, respond: Respond
    ) -> Any:
        """What is answered; FaultInjectedError where nothing is, and the connection is to go."""
        api = ApiKey(header.api_key)
        if not self.faults.concern(api):
            return await respond(request)
        call = self._call(api, header, request, connection)
        decision = await self.faults.decide(call, self.chance)
        if decision is None:
            return await respond(request)
        self._tell(decision)
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
        """What a fetch wants without naming it again (KIP-227)."""
        if not isinstance(request, FetchRequest) or request.session_epoch <= 0:
            return ()
        session = self.session_of(request.session_id)
        if session is None:
            return ()
        wanted = [each.wanted[0] for each in session.partitions.values()]
        forgotten = {
            (topic.topic_id, topic.topic, partition)
            for topic in request.forgotten_topics_data
            for partition in topic.partitions
        }
        return [
            NamedPart(name or self.name_of(topic_id), partition, topic_id)
            for topic_id, name, partition in wanted
            if not {(topic_id, "", partition), (topic_id, name, partition)} & forgotten
        ]

    def _tell(self, decision: Decision) -> None:
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
