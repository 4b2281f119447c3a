"""Every message and version, byte for byte against kio, both ways."""

import importlib
import pkgutil
import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from replication.steps import at_once
from replication.wire.apis import API, Api, ApiKey
from replication.wire.codec import decode, encode, encode_in_steps
from replication.wire.frames import decode_request, decode_response, encode_request, encode_response
from replication.wire.schema import Part
from tests.replication.wire.kio_oracle import (
    disagreements,
    entities,
    kio_bytes,
    kio_class,
    kio_entity,
    ours,
)
from tests.replication.wire.samples import EVERY_VERSION, parameters

LACKING_IN_KIO = {
    (ApiKey.LIST_OFFSETS, 0),
    (ApiKey.API_VERSIONS, 5),
    (ApiKey.TXN_OFFSET_COMMIT, 6),
    (ApiKey.DELETE_GROUPS, 3),
}
MESSAGES = parameters(
    (api, message, version)
    for api, message, version in EVERY_VERSION
    if (api.key, version) not in LACKING_IN_KIO
)
# Declared, and not offered: Kafka 4.0 holds this version back as unstable (KIP-939).
HELD_BACK = {ApiKey.INIT_PRODUCER_ID: 6}
BODIES = MESSAGES + parameters(
    (API[key], message, version)
    for key, version in HELD_BACK.items()
    for message in (API[key].request, API[key].response)
)
FEW = settings(
    max_examples=settings().max_examples // 4,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def joined(parts: list[Part]) -> bytes:
    return b"".join(part for part in parts if isinstance(part, bytes | memoryview))


@pytest.mark.parametrize(("api", "message", "version"), BODIES)
def test_our_bytes_are_kios_bytes(api: Api, message: type, version: int) -> None:
    theirs = kio_class(api, message, version)
    flexible = api.is_flexible(version)
    assert theirs.__flexible__ == flexible

    @FEW
    @given(entity=entities(theirs))
    def compare(entity: Any) -> None:
        expected = kio_bytes(entity)
        mine = ours(entity, message, version)
        written = joined(encode(mine, version=version, flexible=flexible))
        assert written == expected
        in_steps = encode_in_steps(mine, version=version, flexible=flexible)
        assert joined(at_once(in_steps)) == expected
        read: object = decode(message, memoryview(expected), version=version, flexible=flexible)
        assert read == mine
        assert joined(encode(read, version=version, flexible=flexible)) == expected
        assert kio_entity(theirs, written) == entity

    compare()


@pytest.mark.parametrize(("api", "message", "version"), MESSAGES)
def test_our_headers_are_kios_headers(api: Api, message: type, version: int) -> None:
    header_class = kio_class(api, message, version).__header_schema__
    mine = message()
    body = joined(encode(mine, version=version, flexible=api.is_flexible(version)))
    if message is api.request:
        header = kio_bytes(
            header_class(
                request_api_key=api.key,
                request_api_version=version,
                correlation_id=77,
                client_id="broker-1",
            )
        )
        parts = encode_request(mine, version=version, correlation_id=77, client_id="broker-1")
        read = decode_request(memoryview(header + body))[1]
    else:
        header = kio_bytes(header_class(correlation_id=77))
        parts = encode_response(mine, version=version, correlation_id=77)
        read = decode_response(memoryview(header + body), api_key=api.key, version=version)[1]
    assert joined(parts) == struct.pack(">i", len(header + body)) + header + body
    assert read == mine


@pytest.mark.parametrize("api", [pytest.param(api, id=api.key.name) for api in API.values()])
def test_only_the_versions_we_chose_to_leave_out_are_missing(api: Api) -> None:
    package = importlib.import_module(f"kio.schema.{api.key.name.lower()}")
    known = {int(module.name[1:]) for module in pkgutil.iter_modules(package.__path__)}
    served = set(range(api.min_version, api.max_version + 1))
    later = {
        ApiKey.INIT_PRODUCER_ID: {HELD_BACK[ApiKey.INIT_PRODUCER_ID]},
    }
    assert known - served == later.get(api.key, set())
    assert {(api.key, version) for version in served - known} <= LACKING_IN_KIO


@pytest.mark.parametrize(("api", "message", "version"), BODIES)
def test_null_and_defaults_are_declared_as_kio_has_them(
    api: Api, message: type, version: int
) -> None:
    assert not disagreements(kio_class(api, message, version), message, version)
