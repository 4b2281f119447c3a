"""A request of every API and version, with values that a broker can make sense of."""

from typing import Any, Final

from replication.wire.apis import API, ApiKey
from replication.wire.schema import Kind, fields_of
from storage.batch.records import Record, encode_batch
from storage.types import NO_TOPIC_ID, TopicId

TOPIC: Final = "shut"
# Other values than those that a refusal has for itself, so that a copy would be seen.
_STRINGS: Final = {
    "transactional_id": "t",
    "v3_and_below_transactional_id": "t",
    "group_id": "g",
    "member_id": "m",
    "protocol_type": "consumer",
    "protocol_name": "range",
    "groups": "g",
    "groups_names": "g",
    "coordinator_keys": "k",
    "key": "k",
    "host": "*",
    "principal": "User:x",
    "host_filter": "*",
    "principal_filter": "User:x",
}
_NUMBERS: Final = {
    "acks": -1,
    "fetch_offset": 0,
    "session_epoch": -1,
    "session_id": 0,
    "isolation_level": 0,
    "replica_id": -1,
    "min_bytes": 0,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
    "num_partitions": -1,
    "replication_factor": -1,
    "resource_type": 2,
    "resource_type_filter": 2,
    "resource_pattern_type": 3,
    "pattern_type_filter": 3,
    "operation": 3,
    "permission_type": 3,
    "election_type": 0,
    "key_type": 0,
    "config_operation": 0,
    "iterations": 4096,
    "member_epoch": -1,
    "timeout_ms": 1000,
    "timestamp": 7,
    "generation_id": 3,
    "leader_epoch": 5,
    "high_watermark": 1 << 40,
    "count": 4,
}
_NULL: Final = {"cluster_id", "assignments", "configs", "cursor", "group_instance_id"}
_LEFT_OUT: Final = {"forgotten_topics_data", "states_filter", "types_filter"}
_NUMBERED: Final = {"partition", "partition_index", "partitions", "partition_indexes", "index"}


def full_request(key: ApiKey, version: int, topic_id: TopicId, topic: str = TOPIC) -> Any:
    """Return a request about `topic` with something in every array."""
    request = _filled(API[key].request, topic_id, topic)
    if key is ApiKey.METADATA:
        for each in request.topics:
            if version < 12:
                each.topic_id = NO_TOPIC_ID
            else:
                each.name = None
    if key is ApiKey.DELETE_TOPICS:
        for each in request.topics:
            each.topic_id = NO_TOPIC_ID
    if key is ApiKey.INIT_PRODUCER_ID:
        request.enable2_pc = request.keep_prepared_txn = False
    return request


def _filled(kind: type, topic_id: TopicId, topic: str) -> Any:
    values: dict[str, object] = {}
    for field in fields_of(kind):
        name, wire = field.name, field.wire
        if name in _LEFT_OUT:
            values[name] = []
        elif name in _NULL and wire.nullable.highest:
            values[name] = None
        elif isinstance(wire.items, type):
            item = _filled(wire.items, topic_id, topic)
            values[name] = item if wire.kind is Kind.STRUCT else [item]
        elif wire.kind is Kind.ARRAY:
            assert isinstance(wire.items, Kind), "an array without a class has a kind"
            values[name] = [_value(name, wire.items, topic_id, topic)]
        else:
            values[name] = _value(name, wire.kind, topic_id, topic)
    return kind(**values)


def _value(name: str, kind: Kind, topic_id: TopicId, topic: str) -> object:
    if kind is Kind.STRING:
        if name in ("name", "topic", "topic_names", "resource_name", "resource_name_filter"):
            return topic
        return _STRINGS.get(name, "")
    if kind is Kind.UUID:
        return topic_id if name == "topic_id" else NO_TOPIC_ID
    if kind is Kind.BYTES:
        return b"xy"
    if kind is Kind.RECORDS:
        return encode_batch([Record(timestamp=5, value=b"v")])
    if kind is Kind.BOOL:
        return True
    return 0 if name in _NUMBERED else _NUMBERS.get(name, 1)
