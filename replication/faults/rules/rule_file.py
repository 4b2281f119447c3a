"""Fault rules in a file: a JSON array of rules, as `replication.faults.rules.as_json` reads them.

    [
      {"api": "PRODUCE", "topic": "orders", "error": "NOT_ENOUGH_REPLICAS", "trigger": {"times": 2}},
      {"client_id": "billing-*", "delay_ms": 200}
    ]

The same file is for our own brokers (`understudy up --faults`) and for a proxy (`understudy proxy
--faults`). What is wrong in it is one line, with the place and the nearest valid word:

    rules.json:2: api: 'PRODUC' is not an API that brokers serve, such as PRODUCE; did you mean PRODUCE?
"""

import json
import re
from typing import Any

from replication.errors import UnderstudyError
from replication.faults.rules.as_json import rule_from_json
from replication.faults.rules.rule import FaultRule, FaultRuleError

_BLANK = re.compile(r"\s*")
_DECODER = json.JSONDecoder()


class RuleFileError(UnderstudyError):
    """A file of rules that is invalid; the message begins with the file and the line."""


def rules_in(text: str, *, name: str) -> list[FaultRule]:
    """Return the rules in the text of a file; raise RuleFileError, with `name`, if it is invalid."""
    rules: list[FaultRule] = []
    position = _behind(text, 0, "[", name)
    while not text.startswith("]", position):
        if rules:
            position = _behind(text, position, ",", name)
        begin = position
        found, end = _value(text, begin, name)
        if not isinstance(found, dict):
            raise _wrong(text, begin, name, f"{found!r} is not a rule, which is an object")
        try:
            rules.append(rule_from_json(found))
        except FaultRuleError as error:
            named = text.find(json.dumps(error.field), begin, end)
            raise _wrong(text, max(named, begin), name, str(error)) from error
        position = _blank(text, end)
    if (rest := _blank(text, position + 1)) < len(text):
        raise _wrong(text, rest, name, "something follows the array of rules")
    return rules


def _value(text: str, begin: int, name: str) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, begin)
    except RecursionError as error:
        raise _wrong(text, begin, name, "not JSON: too deep") from error
    except json.JSONDecodeError as error:
        raise _wrong(text, error.pos, name, f"not JSON: {error.msg}") from error


def _behind(text: str, position: int, mark: str, name: str) -> int:
    """Return where something begins behind `mark` and the blanks around it."""
    position = _blank(text, position)
    if not text.startswith(mark, position):
        raise _wrong(text, position, name, f"expected {mark!r} of an array of rules")
    return _blank(text, position + len(mark))


def _blank(text: str, position: int) -> int:
    """Return the end of the blanks at `position`."""
    found = _BLANK.match(text, position)
    assert found is not None, "it matches nothing, too"
    return found.end()


def _wrong(text: str, position: int, name: str, why: str) -> RuleFileError:
    line = text.count("\n", 0, position) + 1
    return RuleFileError(f"{name}:{line}: {why}")
