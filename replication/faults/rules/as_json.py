"""A rule as JSON, in both directions, and its schema.

    {"api": "PRODUCE", "topic": "orders", "error": "NOT_LEADER_OR_FOLLOWER", "trigger": {"times": 2}}

The names are those of `FaultRule`. An absent field and null mean the same. A trigger is "once",
"every_time", or another name with a number.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import attrs

from replication.config.known import nearest
from replication.errors import ErrorCode
from replication.faults.rules.book import Hit
from replication.faults.rules.rule import (
    MOST,
    Effect,
    EveryTime,
    FaultRule,
    FaultRuleError,
    OnCall,
    RequestSender,
    Times,
    Trigger,
    WithProbability,
    every_time,
    once,
)
from replication.wire.apis import ApiKey

_ONLY_IN_A_PROGRAM = {"when"}
_TRIGGERS = {"once", "every_time", "times", "on_call", "with_probability"}
FIELDS = {field.name for field in attrs.fields(FaultRule)} - _ONLY_IN_A_PROGRAM

Schema: TypeAlias = Mapping[str, Any]

_COUNT: Schema = {"type": "integer", "minimum": 1}
_NAME: Schema = {"type": "string", "minLength": 1}
_TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
_INTEGER: Schema = {"type": "integer"}


def record(properties: Mapping[str, Schema], *, optional: Iterable[str] = ()) -> Schema:
    """Return the JSON schema of an object with these properties and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def _whole(description: str) -> Schema:
    return {"type": "integer", "minimum": 0, "maximum": MOST, "description": description}


def _one_of(names: Iterable[str], description: str = "") -> Schema:
    about = {"description": description} if description else {}
    return {"enum": list(names), **about}


TRIGGER_SCHEMA: Schema = {
    "description": "The matching requests that the rule is applied to; every_time by default.",
    "oneOf": [
        {"enum": ["once", "every_time"]},
        record({"times": _COUNT}),
        record({"on_call": _COUNT}),
        record({"with_probability": {"type": "number", "minimum": 0, "maximum": 1}}),
    ],
}
RULE_SCHEMA = record(
    {
        "api": _one_of(ApiKey.__members__, "The API of the requests; all by default."),
        "topic": _NAME,
        "partition": _whole("A partition of the topic."),
        "client_id": {**_NAME, "description": "A shell pattern, such as app-*"},
        "broker": _whole("The node that gets the request; 0 is the controller."),
        "sender": _one_of(
            (each.value for each in RequestSender),
            "By default clients, or brokers for an API that only brokers use.",
        ),
        "error": _one_of(code.name for code in ErrorCode if code is not ErrorCode.NONE),
        "effect": _one_of(each.value for each in Effect),
        "delay_ms": _whole("The delay before the request is handled."),
        "throttle_ms": _whole("The throttle time in the response, for which clients wait."),
        "trigger": TRIGGER_SCHEMA,
    },
    optional=FIELDS,
)
_PART_SCHEMA = record(
    {
        "topic": {**_TEXT_OR_NULL, "description": "Null if the topic's id is unknown."},
        "partition": {"type": ["integer", "null"]},
    }
)
HIT_SCHEMA = record(
    {
        "api": _one_of(ApiKey.__members__),
        "version": _INTEGER,
        "client_id": _TEXT_OR_NULL,
        "peer": {"type": "string"},
        "broker": _INTEGER,
        "parts": {"type": "array", "items": _PART_SCHEMA},
        "wall_ms": {
            **_INTEGER,
            "description": "The time at which it came, in milliseconds since 1970.",
        },
        "answer": {
            **_TEXT_OR_NULL,
            "description": "The errors in the response, NONE, or why there was none; null if not known yet.",
        },
    }
)


def rule_from_json(given: Mapping[str, Any]) -> FaultRule:
    """Return the rule of a JSON object; raise FaultRuleError, with the field, if it is invalid."""
    fields = {name: value for name, value in given.items() if value is not None}
    for name in fields.keys() - FIELDS:
        known = ", ".join(sorted(FIELDS))
        raise FaultRuleError(name, f"unknown; the fields are {known}{nearest(name, FIELDS)}")
    if "trigger" in fields:
        fields["trigger"] = _trigger_from_json(fields["trigger"])
    return FaultRule(**fields)


def rule_to_json(rule: FaultRule) -> dict[str, Any]:
    """Return the rule as a JSON object, without `when`."""
    names = {
        "api": None if rule.api is None else rule.api.name,
        "sender": None if rule.sender is None else rule.sender.value,
        "error": None if rule.error is None else rule.error.name,
        "effect": None if rule.effect is None else rule.effect.value,
        "delay_ms": rule.delay_ms or None,
        "throttle_ms": rule.throttle_ms or None,
    }
    plain = {word: getattr(rule, word) for word in ("topic", "partition", "client_id", "broker")}
    given = {word: value for word, value in (names | plain).items() if value is not None}
    return given | {"trigger": _trigger_to_json(rule.trigger)}


def hit_to_json(hit: Hit) -> dict[str, Any]:
    """Return a request that a rule was applied to, as a JSON object."""
    return {
        "api": hit.api.name,
        "version": hit.version,
        "client_id": hit.client_id,
        "peer": hit.peer,
        "broker": hit.broker,
        "parts": [{"topic": part.topic, "partition": part.partition} for part in hit.parts],
        "wall_ms": hit.wall_ms,
        "answer": hit.answer,
    }


def _trigger_from_json(given: Any) -> Trigger:
    match given:
        case "once":
            return once()
        case "every_time":
            return every_time()
        case {"times": int(number), **rest} if not rest:
            return Times(number)
        case {"on_call": int(number), **rest} if not rest:
            return OnCall(number)
        case {"with_probability": int(number) | float(number), **rest} if not rest:
            return WithProbability(number)
    known = 'once, every_time, {"times": 2}, {"on_call": 2}, {"with_probability": 0.5}'
    word = next(iter(given), "") if isinstance(given, dict) else given
    near = nearest(str(word), _TRIGGERS - {word})
    raise FaultRuleError("trigger", f"{given!r} is none of {known}{near}")


def _trigger_to_json(trigger: Trigger) -> Any:
    match trigger:
        case EveryTime():
            return "every_time"
        case Times(number):
            return "once" if number == 1 else {"times": number}
        case OnCall(number):
            return {"on_call": number}
        case WithProbability(probability):
            return {"with_probability": probability}
