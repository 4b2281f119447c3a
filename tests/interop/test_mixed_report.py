"""The report of a mixed cluster in which our broker must truncate its log, with either controller."""

from pathlib import Path

import pytest

from storage.types import TopicPartition
from tests.clients.sample import in_thread
from tests.interop.explained import check_explained
from tests.interop.kafka import CONTROLLER_ALONE, Kafka
from tests.interop.own_clients import (
    admin_of,
    elect_uncleanly,
    killed,
    make_topic,
    produce,
    wait_for_isr,
)

pytestmark = pytest.mark.interop

JAVA, OURS = 1, 2


@pytest.mark.parametrize(
    "ours",
    [
        pytest.param({OURS}, id="Kafka's controller"),
        pytest.param({OURS, CONTROLLER_ALONE}, id="our controller", marks=pytest.mark.slow),
    ],
)
async def test_its_page_explains_every_election_and_truncation(
    tmp_path: Path, ours: set[int]
) -> None:
    async with Kafka(data_dir=tmp_path, brokers=2, ours=ours) as kafka:
        await make_topic(kafka, "cut", (OURS, JAVA), min_insync_replicas="1")
        async with admin_of(kafka) as admin:
            await produce(kafka, "cut", *range(5))
            async with killed(kafka, JAVA):
                await wait_for_isr(admin, "cut", OURS)
                await produce(kafka, "cut", *range(5, 10))
                await in_thread(kafka.kill, OURS)
            await elect_uncleanly(admin, TopicPartition("cut", 0), JAVA)
            await produce(kafka, "cut", *range(10, 13))
            await in_thread(kafka.start, OURS)
            await wait_for_isr(admin, "cut", OURS, JAVA, leader=JAVA)
            await admin.elect_leaders([TopicPartition("cut", 0)])
            await wait_for_isr(admin, "cut", OURS, JAVA, leader=OURS)
        for broker in (OURS, JAVA):
            await in_thread(kafka.stop, broker)
    # Spark's calls block, and this loop has nothing else to do.
    assert check_explained(kafka, tmp_path) == 1
