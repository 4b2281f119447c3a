"""A leader of Apache Kafka with a segment from before record batches, and a follower of ours.

Brokers 1 and 2 are Kafka's, and broker 3 is ours. The log of broker 1 begins with messages of magic 0
or 1, as one that was upgraded from Kafka 0.10 may; Kafka 4 leads with it still. Ours reads only
magic 2: it says why it does not follow, stays out of the ISR, and asks for the partition no more.
"""

import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from storage.types import TopicPartition
from tests.clients.sample import in_thread
from tests.interop.kafka import Kafka
from tests.interop.own_clients import admin_of, asked_until, make_topic, produce, wait_for_isr

pytestmark = [pytest.mark.interop, pytest.mark.slow]

JAVA, OURS = 1, 3
VALUES = [b"first", b"second", b"third"]


def message(offset: int, value: bytes, *, magic: int) -> bytes:
    """Return a message as Kafka 0.8 (magic 0) or 0.10 (magic 1) wrote it, in a log of its own."""
    timestamp = struct.pack(">q", 1_450_000_000_000) if magic else b""
    body = struct.pack(">bb", magic, 0) + timestamp + struct.pack(">ii", -1, len(value)) + value
    checked = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(checked)) + checked


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    data_dir = tmp_path_factory.mktemp("old-formats")
    with Kafka(data_dir=data_dir, brokers=3, ours={OURS}) as kafka:
        yield kafka


def segment_of(kafka: Kafka, partition: TopicPartition) -> Path:
    return kafka.log_dirs[JAVA] / str(partition) / f"{0:020}.log"


def lines_about(kafka: Kafka, partition: TopicPartition) -> list[str]:
    output = re.sub(r"\x1b\[[0-9;]*m", "", kafka.output(OURS))
    return [
        each
        for each in output.splitlines()
        if "UnsupportedFormatError" in each and str(partition) in each
    ]


@pytest.mark.parametrize("magic", [0, 1])
async def test_a_replica_that_cannot_follow_says_why_and_stays_out(
    mixed: Kafka, magic: int
) -> None:
    partition = TopicPartition(f"magic-{magic}", 0)
    await make_topic(mixed, partition.topic, (JAVA,))
    await in_thread(mixed.stop, JAVA)
    old = b"".join(message(at, value, magic=magic) for at, value in enumerate(VALUES))
    segment_of(mixed, partition).write_bytes(old)
    await in_thread(mixed.start, JAVA)
    async with admin_of(mixed) as admin:

        async def isr() -> list[int]:
            (described,) = (await admin.describe_topics([partition.topic]))[
                partition.topic
            ].partitions
            return sorted(described.isr) if described.leader == JAVA else []

        await asked_until(isr, lambda members: members == [JAVA])
        await admin.alter_partition_reassignments({partition: (JAVA, OURS)})

        async def said() -> list[str]:
            return lines_about(mixed, partition)

        await asked_until(said, bool)
        await trio.sleep(5)  # real time, in which it would have asked again
        (line,) = lines_about(mixed, partition)
        assert (
            f"the leader has a batch of magic {magic} at offset 0: only magic 2 is replicated"
            in line
        )
        assert await isr() == [JAVA]
        assert partition in await admin.list_partition_reassignments()
    assert not (mixed.log_dirs[OURS] / str(partition) / f"{0:020}.log").read_bytes()
    beside = f"beside-{magic}"
    await make_topic(mixed, beside, (JAVA, OURS))
    await produce(mixed, beside, 1)
    async with admin_of(mixed) as admin:
        await wait_for_isr(admin, beside, JAVA, OURS)
