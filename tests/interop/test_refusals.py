"""A request that fails is answered byte for byte as Kafka's getErrorResponse does it.

`Refusals.java` runs Kafka's own classes, without a broker: for each API and version it reads a
request of ours and writes Kafka's response.
"""

from pathlib import Path
from typing import Any

import pytest

from replication.errors import ErrorCode
from replication.wire.apis import API, ApiKey
from replication.wire.codec import decode, encode
from replication.wire.refusals import refused_whole
from replication.wire.schema import fields_of
from tests.interop import tools
from tests.replication.wire.full_requests import full_request

pytestmark = pytest.mark.interop

PROGRAM = Path(__file__).with_name("Refusals.java")
CODE = ErrorCode.TOPIC_AUTHORIZATION_FAILED
TOPIC_ID = b"0123456789abcdef"
NOT_IN_KAFKA_4_1 = {
    (ApiKey.LIST_OFFSETS, 0),
    (ApiKey.WRITE_TXN_MARKERS, 2),
    (ApiKey.DESCRIBE_LOG_DIRS, 5),
    (ApiKey.BROKER_HEARTBEAT, 2),
}
EVERY = [
    (api.key, version)
    for api in API.values()
    for version in range(api.min_version, api.max_version + 1)
]


def written(message: object, key: ApiKey, version: int) -> bytes:
    parts = encode(message, version=version, flexible=version >= API[key].first_flexible)
    assert all(isinstance(each, bytes | memoryview) for each in parts)
    return b"".join(parts)  # type: ignore[arg-type] # as the line above says


def read(body: bytes, key: ApiKey, version: int) -> Any:
    flexible = version >= API[key].first_flexible
    return decode(API[key].response, memoryview(body), version=version, flexible=flexible)


def without_messages(message: Any) -> Any:
    """Set every error message to null: Kafka's own sentences are not ours to repeat."""
    kind: type = type(message)
    for field in fields_of(kind):
        value = getattr(message, field.name)
        if field.name == "error_message":
            message.error_message = None
        for each in value if isinstance(value, list) else ():
            if isinstance(field.wire.items, type):
                without_messages(each)
    return message


def test_a_request_that_fails_is_answered_as_kafka_answers_it(tmp_path: Path) -> None:
    asked = {pair: full_request(*pair, TOPIC_ID) for pair in EVERY}
    requests = tmp_path / "requests"
    lines = (f"{pair[0]} {pair[1]} {written(each, *pair).hex()}\n" for pair, each in asked.items())
    requests.write_text("".join(lines))
    answered = tools.run_tool(str(PROGRAM), str(requests)).splitlines()
    different, not_kafkas = {}, set()
    for pair, line in zip(EVERY, answered, strict=True):
        if line == "-":
            not_kafkas.add(pair)
            continue
        theirs = read(bytes.fromhex(line), *pair)
        ours = read(written(refused_whole(*pair, asked[pair], CODE), *pair), *pair)
        if without_messages(ours) != without_messages(theirs):
            different[pair] = (ours, theirs)
    assert different == {}, next(iter(different.items()))
    assert not_kafkas <= NOT_IN_KAFKA_4_1
