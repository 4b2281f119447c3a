"""Fault rules: which ones are valid, and which requests they match."""

from typing import Any

import pytest

from replication.errors import ErrorCode
from replication.faults import (
    Effect,
    FaultRule,
    FaultRuleError,
    RequestSender,
    RuleBook,
    on_call,
    once,
    with_probability,
)
from replication.faults.rules.book import KEPT_HITS
from replication.faults.rules.parts import NamedPart
from replication.wire.apis import ApiKey
from replication.wire.heartbeat import HeartbeatRequest
from replication.wire.metadata import MetadataRequest
from replication.wire.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from replication.wire.write_txn_markers import WriteTxnMarkersRequest
from tests.replication.faults.asking import T, call, decided


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ({"api": "PRODUCES", "error": 6}, "api"),
        ({"api": True, "error": 6}, "api"),
        ({"api": 999, "error": 6}, "api"),
        ({"error": "NOT_A_LEADER"}, "error"),
        ({"error": "NONE"}, "error"),
        ({"error": 30_000}, "error"),
        ({"error": True}, "error"),
        ({"effect": "explode"}, "effect"),
        ({"sender": "nobody", "error": 6}, "sender"),
        ({}, "effect"),
        ({"api": "FETCH"}, "effect"),
        ({"error": 6, "effect": "close-after"}, "effect"),
        ({"effect": "observe", "delay_ms": 5}, "effect"),
        ({"delay_ms": -1}, "delay_ms"),
        ({"delay_ms": 1.5}, "delay_ms"),
        ({"delay_ms": 10**400}, "delay_ms"),
        ({"throttle_ms": 2**31}, "throttle_ms"),
        ({"broker": True, "delay_ms": 1}, "broker"),
        ({"topic": "", "delay_ms": 1}, "topic"),
        ({"topic": 7, "delay_ms": 1}, "topic"),
        ({"partition": 0, "delay_ms": 1}, "topic"),
        ({"api": "HEARTBEAT", "topic": "t", "delay_ms": 1}, "topic"),
        ({"api": "CREATE_TOPICS", "topic": "t", "partition": 0, "delay_ms": 1}, "partition"),
        ({"api": "DESCRIBE_LOG_DIRS", "topic": "t", "partition": 0, "error": 6}, "partition"),
        ({"api": "WRITE_TXN_MARKERS", "throttle_ms": 5}, "throttle_ms"),
        ({"error": 6, "trigger": on_call(0)}, "trigger"),
        ({"error": 6, "trigger": with_probability(1.5)}, "trigger"),
        ({"error": 6, "trigger": once}, "trigger"),
        ({"error": 6, "trigger": "once"}, "trigger"),
    ],
)
def test_an_impossible_rule_is_refused_with_the_wrong_field(
    words: dict[str, Any], field: str
) -> None:
    with pytest.raises(FaultRuleError) as refusal:
        FaultRule(**words)
    assert refusal.value.field == field
    assert str(refusal.value).startswith(f"{field}: ")
    assert "\n" not in str(refusal.value)


def test_every_hit_is_counted_and_the_last_of_them_are_kept() -> None:
    book = RuleBook()
    added = book.add(FaultRule(api="METADATA", effect="observe"))
    for moment in range(KEPT_HITS + 5):
        asked = call(ApiKey.METADATA, MetadataRequest(), 12, wall_ms=moment)
        assert decided(book, asked) is not None
    assert (added.hits, len(added.observed)) == (KEPT_HITS + 5, KEPT_HITS)
    assert added.observed[0].wall_ms == 5


@pytest.mark.parametrize("api", ["OFFSET_COMMIT", "OffsetCommit", "offset_commit", 8])
def test_an_api_has_a_number_and_two_ways_to_write_its_name(api: object) -> None:
    assert FaultRule(api=api, effect="close_after").api is ApiKey.OFFSET_COMMIT


def test_a_rule_describes_itself() -> None:
    rule = FaultRule(
        api="PRODUCE",
        topic="orders",
        partition=0,
        error=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        delay_ms=5,
    )
    said = "PRODUCE topic orders partition 0: delay 5 ms + NOT_LEADER_OR_FOLLOWER, every time"
    assert str(rule) == said
    assert (
        str(FaultRule(effect="drop-request", trigger=once())) == "any request: drop-request, once"
    )


# -- which requests


def produced(*partitions: int) -> ProduceRequest:
    data = [PartitionProduceData(index=index) for index in partitions]
    return ProduceRequest(acks=1, topic_data=[TopicProduceData(name=T, partition_data=data)])


def is_hit(rule: FaultRule, api: ApiKey, request: Any, version: int = 4, **known: Any) -> bool:
    book = RuleBook()
    book.add(rule)
    return decided(book, call(api, request, version, **known)) is not None


@pytest.mark.parametrize(
    ("words", "hit"),
    [
        ({}, True),
        ({"api": "PRODUCE"}, True),
        ({"api": "FETCH"}, False),
        ({"topic": T}, True),
        ({"topic": T, "partition": 1}, True),
        ({"topic": T, "partition": 2}, False),
        ({"topic": "other"}, False),
        ({"client_id": "c"}, True),
        ({"client_id": "billing-*"}, False),
        ({"client_id": "*"}, True),
        ({"broker": 1}, True),
        ({"broker": 2}, False),
        ({"sender": "brokers"}, False),
        ({"sender": "anyone"}, True),
        ({"when": lambda request: request.acks == 1}, True),
        ({"when": lambda request: request.acks == -1}, False),
    ],
)
def test_every_field_of_a_rule_must_match(words: dict[str, Any], hit: bool) -> None:
    rule = FaultRule(effect=Effect.OBSERVE, **words)
    assert is_hit(rule, ApiKey.PRODUCE, produced(0, 1), 9) is hit


def test_a_client_without_a_name_has_none() -> None:
    rule = FaultRule(effect="observe", client_id="?*")
    assert not is_hit(rule, ApiKey.HEARTBEAT, HeartbeatRequest(), client_id=None)


def test_requests_of_brokers_are_matched_only_by_rules_for_brokers() -> None:
    asked = (ApiKey.HEARTBEAT, HeartbeatRequest())
    by_default, brokers = (FaultRule(effect="observe", sender=each) for each in (None, "brokers"))
    assert not is_hit(by_default, *asked, of_broker=True)
    assert is_hit(brokers, *asked, of_broker=True)
    assert not is_hit(brokers, *asked)
    markers = FaultRule(api="WRITE_TXN_MARKERS", error=6)
    assert markers.senders is RequestSender.BROKERS
    assert not is_hit(markers, ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest(), of_broker=True)


def test_a_metadata_request_for_all_topics_matches_each_topic() -> None:
    rule = FaultRule(topic=T, effect="observe")
    assert is_hit(rule, ApiKey.METADATA, MetadataRequest(topics=None))
    assert not is_hit(rule, ApiKey.METADATA, MetadataRequest(topics=[]))


def test_a_request_without_a_place_for_an_error_is_not_hit() -> None:
    rule = FaultRule(api="METADATA", error=6)
    assert not is_hit(rule, ApiKey.METADATA, MetadataRequest(topics=[]), 12)
    assert is_hit(rule, ApiKey.METADATA, MetadataRequest(topics=[]), 13)
    assert not is_hit(FaultRule(api="PRODUCE", error=6), ApiKey.PRODUCE, ProduceRequest(acks=1), 9)
    assert is_hit(FaultRule(api="PRODUCE", error=6), ApiKey.PRODUCE, ProduceRequest(acks=0), 9)


def test_an_exception_of_when_is_kept() -> None:
    book = RuleBook()
    added = book.add(FaultRule(effect="observe", when=lambda request: request.acks == 0))
    asked = call(ApiKey.HEARTBEAT, HeartbeatRequest(), 4)
    assert decided(book, asked) is None
    assert isinstance(added.mistake, AttributeError)
    assert added.calls == 0


# -- several rules


def test_every_rule_that_fires_is_applied() -> None:
    book = RuleBook()
    late = book.add(FaultRule(delay_ms=5))
    second = book.add(FaultRule(effect="close-after", trigger=on_call(2)))
    book.add(FaultRule(effect="close-before"))
    watching = book.add(FaultRule(effect="observe", throttle_ms=0))
    elsewhere = book.add(FaultRule(api="FETCH", error=6))
    ends = []
    for _ in range(2):
        decision = decided(book, call(ApiKey.PRODUCE, produced(0), 9))
        assert decision is not None
        assert decision.end is not None
        ends.append(decision.end.rule.effect)
        decision.answered("closed")
    assert ends == [Effect.CLOSE_BEFORE, Effect.CLOSE_AFTER]
    assert (late.calls, late.hits, second.calls, second.hits) == (2, 2, 2, 1)
    assert (elsewhere.calls, elsewhere.hits) == (0, 0)
    assert [(hit.parts, hit.answer) for hit in watching.observed] == [
        ((NamedPart(T, 0),), "closed")
    ] * 2


def test_a_removed_rule_matches_nothing_and_keeps_its_counts() -> None:
    book = RuleBook()
    added = book.add(FaultRule(effect="observe"))
    asked = call(ApiKey.HEARTBEAT, HeartbeatRequest(), 4)
    assert decided(book, asked) is not None
    assert book.remove(added.number) is added
    assert book.remove(added.number) is None
    assert not book.concerns(ApiKey.HEARTBEAT)
    assert decided(book, asked) is None
    assert added.hits == 1
    assert book.add(FaultRule(effect="observe")).number == added.number + 1
