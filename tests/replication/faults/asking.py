"""Requests of every API and version as a server decodes them, and the rules that match them."""

import random
from typing import Any

import attrs

from replication.faults import Call, FaultDecision, FaultRule, RuleBook, judged
from replication.faults.rules.refusing import Refusing, refusing
from replication.wire.apis import Api, ApiKey
from replication.wire.frames import decode_request, encode_request
from storage.types import TopicId

T, OTHER = "t", "other"
TOPIC_ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))


def name_of(topic_id: TopicId) -> str | None:
    return {TOPIC_ID: T, OTHER_ID: OTHER}.get(topic_id)


def received(request: Any, version: int) -> Any:
    """Return `request` as a server decodes it, with the fields of its version."""
    frame = b"".join(
        part
        for part in encode_request(request, version=version, correlation_id=1, client_id="c")
        if isinstance(part, bytes | memoryview)
    )
    return decode_request(memoryview(frame)[4:])[1]


def call(api: Api | ApiKey, request: Any, version: int, **known: Any) -> Call:
    key = api.key if isinstance(api, Api) else api
    values: dict[str, Any] = {
        "version": version,
        "client_id": "c",
        "peer": "127.0.0.1:1",
        "broker": 1,
        "of_broker": False,
        "wall_ms": 0,
    }
    return Call.of(key, request, name_of=name_of, **(values | known))


def decided(book: RuleBook, asked: Call) -> FaultDecision | None:
    return judged(asked, book.matching(asked), random.Random(1))


@attrs.define
class Met:
    """The outcome of one request."""

    book: RuleBook = attrs.field(factory=RuleBook)

    def plan(self, asked: Call, *rules: FaultRule) -> Refusing:
        for rule in rules:
            self.book.add(rule)
        decision = decided(self.book, asked)
        assert decision is not None, "a rule matches"
        return refusing(asked, decision.errors, name_of)
