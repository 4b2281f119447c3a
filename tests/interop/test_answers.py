"""The same requests to Apache Kafka and to a broker of ours, and the answers compared."""

from collections.abc import Iterator
from functools import partial

import pytest
import trio

from replication.client.admin import Acl, Operation, ResourceType
from replication.wire.apis import ApiKey
from tests.interop.kafka import Kafka
from tests.interop.twins import Side, make_topics, strict_kafka, twins
from tests.replication.cluster.test_acls import allow
from tests.replication.wire.full_requests import TOPIC, full_request

pytestmark = [pytest.mark.interop, pytest.mark.slow]

GROUP, TRANSACTION = ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
TO_SEE = (
    allow(Operation.DESCRIBE, TOPIC),
    allow(Operation.DESCRIBE, "g", kind=GROUP),
    allow(Operation.DESCRIBE, "t", kind=TRANSACTION),
)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with strict_kafka(tmp_path_factory.mktemp("strict-kafka")) as running:
        trio.run(make_topics, running)
        yield running


def about_shut(key: ApiKey, version: int, side: Side) -> object:
    return full_request(key, version, side.topic_id(TOPIC))


@pytest.mark.parametrize("rights", [(), TO_SEE], ids=["none", "to see"])
async def test_every_api_refuses_as_kafka_does(kafka: Kafka, rights: tuple[Acl, ...]) -> None:
    different = {}
    async with twins(kafka, *rights) as both:
        for key, version in both.every_api():
            theirs, ours = await both.ask(partial(about_shut, key, version), version)
            if theirs != ours:
                different[key.name, version] = (theirs, ours)
    assert different == {}, next(iter(different.items()))
