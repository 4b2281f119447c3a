"""A request that error rules match: a part is refused, the rest is handled, in one response.

request ──┬── taken by a rule ── refused ─────┐
          └── rest ── handled ── response ── merged ── overwritten (Overwriting) ──> response
"""

from collections.abc import Iterable
from typing import Any

import attrs

from replication.errors import ErrorCode
from replication.faults.rules.answers import Overwriting, is_overwritten, merged, of_parts, whole
from replication.faults.rules.book import AddedRule, Call
from replication.faults.rules.parts import (
    ANSWERED_AS_A_WHOLE,
    ANSWERED_BY_PARTITION,
    NameOf,
    split,
)
from replication.wire.apis import ApiKey
from replication.wire.fetch import FetchRequest
from storage.attributes import frozen


@frozen(kw_only=True)
class Refusing:
    """The plan for one request."""

    call: Call
    rest: Any
    """The part of the request that is handled; None if there is none."""
    refusals: tuple[Any, ...]
    overwriting: tuple[Overwriting, ...]

    def answer(self, response: Any) -> Any:
        """Return the whole response, given the response to `rest`."""
        for refusal in self.refusals:
            response = refusal if response is None else merged(response, refusal)
        assert response is not None, "a request is handled or refused"
        if self.call.api is ApiKey.FETCH and response.error_code != ErrorCode.NONE:
            return response  # an error of the session: there are no partitions in it
        for each in reversed(self.overwriting):  # so that the first one's error stands
            response = each.answer(response, self.call.parts)
        return response


def refusing(call: Call, rules: Iterable[AddedRule], name_of: NameOf) -> Refusing:
    """Return the plan for a request that `rules` answer with errors; earlier rules take precedence."""
    rest: Any = call.request
    refusals: list[Any] = []
    overwriting: list[Overwriting] = []
    for added in rules:
        rule = added.rule
        assert rule.error is not None, "only rules with an error refuse"
        by_parts = rule.topic is not None
        if is_overwritten(call.api, rule.error, by_parts=by_parts):
            of_topics = call.api in ANSWERED_BY_PARTITION and rule.partition is None
            overwriting.append(
                Overwriting(
                    key=call.api,
                    code=rule.error,
                    matches=added.takes,
                    name_of=name_of,
                    of_topics=of_topics,
                )
            )
        elif rest is not None and by_parts and call.api not in _REFUSED_AS_A_WHOLE:
            taken, rest = split(call.api, rest, added.takes, name_of)
            if taken is not None:
                refusals.append(of_parts(call.api, taken, rule.error))
        elif rest is not None:
            refusals.append(whole(call.api, call.version, rest, rule.error))
            rest = None
    if overwriting and isinstance(rest, FetchRequest):
        rest = attrs.evolve(rest, max_wait_ms=0)
    return Refusing(call=call, rest=rest, refusals=tuple(refusals), overwriting=tuple(overwriting))


_REFUSED_AS_A_WHOLE = ANSWERED_AS_A_WHOLE | {ApiKey.FETCH}
"""A fetch is refused as a whole by errors of its session; other errors overwrite."""
