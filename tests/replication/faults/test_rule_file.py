"""Files of fault rules: what they mean, and the line that says what is wrong in one."""

import json
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from replication.faults import FaultRule, times
from replication.faults.rules.as_json import rule_to_json
from replication.faults.rules.rule_file import RuleFileError, rules_in

GOOD = """
[
  {"api": "PRODUCE", "topic": "orders", "error": "NOT_ENOUGH_REPLICAS", "trigger": {"times": 2}},
  {"client_id": "billing-*", "delay_ms": 200}
]
"""


def test_a_file_is_an_array_of_rules() -> None:
    assert rules_in(GOOD, name="f") == [
        FaultRule(api="PRODUCE", topic="orders", error="NOT_ENOUGH_REPLICAS", trigger=times(2)),
        FaultRule(client_id="billing-*", delay_ms=200),
    ]
    assert rules_in(" [ ] ", name="f") == []


def test_what_a_rule_is_as_json_may_stand_in_a_file() -> None:
    rules = rules_in(GOOD, name="f")
    text = json.dumps([*map(rule_to_json, rules)], indent=2)
    assert rules_in(text, name="f") == rules


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            '[\n {"api": "PRODUC", "effect": "observe"}]',
            "f:2: api: 'PRODUC' is not an API that brokers serve, such as PRODUCE;"
            " did you mean PRODUCE?",
            id="an API",
        ),
        pytest.param(
            '[{"effect": "observe"},\n\n {"api": "FETCH",\n "effect": "drop-anwser"}]',
            "f:4: effect: 'drop-anwser' is not one of observe, drop-request, drop-answer,"
            " close-before, close-after, cut-answer; did you mean drop-answer?",
            id="an effect, at its own line",
        ),
        pytest.param(
            '[{"error": "NOT_LEADER_FOR_FOLLOWER"}]',
            "f:1: error: 'NOT_LEADER_FOR_FOLLOWER' is not an error of Kafka, such as"
            " NOT_LEADER_OR_FOLLOWER; did you mean NOT_LEADER_OR_FOLLOWER?",
            id="an error",
        ),
        pytest.param(
            '[{"delay": 5}]',
            "f:1: delay: unknown; the fields are api, broker, client_id, delay_ms, effect, error,"
            " partition, sender, throttle_ms, topic, trigger; did you mean delay_ms?",
            id="a field",
        ),
        pytest.param(
            '[{"sender": "broker", "delay_ms": 1}]',
            "f:1: sender: 'broker' is not one of clients, brokers, anyone; did you mean brokers?",
            id="a sender",
        ),
        pytest.param(
            '[{"delay_ms": 1, "trigger": {"time": 2}}]',
            "f:1: trigger: {'time': 2} is none of once, every_time, {\"times\": 2},"
            ' {"on_call": 2}, {"with_probability": 0.5}; did you mean times?',
            id="a trigger",
        ),
        pytest.param(
            '[{"delay_ms": 1}\n {"delay_ms": 1}]',
            "f:2: expected ',' of an array of rules",
            id="a comma",
        ),
        pytest.param(
            "[\n{delay_ms: 1}]",
            "f:2: not JSON: Expecting property name enclosed in double quotes",
            id="JSON of a program",
        ),
        pytest.param('{"delay_ms": 1}', "f:1: expected '[' of an array of rules", id="one rule"),
        pytest.param("[1]", "f:1: 1 is not a rule, which is an object", id="a number"),
        pytest.param("", "f:1: expected '[' of an array of rules", id="nothing"),
        pytest.param("[\n", "f:2: not JSON: Expecting value", id="an open end"),
        pytest.param("[]\n[]", "f:2: something follows the array of rules", id="two arrays"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_place(text: str, message: str) -> None:
    with pytest.raises(RuleFileError) as caught:
        rules_in(text, name="f")
    assert str(caught.value) == message


@given(st.text(alphabet='[]{},:"apidelym_s1 \n', max_size=60))
def test_any_text_is_rules_or_one_line(text: str) -> None:
    with suppress(RuleFileError):
        assert all(isinstance(each, FaultRule) for each in rules_in(text, name="f"))


def test_a_deep_text_is_refused() -> None:
    with pytest.raises(RuleFileError, match="too deep"):
        rules_in("[" * 100_000, name="f")
