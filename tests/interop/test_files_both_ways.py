"""Apache Kafka serves partitions that we wrote, and we serve partitions that it wrote.

A partition's directory needs one thing of the cluster it comes to: its topic's id. All else is
read back as it is, byte for byte, after a clean shutdown and after a crash.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import trio

from replication import open_cluster
from replication.client.admin import Admin
from replication.net import production_seams
from replication.verify import Comparison, Different
from replication.verify.sources import PartitionSelection, VerificationPlan
from replication.wire.list_offsets import EARLIEST
from storage.types import Offset, TopicPartition
from tests.interop import tools
from tests.interop.kafka import Kafka
from tests.interop.test_dump_log import files_of, kafkas_dump, our_dump
from tests.interop.written import (
    CODECS,
    PROPERTIES,
    TRIMMED,
    Written,
    copy_of_running,
    make_topics,
    topics_of,
    transplant,
    write,
)

pytestmark = [pytest.mark.interop, pytest.mark.slow]

OURS, THEIRS = topics_of("ours"), topics_of("theirs")


@attrs.frozen
class Theirs:
    """A broker of Kafka's that runs, and what it had written at its first shutdown."""

    kafka: Kafka
    written: Written


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theirs]:
    directory = tmp_path_factory.mktemp("theirs")
    with Kafka(data_dir=directory / "kafka", properties=PROPERTIES) as kafka:
        servers, log_dir = kafka.bootstrap_servers, kafka.log_dirs[1]

        async def fill() -> None:
            await make_topics(servers, "ours")
            await make_topics(servers, "theirs")
            await write(servers, "theirs", log_dir)

        trio.run(fill)
        for codec in CODECS:
            lines = "".join(f"{codec} by Java, {number}\n" for number in range(50))
            codec_of = f"--compression-codec={codec}"
            kafka.run_tool(
                tools.CONSOLE_PRODUCER, "--topic", THEIRS["codecs"].topic, codec_of, stdin=lines
            )
        unclean = copy_of_running(log_dir, directory / "unclean")
        kafka.stop(1)
        clean = Path(shutil.copytree(log_dir, directory / "clean"))
        kafka.start(1)
        yield Theirs(kafka, Written(clean, unclean))


async def compared(log_dir: Path, servers: str, prefix: str) -> Comparison:
    return await VerificationPlan(
        directories=[str(log_dir)],
        bootstrap_servers=[servers],
        selection=PartitionSelection(topics=f"{prefix}-.*"),
    ).run(production_seams())


def assert_same(comparison: Comparison, partitions: dict[str, TopicPartition]) -> None:
    differing = [str(each) for each in comparison.partitions if isinstance(each, Different)]
    assert differing == []
    assert {each.partition for each in comparison.partitions} == set(partitions.values())


def committed_values(kafka: Kafka, topic: str, count: int) -> list[str]:
    """Return the records as Kafka's own consumer reads them."""
    isolation = ("--isolation-level=read_committed",)
    much = ("--from-beginning", f"--max-messages={count}", "--timeout-ms=60000")
    return kafka.run_tool(tools.CONSOLE_CONSUMER, "--topic", topic, *much, *isolation).splitlines()


async def start_of(servers: str, partition: TopicPartition) -> Offset:
    async with Admin(servers) as admin:
        return (await admin.list_offsets({partition: EARLIEST}))[partition].offset


@pytest.mark.parametrize("ends", ["clean", "unclean"])
def test_kafka_serves_what_we_wrote(theirs: Theirs, ours: Written, ends: str) -> None:
    kafka, source = theirs.kafka, getattr(ours, ends)
    (kafka.stop if ends == "clean" else kafka.kill)(1)
    transplant(source, kafka.log_dirs[1], list(OURS.values()))
    kafka.start(1)
    assert_same(trio.run(compared, source, kafka.bootstrap_servers, "ours"), OURS)
    found = committed_values(kafka, OURS["transactions"].topic, 10)
    assert sorted(found) == ["0", "0", "0", "1", "1", "2", "2", "2", "3", "3"]
    said = kafka.output(1)
    assert not [text for text in said.splitlines() if "ERROR" in text and "ours-" in text]
    assert "corrupted index" not in said
    # It reads every checkpoint of ours, and names what it cannot read.
    assert not [text for text in said.splitlines() if " WARN " in text and "-checkpoint" in text]
    assert trio.run(start_of, kafka.bootstrap_servers, OURS["trimmed"]) == TRIMMED


@pytest.mark.parametrize("name", list(THEIRS))
def test_what_kafka_wrote_is_dumped_alike(theirs: Theirs, name: str) -> None:
    files = files_of(theirs.written.clean, THEIRS[name].topic)
    done = kafkas_dump(files, "--print-data-log")
    lines, findings = our_dump(files)
    assert done.output.splitlines() == lines
    assert done.errors.splitlines() == findings == []


def test_a_running_kafka_and_its_files_are_the_same(theirs: Theirs) -> None:
    kafka = theirs.kafka
    for log_dir in (theirs.written.clean, theirs.written.unclean):
        assert_same(trio.run(compared, log_dir, kafka.bootstrap_servers, "theirs"), THEIRS)


@pytest.mark.parametrize("ends", ["clean", "unclean"])
async def test_we_serve_what_kafka_wrote(theirs: Theirs, tmp_path: Path, ends: str) -> None:
    source = getattr(theirs.written, ends)
    data_dir, log_dir = str(tmp_path), tmp_path / "broker-1" / "log"
    async with open_cluster(brokers=1, data_dir=data_dir) as cluster:
        await make_topics(cluster.bootstrap_servers, "theirs")
    if ends == "unclean":
        (log_dir / ".kafka_cleanshutdown").unlink()
    transplant(source, log_dir, list(THEIRS.values()))
    async with open_cluster(brokers=1, data_dir=data_dir) as cluster:
        servers = cluster.bootstrap_servers
        assert_same(await compared(source, servers, "theirs"), THEIRS)
        async with cluster.consumer(
            isolation_level="read_committed", auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([THEIRS["transactions"]])
            found: list[bytes] = []
            with trio.fail_after(60):
                while len(found) < 10:
                    found += [each.value for each in await consumer.poll(timeout_ms=500)]
        assert sorted(found) == sorted([b"0", b"0", b"0", b"1", b"1", b"2", b"2", b"2", b"3", b"3"])
