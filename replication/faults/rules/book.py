"""The rules in force, and their decision about each request.

    request ──> Call ──> matching ──> judged ──> None: no rule matches, or none fires
                                             └─> FaultDecision: wait, throttle, errors, or an end

Rule 1: every matching rule counts the call, and every rule that fires is applied. Delays add up; for
a partition the first error counts; the first effect counts.

Rule 2: a rule with an error matches only requests whose response has a place for it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import count
from typing import Any

import attrs

from replication.faults.rules.answers import has_place_for_error
from replication.faults.rules.parts import NamedPart, NameOf, names_all, parts_of
from replication.faults.rules.rule import (
    Effect,
    FaultRule,
    FaultRuleError,
    RequestSender,
    TriggerRandom,
    fires,
)
from replication.wire.apis import ApiKey
from storage.attributes import define, frozen

KEPT_HITS = 1_000
"""The number of last hits that each rule keeps."""


@frozen(kw_only=True)
class Call:
    """One request, as rules see it."""

    api: ApiKey
    version: int
    client_id: str | None
    peer: str
    broker: int
    of_broker: bool
    """Whether a broker sent it."""
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


@define(eq=False, kw_only=True)
class Hit:
    """A request that a rule was applied to."""

    api: ApiKey
    version: int
    client_id: str | None
    peer: str
    broker: int
    parts: tuple[NamedPart, ...]
    """The topics and partitions that it named."""
    wall_ms: int
    """The time at which it came, in milliseconds since 1970."""
    answer: str | None = None
    """The errors in the response, or why there was none; None until that is known."""


@define(eq=False)
class AddedRule:
    """A rule in force, with its counts."""

    number: int
    rule: FaultRule
    calls: int = attrs.field(default=0, init=False)
    """The number of requests that it has matched."""
    hits: int = attrs.field(default=0, init=False)
    """The number of requests that it was applied to."""
    mistake: Exception | None = attrs.field(default=None, init=False)
    """The error that its `when` has raised, if any; a request for which it raises does not match."""
    observed: deque[Hit] = attrs.field(init=False, factory=lambda: deque(maxlen=KEPT_HITS))

    def __str__(self) -> str:
        return f"rule {self.number} ({self.rule})"

    def takes(self, topic: str | None, partition: int | None) -> bool:
        """Return whether the rule is about this part of a request."""
        rule = self.rule
        return (rule.topic is None or rule.topic == topic) and (
            rule.partition is None or partition is None or rule.partition == partition
        )


@frozen(kw_only=True)
class FaultDecision:
    """The actions that meet one request, and the rules that they come from."""

    call: Call
    fired: tuple[AddedRule, ...]
    hits: tuple[Hit, ...]
    tell: Callable[[str], None] | None = None
    """Called with the result of the request, if given."""

    @property
    def errors(self) -> tuple[AddedRule, ...]:
        return tuple(each for each in self.fired if each.rule.error is not None)

    @property
    def throttle_ms(self) -> int:
        return max(each.rule.throttle_ms for each in self.fired)

    @property
    def end(self) -> AddedRule | None:
        """The rule whose effect ends the request; None if it is answered."""
        passing = (None, Effect.OBSERVE)
        return next((each for each in self.fired if each.rule.effect not in passing), None)

    def answered(self, answer: str) -> None:
        for hit in self.hits:
            hit.answer = answer
        if self.tell is not None:
            self.tell(answer)


@define(eq=False)
class RuleBook:
    """Rules by number, in the order in which they were added."""

    rules: dict[int, AddedRule] = attrs.field(init=False, factory=dict)
    _numbers: "count[int]" = attrs.field(init=False, factory=lambda: count(1))

    def add(self, rule: FaultRule) -> AddedRule:
        if not isinstance(rule, FaultRule):
            raise FaultRuleError(
                "rule", f"{rule!r} is not a FaultRule; its fields are keywords: api=..."
            )
        added = AddedRule(next(self._numbers), rule)
        self.rules[added.number] = added
        return added

    def remove(self, number: int) -> AddedRule | None:
        return self.rules.pop(number, None)

    def concerns(self, api: ApiKey) -> bool:
        """Return whether a rule may match requests of this API."""
        return any(each.rule.api in (None, api) for each in self.rules.values())

    def matching(self, call: Call) -> tuple[AddedRule, ...]:
        return tuple(each for each in self.rules.values() if _matches(each, call))


def judged(
    call: Call, matching: Iterable[AddedRule], chance: TriggerRandom
) -> FaultDecision | None:
    """Return the decision about a call that these rules match; each of them counts it."""
    fired = []
    for added in matching:
        added.calls += 1
        if fires(added.rule.trigger, call=added.calls, chance=chance):
            fired.append(added)
    return applied(call, fired) if fired else None


def applied(call: Call, fired: Sequence[AddedRule]) -> FaultDecision:
    """Return the decision that applies these rules to a call; each has a hit."""
    return FaultDecision(
        call=call, fired=tuple(fired), hits=tuple(_hit(each, call) for each in fired)
    )


def _matches(added: AddedRule, call: Call) -> bool:
    rule = added.rule
    return (
        rule.api in (None, call.api)
        and rule.broker in (None, call.broker)
        and _is_sent_by(rule.senders, call)
        and (rule.client_id is None or fnmatchcase(call.client_id or "", rule.client_id))
        and (rule.topic is None or call.names_all or _takes_some(added, call))
        and (rule.error is None or _has_place_for_error(call))
        and (rule.when is None or _is_when(added, call))
    )


def _is_when(added: AddedRule, call: Call) -> bool:
    assert added.rule.when is not None, "the rule has a `when`"
    try:
        return bool(added.rule.when(call.request))
    except Exception as mistake:  # noqa: BLE001 - `wait_for_hits` raises it
        added.mistake = mistake
        return False


def _is_sent_by(sender: RequestSender, call: Call) -> bool:
    return sender is RequestSender.ANYONE or call.of_broker == (sender is RequestSender.BROKERS)


def _takes_some(added: AddedRule, call: Call) -> bool:
    return any(added.takes(part.topic, part.partition) for part in call.parts)


def _has_place_for_error(call: Call) -> bool:
    something = bool(call.parts) or call.names_all
    return has_place_for_error(call.api, call.version, call.request, names_something=something)


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
