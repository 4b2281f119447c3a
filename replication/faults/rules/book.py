"""The rules that are in force, and what they make of each request.

    request ──> Call ──> matching ──> judged ──> None: nobody has a rule for it, or none fires
                                             └─> Decision: wait, throttle, errors, or an end

Rule 1: every rule that matches counts the call, and every one that fires is applied: delays
add up, the first error for a partition counts, and the first effect.

Rule 2: an error is counted only where the answer has a place for it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import count
from typing import Any

import attrs

from replication.faults.rules.answers import can_tell
from replication.faults.rules.parts import NamedPart, NameOf, names_all, parts_of
from replication.faults.rules.rule import Effect, FaultRule, FaultRuleError, Sender
from replication.faults.rules.triggers import Chance, fires
from replication.wire.apis import ApiKey

KEPT_HITS = 1_000
"""Of each rule, the last ones."""


@attrs.frozen(kw_only=True)
class Call:
    """One request, as rules see it."""

    api: ApiKey
    version: int
    client_id: str | None
    peer: str
    broker: int
    of_broker: bool
    """Whether a broker asks."""
    request: Any
    parts: tuple[NamedPart, ...]
    names_all: bool
    wall_ms: int

    @classmethod
    def of(
        cls,
        api: ApiKey,
        request: Any,
        *,
        name_of: NameOf,
        in_session: Iterable[NamedPart] = (),
        **known: Any,
    ) -> "Call":
        named = parts_of(api, request, name_of)
        return cls(
            api=api,
            request=request,
            parts=tuple(dict.fromkeys((*named, *in_session))),
            names_all=names_all(api, request),
            **known,
        )


@attrs.define(eq=False, kw_only=True)
class Hit:
    """A request that a rule was applied to."""

    api: ApiKey
    version: int
    client_id: str | None
    peer: str
    broker: int
    parts: tuple[NamedPart, ...]
    """What it named."""
    wall_ms: int
    """When it came, milliseconds since 1970."""
    answer: str | None = None
    """None until it is known: the errors in what was answered, or why nothing was."""


@attrs.define(eq=False)
class AddedRule:
    """A rule that was added, and what became of it."""

    number: int
    rule: FaultRule
    calls: int = attrs.field(default=0, init=False)
    """How many requests it has matched."""
    hits: int = attrs.field(default=0, init=False)
    """To how many of them it was applied."""
    mistake: Exception | None = attrs.field(default=None, init=False)
    """What its `when` has raised; a request of which it does so is not met."""
    observed: deque[Hit] = attrs.field(init=False, factory=lambda: deque(maxlen=KEPT_HITS))

    def __str__(self) -> str:
        return f"rule {self.number} ({self.rule})"

    def takes(self, topic: str | None, partition: int | None) -> bool:
        """Whether it is about this part of a request."""
        rule = self.rule
        return (rule.topic is None or rule.topic == topic) and (
            rule.partition is None or partition is None or rule.partition == partition
        )


@attrs.frozen(kw_only=True)
class Decision:
    """What is done with one request."""

    call: Call
    fired: tuple[AddedRule, ...]
    hits: tuple[Hit, ...]
    tell: Callable[[str], None] | None = None
    """Who else is to hear what was answered."""

    @property
    def errors(self) -> tuple[AddedRule, ...]:
        return tuple(each for each in self.fired if each.rule.error is not None)

    @property
    def throttle_ms(self) -> int:
        return max(each.rule.throttle_ms for each in self.fired)

    @property
    def end(self) -> AddedRule | None:
        """The rule whose effect it is."""
        passing = (None, Effect.OBSERVE)
        return next((each for each in self.fired if each.rule.effect not in passing), None)

    def answered(self, answer: str) -> None:
        for hit in self.hits:
            hit.answer = answer
        if self.tell is not None:
            self.tell(answer)


@attrs.define(eq=False)
class RuleBook:
    """Rules by number, in the order in which they were added."""

    rules: dict[int, AddedRule] = attrs.field(init=False, factory=dict)
    _numbers: "count[int]" = attrs.field(init=False, factory=lambda: count(1))

    def add(self, rule: FaultRule) -> AddedRule:
        if not isinstance(rule, FaultRule):
            raise FaultRuleError("rule", f"{rule!r} is no FaultRule; its words go by name, api=...")
        added = AddedRule(next(self._numbers), rule)
        self.rules[added.number] = added
        return added

    def remove(self, number: int) -> AddedRule | None:
        return self.rules.pop(number, None)

    def concerns(self, api: ApiKey) -> bool:
        """Whether there is any rule for such requests."""
        return any(each.rule.api in (None, api) for each in self.rules.values())

    def matching(self, call: Call) -> tuple[AddedRule, ...]:
        return tuple(each for each in self.rules.values() if _matches(each, call))

    def decide(self, call: Call, chance: Chance) -> Decision | None:
        return judged(call, self.matching(call), chance)


def judged(call: Call, matching: Iterable[AddedRule], chance: Chance) -> Decision | None:
    """What comes of a call that these rules match; each counts it."""
    fired = []
    for added in matching:
        added.calls += 1
        if fires(added.rule.trigger, call=added.calls, chance=chance):
            fired.append(added)
    return applied(call, fired) if fired else None


def applied(call: Call, fired: Sequence[AddedRule]) -> Decision:
    """That these are applied to it; a hit of each."""
    return Decision(call=call, fired=tuple(fired), hits=tuple(_hit(each, call) for each in fired))


def _matches(added: AddedRule, call: Call) -> bool:
    rule = added.rule
    return (
        rule.api in (None, call.api)
        and rule.broker in (None, call.broker)
        and _is_sent_by(rule.senders, call)
        and (rule.client_id is None or fnmatchcase(call.client_id or "", rule.client_id))
        and (rule.topic is None or call.names_all or _takes_some(added, call))
        and (rule.error is None or _can_tell(call))
        and (rule.when is None or _is_when(added, call))
    )


def _is_when(added: AddedRule, call: Call) -> bool:
    assert added.rule.when is not None, "it says when"
    try:
        return bool(added.rule.when(call.request))
    except Exception as mistake:  # noqa: BLE001 - its author's, who is told of it where he asks
        added.mistake = mistake
        return False


def _is_sent_by(sender: Sender, call: Call) -> bool:
    return sender is Sender.ANYONE or call.of_broker == (sender is Sender.BROKERS)


def _takes_some(added: AddedRule, call: Call) -> bool:
    return any(added.takes(part.topic, part.partition) for part in call.parts)


def _can_tell(call: Call) -> bool:
    something = bool(call.parts) or call.names_all
    return can_tell(call.api, call.version, call.request, names_something=something)


def _hit(added: AddedRule, call: Call) -> Hit:
    added.hits += 1
    hit = Hit(
        api=call.api,
        version=call.version,
        client_id=call.client_id,
        peer=call.peer,
        broker=call.broker,
        parts=call.parts,
        wall_ms=call.wall_ms,
    )
    added.observed.append(hit)
    return hit
