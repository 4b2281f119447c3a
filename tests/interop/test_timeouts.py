"""Apache Kafka answers every timeout of a request to its controller as ours does.

With a few milliseconds it does either.
"""

from functools import partial
from operator import eq
from typing import Any

import pytest

from replication.client.admin import Admin
from replication.errors import ErrorCode
from replication.net import production_seams
from tests.interop.kafka import Kafka
from tests.interop.own_clients import admin_of, asked_until, make_topic
from tests.replication.broker.clients import Client
from tests.replication.broker.controller_requests import CONTROLLER_REQUESTS, TIMEOUTS, Asked

pytestmark = pytest.mark.interop

A_MOMENT_MS = 5


@pytest.mark.parametrize("asked", CONTROLLER_REQUESTS, ids=lambda asked: asked.name)
async def test_a_request_is_carried_out_unless_its_time_is_up(kafka: Kafka, asked: Asked) -> None:
    client = Client(production_seams())
    for number, timeout_ms in enumerate(TIMEOUTS):
        topic = f"{asked.name}-{number}"
        if asked.needs_topic:
            await make_topic(kafka, topic)
        response: Any = await client.ask(
            kafka.address(1), asked.request(topic, timeout_ms), version=asked.version
        )
        errors = set(asked.errors(response))
        out_of_time = errors == {ErrorCode.REQUEST_TIMED_OUT}
        assert out_of_time or asked.when_done >= errors
        if not 0 < timeout_ms <= A_MOMENT_MS:
            assert out_of_time == (timeout_ms <= 0), timeout_ms
        if asked.partitions is not None:
            expected = asked.partitions(not out_of_time)
            async with admin_of(kafka) as admin:
                await asked_until(partial(_partitions, admin, topic), partial(eq, expected))


async def _partitions(admin: Admin, topic: str) -> int:
    """Return how many partitions a topic has; 0 where it does not exist."""
    if topic not in await admin.list_topics():
        return 0
    return len((await admin.describe_topics([topic]))[topic].partitions)
