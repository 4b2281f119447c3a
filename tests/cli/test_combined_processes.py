"""Three processes, each broker and controller: the one that leads everything is killed."""

import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest
import trio

from replication.broker.nodes import HOST
from replication.cli.isolated import free_ports
from replication.cli.probe import broker_ids
from replication.client import Consumer, Producer
from replication.client.admin import Admin, NewTopic
from storage.types import TopicPartition

pytestmark = [pytest.mark.slow, pytest.mark.deep]

IDS = (1, 2, 3)
TIMEOUT = 60
QUICK = {
    "cluster.id": "three-of-both",
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "2000",
    "offsets.topic.num.partitions": "1",
    "min.insync.replicas": "2",
}


@attrs.define
class Nodes:
    """The nodes as processes, each from a server.properties of its own."""

    directory: Path
    ports: dict[int, int] = attrs.field(init=False)
    _running: dict[int, subprocess.Popen[bytes]] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        ports = free_ports(2 * len(IDS))
        self.ports = dict(zip(IDS, ports[: len(IDS)], strict=True))
        controllers = dict(zip(IDS, ports[len(IDS) :], strict=True))
        voters = ",".join(f"{each}@{HOST}:{port}" for each, port in controllers.items())
        for each in IDS:
            listeners = [f"PLAINTEXT://{HOST}:{self.ports[each]}"]
            listeners += [f"CONTROLLER://{HOST}:{controllers[each]}"]
            found = QUICK | {
                "process.roles": "broker,controller",
                "node.id": str(each),
                "listeners": ",".join(listeners),
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": voters,
                "log.dirs": str(self.directory / f"{each}"),
            }
            lines = [f"{key}={value}\n" for key, value in found.items()]
            self._properties(each).write_text("".join(lines))

    def _properties(self, node_id: int) -> Path:
        return self.directory / f"{node_id}.properties"

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    def start(self, node_id: int) -> None:
        command = [sys.executable, "-m", "replication.cli", "broker", "--config"]
        with (self.directory / f"{node_id}.log").open("ab") as said:
            self._running[node_id] = subprocess.Popen(
                [*command, str(self._properties(node_id))], stdout=said, stderr=said
            )

    def kill(self, node_id: int) -> None:
        process = self._running.pop(node_id)
        process.kill()
        process.wait(TIMEOUT)

    def stop(self) -> list[int]:
        """Stop all nodes side by side, and return their exit codes."""
        for process in self._running.values():
            process.terminate()
        codes = [process.wait(TIMEOUT) for process in self._running.values()]
        self._running.clear()
        return codes


@contextmanager
def three_of_both(directory: Path) -> Iterator[Nodes]:
    nodes = Nodes(directory)
    try:
        for each in IDS:
            nodes.start(each)
        yield nodes
    finally:
        nodes.stop()


async def until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """Ask processes again until `holds` is true."""
    with trio.move_on_after(TIMEOUT):
        while not await holds():  # noqa: ASYNC110 - processes
            await trio.sleep(0.1)
        return
    raise AssertionError(f"not in time: {what}")


async def send(producer: Producer[bytes, bytes], numbers: range) -> None:
    for number in numbers:
        await producer.send("t", str(number).encode())


async def lose_the_leader_of_everything(nodes: Nodes) -> list[bytes | None]:
    """Return what can be read of 200 records, between which the first leader is killed."""

    async def all_know_all() -> bool:
        await trio.lowlevel.checkpoint()
        return all(broker_ids(HOST, port) == {*IDS} for port in nodes.ports.values())

    async def all_are_in_sync() -> bool:
        (partition,) = (await admin.describe_topics(["t"]))["t"].partitions
        return {*partition.isr} == {*IDS}

    await until(all_know_all, "three brokers")
    async with Admin(nodes.bootstrap_servers) as admin:
        victim = (await admin.describe_metadata_quorum()).leader_id
        others = tuple(each for each in IDS if each != victim)
        await admin.create_topics([NewTopic(name="t", replicas=((victim, *others),))])
        writer: Producer[bytes, bytes] = Producer(nodes.bootstrap_servers, acks="all")
        async with writer as producer:
            await send(producer, range(100))
            nodes.kill(victim)
            await send(producer, range(100, 200))
        assert (await admin.describe_metadata_quorum()).leader_id in others
        nodes.start(victim)
        await until(all_are_in_sync, "all replicas in sync")
    async with Consumer(
        bootstrap_servers=nodes.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        return [(await consumer.getone()).value for _ in range(200)]


def test_what_was_acknowledged_survives_the_leader_of_everything(tmp_path: Path) -> None:
    with three_of_both(tmp_path) as nodes:
        values = trio.run(lose_the_leader_of_everything, nodes)
        assert values == [str(number).encode() for number in range(200)]
        assert nodes.stop() == [0, 0, 0]
    assert {each.name for each in tmp_path.iterdir() if each.is_dir()} == {"1", "2", "3"}
