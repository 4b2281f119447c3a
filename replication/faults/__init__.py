"""Faults on request: rules that make requests to brokers go wrong, as pure values.

    from replication.faults import FaultRule, on_call, once, times, with_probability

    rule      FaultRule: which requests, what is done with them, and how often (triggers)
    parts     the topics and partitions that a request names, and a request split by them
    answers   the place of an error in each API's response
    book      the rules in force: their counts, and the decision about one request
    as_json   a rule as JSON
    rule_file a file of rules

`replication.faults.node_faults` carries the decisions out, between a broker's frames and its
handlers. Rules are added through `cluster.faults` and the fixture `kafka_faults`.
"""

from replication.faults.rules.book import (
    AddedRule,
    Call,
    FaultDecision,
    Hit,
    RuleBook,
    applied,
    judged,
)
from replication.faults.rules.rule import (
    Effect,
    FaultRule,
    FaultRuleError,
    RequestSender,
    Trigger,
    every_time,
    on_call,
    once,
    times,
    with_probability,
)

__all__ = [
    "AddedRule",
    "Call",
    "Effect",
    "FaultDecision",
    "FaultRule",
    "FaultRuleError",
    "Hit",
    "RequestSender",
    "RuleBook",
    "Trigger",
    "applied",
    "every_time",
    "judged",
    "on_call",
    "once",
    "times",
    "with_probability",
]
