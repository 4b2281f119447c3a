"""Apache Kafka's processes as the cluster of a story.

    c      the controller, node 100      b1     broker 1, advertised under that name

Rule 1: who leads, and who is in sync, is read from the controller's metadata log, which is written
before any broker knows it. The controller is alone, so its log is committed as soon as it is there.

Rule 2: each process finds the others by its own file of names (`jdk.net.hosts.file`), which leads
through relays (`links`). The files are in the data directory.

Rule 3: the timeouts of a broker are Kafka's defaults, as in the simulator, divided by the speed. An
election after `unclean.leader.election.enable` was set is tried every second, not every five minutes.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from replication.broker.nodes import HOST
from replication.cli.kafka.links import Links
from replication.cli.kafka.processes import (
    CLUSTER_ID,
    CONTROLLER_ALONE,
    KafkaFailedError,
    KafkaProcesses,
)
from replication.cluster.interface import NotInTimeError
from replication.config import BrokerConfig
from replication.controller.directory import default_format
from replication.errors import PeerUnavailableError
from replication.metadata.formatter import format_directories
from replication.metadata.rules.image import MetadataImage, PartitionRegistration, apply_batches
from replication.metadata.rules.records import METADATA_PARTITION
from replication.net.rpc import RpcClient
from replication.net.seams import NodeClock, Seams
from scenarios.world.client import closing
from scenarios.world.cluster import CONTROLLER, PATIENCE_SECONDS
from storage.attributes import define
from storage.filesystem import OsFileSystem
from storage.types import TopicPartition

POLL_SECONDS: Final = 0.1
ASKING_MS: Final = 2_000
START_SECONDS: Final = 120.0  # of a Java virtual machine on a busy machine; never scaled

TIMES: Final = {
    "broker.heartbeat.interval.ms": "2000",
    "broker.session.timeout.ms": "9000",
    "log.initial.task.delay.ms": "30000",
    "log.retention.check.interval.ms": "300000",
    "replica.fetch.backoff.ms": "1000",
    "replica.fetch.wait.max.ms": "500",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "replica.lag.time.max.ms": "30000",
    "unclean.leader.election.interval.ms": "1000",
}
"""Kafka's defaults, but for the checkpoint and the election, which a story would wait for too long."""
COMMON: Final = {"offsets.topic.num.partitions": "50", "transaction.state.log.num.partitions": "50"}


def node_id_of(name: str) -> int:
    """Return the id of a process; `c` is the controller."""
    return CONTROLLER_ALONE if name == CONTROLLER else int(name[1:])


def name_of(node_id: int) -> str:
    """Return the name of a process in stories."""
    return CONTROLLER if node_id == CONTROLLER_ALONE else f"b{node_id}"


@define(eq=False, kw_only=True)
class NamedKafka(KafkaProcesses):
    """Processes that know each other by name only; the controller is one beside a single broker too."""

    @property
    def controller_ids(self) -> list[int]:
        return [CONTROLLER_ALONE]

    def port(self, name: str) -> int:
        """Return the port at which a process listens itself."""
        listener = "CONTROLLER" if name == CONTROLLER else "PLAINTEXT"
        return self._ports[node_id_of(name)][listener]

    def hosts_file(self, name: str) -> Path:
        """Return the file by which a process finds the others."""
        return self._directory(node_id_of(name)) / "hosts"

    def write_hosts(self, name: str, addresses: Mapping[str, str]) -> None:
        """Write the addresses of the others, by name; its own is loopback."""
        known = {name: HOST, "localhost": HOST, **addresses}
        lines = (f"{address} {other}\n" for other, address in known.items())
        self.hosts_file(name).write_text("".join(lines))

    def _own_java_options(self, node_id: int) -> Sequence[str]:
        return (f"-Djdk.net.hosts.file={self.hosts_file(name_of(node_id))}",)

    def _server_properties(self, node_id: int) -> dict[str, str]:
        found = super()._server_properties(node_id)
        found["controller.quorum.voters"] = (
            f"{CONTROLLER_ALONE}@{CONTROLLER}:{self.port(CONTROLLER)}"
        )
        name = name_of(node_id)
        listener = "CONTROLLER" if name == CONTROLLER else "PLAINTEXT"
        found["advertised.listeners"] = f"{listener}://{name}:{self.port(name)}"
        return found

    def format(self) -> None:
        """Write the directories as Kafka's StorageTool does, without a virtual machine for each."""
        for node_id in self.node_ids:
            properties = self._server_properties(node_id)
            self._write_properties(node_id, properties)
            named = {**properties, "cluster.id": CLUSTER_ID}
            format_directories(
                OsFileSystem(),
                default_format(BrokerConfig.from_properties(named), CLUSTER_ID),
                random_bytes=secrets.token_bytes,
                wall_ms=time.time_ns() // 1_000_000,
            )


def scaled(properties: Mapping[str, str], speed: float) -> dict[str, str]:
    """Return properties with every positive time in milliseconds divided by the speed."""
    return {
        key: str(max(1, round(int(value) / speed)))
        if key.endswith(".ms") and value.isdecimal() and value != "0"
        else value
        for key, value in properties.items()
    }


@define(eq=False, kw_only=True, repr=False)
class KafkaCluster:
    """The processes of a story, by name (`scenarios.story.client_stage.StoryCluster`)."""

    processes: NamedKafka
    links: Links
    seams: Seams
    speed: float
    frozen: set[str] = attrs.field(factory=set)
    _image: MetadataImage = attrs.field(init=False, factory=MetadataImage)
    _read_bytes: int = attrs.field(init=False, default=0)

    @property
    def clock(self) -> NodeClock:
        return self.seams.clock

    @property
    def names(self) -> list[str]:
        return [name_of(node_id) for node_id in self.processes.node_ids]

    @property
    def broker_names(self) -> list[str]:
        return [name_of(node_id) for node_id in self.processes.broker_ids]

    @property
    def has_quorum(self) -> bool:
        return self.is_running(CONTROLLER)

    def is_running(self, name: str) -> bool:
        return self.processes.is_running(node_id_of(name))

    # What the controller has decided.

    @property
    def image(self) -> MetadataImage:
        """The metadata in the controller's log (rule 1)."""
        files = sorted(self._directory(CONTROLLER, METADATA_PARTITION).glob("*.log"))
        if (size := sum(each.stat().st_size for each in files)) != self._read_bytes:
            self._read_bytes = size
            for each in files:
                self._image = apply_batches(self._image, each.read_bytes())
        return self._image

    def partition(self, topic_partition: TopicPartition) -> PartitionRegistration | None:
        return self.image.partition(topic_partition)

    def leader(self, topic_partition: TopicPartition) -> str | None:
        registration = self.partition(topic_partition)
        if registration is None or registration.leader < 0:
            return None
        return name_of(registration.leader)

    def disks(self) -> OsFileSystem:
        return OsFileSystem()

    def log_directories(self, name: str) -> list[str]:
        return [self.log_directory(name)]

    def log_directory(self, name: str) -> str:
        return str(self.processes.data_dir / f"node-{node_id_of(name)}" / "log")

    def _directory(self, name: str, partition: TopicPartition) -> Path:
        return Path(self.log_directory(name), str(partition))

    # Waiting, and asking one broker beside all links.

    async def until(
        self,
        predicate: Callable[[], bool],
        *,
        what: str,
        seconds: float = PATIENCE_SECONDS,
        why: Callable[[], str] | None = None,
    ) -> None:
        del why  # the simulator looks into its brokers for that
        deadline = self.clock.now() + seconds
        while not predicate():
            if self.clock.now() > deadline:
                raise NotInTimeError(f"not within {seconds:g} s of the story: {what}")
            await self.clock.sleep(POLL_SECONDS)

    async def ask(self, name: str, request: object, *, version: int) -> Any:
        """Return the response of a broker; PeerUnavailableError if there is none."""
        connected = await RpcClient.connect(
            self.seams.transport,
            HOST,
            self.processes.port(name),
            client_id="observer",
            clock=self.clock,
            timeout_ms=ASKING_MS,
        )
        async with closing(connected) as rpc:
            return await rpc.call(request, version=version, timeout_ms=ASKING_MS)

    # What happens to them.

    async def start(self, name: str) -> None:
        """Start a process; return when a broker is unfenced, or a controller listens."""
        before = self.image.broker_epoch(node_id_of(name))
        self.processes.spawn(node_id_of(name))
        if name == CONTROLLER:
            await self._until_listening(name)
            return

        def is_unfenced() -> bool:
            if not self.is_running(name):
                raise KafkaFailedError(
                    f"{name} has ended: {self.processes.output(node_id_of(name))[-2000:]}"
                )
            image, node_id = self.image, node_id_of(name)
            return image.broker_epoch(node_id) != before and image.is_alive(node_id)

        seconds = START_SECONDS * self.speed
        await self.until(is_unfenced, what=f"{name} is unfenced", seconds=seconds)
        await self._until_listening(name)

    async def _until_listening(self, name: str) -> None:
        with self.clock.move_on_after(START_SECONDS * self.speed):
            while True:
                try:
                    connected = await self.seams.transport.connect(HOST, self.processes.port(name))
                except PeerUnavailableError:
                    await self.clock.sleep(POLL_SECONDS)
                else:
                    connected.close()
                    return
        raise NotInTimeError(f"{name} does not listen")

    async def kill(self, name: str) -> None:
        await self.seams.offload(lambda: self.processes.kill(node_id_of(name)))
        self._thawed(name)

    async def stop(self, name: str) -> None:
        self.resume(name)
        await self.seams.offload(lambda: self.processes.stop(node_id_of(name)))

    def pause(self, name: str) -> None:
        self.processes.freeze(node_id_of(name))
        self.frozen.add(name)
        self.links.freeze(name)

    def resume(self, name: str) -> None:
        if name in self.frozen:
            self.processes.thaw(node_id_of(name))
            self._thawed(name)

    def _thawed(self, name: str) -> None:
        self.frozen.discard(name)
        self.links.thaw(name)
