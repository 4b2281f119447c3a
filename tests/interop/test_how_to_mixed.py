"""docs/how-to-mixed.md is run as it is written, in one shell, beside two brokers of Apache Kafka."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from replication.cli.isolated import free_ports
from replication.cli.kafka.processes import java_environment
from tests.docs.snippets import ROOT, Block, blocks_of
from tests.interop import tools
from tests.interop.kafka import CONTROLLER_ALONE, Kafka
from tests.interop.own_clients import admin_of, producer_of

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SECONDS = 150
CLASSES = {
    "kafka-cluster.sh": "org.apache.kafka.tools.ClusterTool",
    "kafka-reassign-partitions.sh": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
}


def write_commands(directory: Path) -> None:
    """Write the scripts that a distribution of Kafka has, and ours, for the tree under test."""
    directory.mkdir()
    commands = {name: tools.java_command(main_class) for name, main_class in CLASSES.items()}
    commands["understudy"] = [sys.executable, "-m", "replication.cli"]
    for name, command in commands.items():
        script = directory / name
        script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        script.chmod(0o755)


def as_shell(block: Block) -> str:
    if block.language == "properties":
        return f"cat > server.properties <<'END'\n{block.text}END\n"
    if block.language == "python":
        return f"{shlex.quote(sys.executable)} - <<'END'\n{block.text}END\n"
    return block.text


def run_page(kafka: Kafka, folder: Path) -> str:
    """Run all blocks of the page in `folder`; return what they print."""
    write_commands(folder / "bin")
    script = "".join(map(as_shell, blocks_of(ROOT / "docs" / "how-to-mixed.md")))
    addresses = {
        "kafka1:9092": kafka.address(1),
        "controller:9093": kafka.address(CONTROLLER_ALONE, "CONTROLLER"),
        "127.0.0.1:9095": f"127.0.0.1:{free_ports(1)[0]}",
    }
    for shown, real in addresses.items():
        script = script.replace(shown, real)
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    # `timeout` ends all that the shell has started, the broker too.
    done = subprocess.run(
        ["timeout", str(SECONDS), "bash", "-e", "-c", script],
        cwd=folder,
        env=java_environment() | {"PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def fill(kafka: Kafka) -> None:
    async with producer_of(kafka, acks="all") as producer:
        for number in range(4):
            await producer.send("orders", b"book %d" % number)


async def brokers_and_replicas(kafka: Kafka) -> tuple[list[int], list[int]]:
    async with admin_of(kafka) as admin:
        cluster = await admin.describe_cluster()
        (partition,) = (await admin.describe_topics(["orders"]))["orders"].partitions
        return [each.id for each in cluster.brokers], sorted(partition.isr)


def test_a_broker_comes_and_goes_as_the_page_shows(tmp_path: Path) -> None:
    with Kafka(data_dir=tmp_path / "kafka", brokers=2) as kafka:
        kafka.create_topic("orders", replicas=2)
        trio.run(fill, kafka)
        folder = tmp_path / "here"
        folder.mkdir()
        printed = run_page(kafka, folder)
        assert "leader epoch 0 [b'book 0'" in printed
        assert "b'book 3']" in printed
        assert "Broker 3 is no longer registered." in printed
        assert trio.run(brokers_and_replicas, kafka) == ([1, 2], [1, 2])
