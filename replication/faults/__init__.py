"""Faults on request: which of the requests to brokers go wrong, and how. Rules and values.

    from replication.faults import FaultRule, on_call, once, times, with_probability

    rule      FaultRule: which requests, what is done
    triggers  once, on_call, times, every_time, with_probability
    parts     the topics and partitions that a request names, and a request parted by them
    answers   what an error looks like in each API's answer
    book      the rules in force: counts, and what is to be done with one request
    words     a rule as JSON has it

`replication.faults.node_faults` does what is decided here, between a broker's frames and its
handlers; `cluster.faults` and the fixture `kafka_faults` are where rules are added.
"""

from replication.faults.rules.book import AddedRule, Call, Decision, Hit, RuleBook, applied, judged
from replication.faults.rules.rule import Effect, FaultRule, FaultRuleError, Sender
from replication.faults.rules.triggers import (
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
    "Decision",
    "Effect",
    "FaultRule",
    "FaultRuleError",
    "Hit",
    "RuleBook",
    "Sender",
    "Trigger",
    "applied",
    "every_time",
    "judged",
    "on_call",
    "once",
    "times",
    "with_probability",
]
