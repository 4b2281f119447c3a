"""The stage of a story whose brokers are Apache Kafka's.

Clients are those of the simulated stage, over TCP: they know brokers by name, through relays of
their own (`links`).

Rule: `wait` returns once the metadata says it, every broker that runs and is not frozen says the
same to clients, and the leader serves. In Kafka a client may hear of a leader before it serves.
"""

from contextlib import AsyncExitStack
from pathlib import Path

import attrs
import trio

from replication.broker.nodes import HOST
from replication.cli.kafka.cluster import (
    COMMON,
    POLL_SECONDS,
    TIMES,
    KafkaCluster,
    NamedKafka,
    name_of,
    scaled,
)
from replication.cli.kafka.links import Links
from replication.cli.kafka.processes import JavaCommand
from replication.cluster.interface import NotInTimeError
from replication.errors import ErrorCode, PeerUnavailableError
from replication.metadata.rules.image import PartitionRegistration
from replication.net import production_seams
from replication.net.seams import Connection, Listener, Seams
from replication.wire.list_offsets import (
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from replication.wire.metadata import MetadataRequest, MetadataRequestTopic
from scenarios.story.client_stage import ClientStage
from scenarios.story.log_drawing import readable_batches
from scenarios.story.script import ScriptError
from scenarios.world.client import CLIENT, LIST_OFFSETS_VERSION, METADATA_VERSION, StoryClient
from scenarios.world.cluster import BROKER_PORT, PATIENCE_SECONDS
from storage.attributes import define, frozen
from storage.checkpoint import OffsetCheckpoint
from storage.types import Offset, TopicPartition

NOT_SERVING = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


@frozen
class ClientTransport:
    """TCP, to brokers that are known by name, through the relays of one client."""

    links: Links
    client: str

    async def listen(self, host: str, port: int) -> Listener:
        return await self.links.seams.transport.listen(host, port)

    async def connect(self, host: str, port: int) -> Connection:
        del port  # a story knows one port for all
        await self.links.passed(self.client, host)
        tcp, own = self.links.seams.transport, self.links.ports[host]
        (await tcp.connect(HOST, own)).close()  # a relay accepts for a process that is down too
        address = self.links.address(self.client, host)
        return await tcp.connect(address, own)


@define(eq=False, kw_only=True, repr=False)
class KafkaStage(ClientStage):
    """The state of one story on Apache Kafka."""

    command: JavaCommand
    data_dir: Path
    speed: float
    stack: AsyncExitStack
    _cluster: KafkaCluster | None = attrs.field(default=None, init=False)

    @property
    def cluster(self) -> KafkaCluster:
        if self._cluster is None:
            raise ScriptError("there is no cluster yet: a story begins with `cluster`")
        return self._cluster

    @property
    def network(self) -> Links:
        return self.cluster.links

    def pause(self, name: str) -> None:
        self.cluster.pause(name)

    def resume(self, name: str) -> None:
        self.cluster.resume(name)

    async def open(
        self, *, brokers: int, controllers: int, combined: bool, properties: dict[str, str]
    ) -> None:
        if self._cluster is not None:
            raise ScriptError("a story has one cluster")
        assert (controllers, combined) == (1, False), "another script is refused before it begins"
        seams = production_seams()
        self._background = await self.stack.enter_async_context(trio.open_nursery())
        self.stack.callback(self._background.cancel_scope.cancel)
        self._cluster = await self._started(brokers, properties, seams)
        self._client = StoryClient(
            name=CLIENT,
            seams=attrs.evolve(seams, transport=ClientTransport(self._cluster.links, CLIENT)),
            bootstrap=[(name, BROKER_PORT) for name in self._cluster.broker_names],
            speed=self.speed,
        )
        self.stack.callback(self._client.close)

    async def _started(
        self, brokers: int, properties: dict[str, str], seams: Seams
    ) -> KafkaCluster:
        common, of_nodes = _by_node(properties, brokers)
        processes = NamedKafka(
            data_dir=self.data_dir,
            command=self.command,
            brokers=brokers,
            controllers=1,
            properties=COMMON | scaled(TIMES | common, self.speed),
            node_properties={
                node_id: scaled(given, self.speed) for node_id, given in of_nodes.items()
            },
        )
        assert self._background is not None, "it was opened just now"
        self.stack.callback(processes.kill_all)
        processes.choose_ports()
        names = [name_of(node_id) for node_id in processes.node_ids]
        links = Links(seams, self._background, {name: processes.port(name) for name in names})
        for name in [*names, CLIENT]:
            await links.open(name)
        for name in names:
            others = {other: links.address(name, other) for other in names if other != name}
            processes.write_hosts(name, others)
        await seams.offload(processes.format)
        cluster = KafkaCluster(processes=processes, links=links, seams=seams, speed=self.speed)
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(cluster.start, name)
        return cluster

    # Waiting.

    async def until_led(self, partition: TopicPartition) -> None:
        await self.until_known(partition)
        clock = self.cluster.clock
        with clock.move_on_after(PATIENCE_SECONDS):
            while not await self._is_led(partition):
                await clock.sleep(POLL_SECONDS)
            return
        raise NotInTimeError(f"no broker leads {partition} within {PATIENCE_SECONDS:g} s")

    async def _is_led(self, partition: TopicPartition) -> bool:
        cluster = self.cluster
        leader, registration = cluster.leader(partition), cluster.partition(partition)
        if leader is None or registration is None or not cluster.is_running(leader):
            return False
        try:
            for name in cluster.broker_names:
                speaks = cluster.is_running(name) and name not in cluster.frozen
                if speaks and not await self._is_known(name, partition, registration):
                    return False
            return leader in cluster.frozen or await self._is_served(leader, partition)
        except PeerUnavailableError:
            return False

    async def _is_known(
        self, name: str, partition: TopicPartition, registration: PartitionRegistration
    ) -> bool:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=partition.topic)], allow_auto_topic_creation=False
        )
        response = await self.cluster.ask(name, request, version=METADATA_VERSION)
        return any(
            (each.leader_epoch, {*each.isr_nodes})
            == (registration.leader_epoch, {*registration.isr})
            for topic in response.topics
            for each in topic.partitions
            if each.partition_index == partition.partition
        )

    async def _is_served(self, leader: str, partition: TopicPartition) -> bool:
        wanted = ListOffsetsPartition(partition_index=partition.partition, timestamp=LATEST)
        topic = ListOffsetsTopic(name=partition.topic, partitions=[wanted])
        request = ListOffsetsRequest(topics=[topic])
        response = await self.cluster.ask(leader, request, version=LIST_OFFSETS_VERSION)
        return response.topics[0].partitions[0].error_code not in NOT_SERVING

    def is_equal(self, partition: TopicPartition) -> bool:
        """Return whether the replicas in sync have the same records, and know them committed.

        That is read from their disks, where high watermarks are written now and then.
        """
        registration = self.cluster.partition(partition)
        if registration is None:
            return False
        ends = set[Offset]()
        for broker_id in registration.isr:
            directory = self.cluster.log_directory(name_of(broker_id))
            batches, damage = readable_batches(self.cluster.disks(), f"{directory}/{partition}")
            if damage:
                return False
            path = f"{directory}/replication-offset-checkpoint"
            known = OffsetCheckpoint(self.cluster.disks(), path).read()
            ends |= {batches[-1].next_offset if batches else 0, known.get(partition, 0)}
        return len(ends) == 1


def _by_node(
    properties: dict[str, str], brokers: int
) -> tuple[dict[str, str], dict[int, dict[str, str]]]:
    """Return the properties of all nodes, and those of single ones, as `b2.broker.rack`, by id."""
    common: dict[str, str] = {}
    of_nodes: dict[int, dict[str, str]] = {node_id: {} for node_id in range(1, brokers + 1)}
    for key, value in properties.items():
        name, _, rest = key.partition(".")
        if name[:1] == "b" and name[1:].isdecimal() and int(name[1:]) in of_nodes:
            of_nodes[int(name[1:])][rest] = value
        else:
            common[key] = value
    return common, of_nodes
