"""A partition and what is around it: its log, its topic's id, its topic's configuration."""

import itertools
import random
from collections.abc import Callable, Mapping
from typing import TypeVar

import attrs
import pytest
import trio
from trio.testing import MockClock

from replication.config import BrokerConfig, TopicConfig
from replication.errors import ErrorCode, KafkaError
from replication.leader.list_offsets import offset_for_timestamp
from replication.leader.partition import Partition
from replication.leader.rules.fetch_data import FetchInfo, Isolation
from replication.metadata.rules.image import (
    MetadataImage,
    PartitionRegistration,
    TopicImage,
    delta_between,
)
from replication.wire import list_offsets as wire
from storage.batch.records import Record, encode_batch
from storage.checkpoint import HIGH_WATERMARK_CHECKPOINT, uuid_text
from storage.errors import InconsistentTopicIdError
from storage.testing import FaultyFileSystem
from tests.replication.leader.leader_side import (
    LOCAL,
    OTHER,
    REMOTE,
    TOPIC_ID,
    Broker,
    consumer_params,
    fetch,
    follower_params,
    lead,
    registration,
)
from tests.replication.replica_manager.replica_manager_side import CLOCK, TP, Node

T = TypeVar("T")

CONFIG = BrokerConfig(node_id=LOCAL, log_dirs=("/d",))
LED = registration(isr=(LOCAL,), replicas=(LOCAL,))
ROLES = pytest.mark.parametrize(
    "role", [LED, registration(leader=REMOTE)], ids=["leading", "following"]
)
EPOCH = 5


def disk() -> FaultyFileSystem:
    return FaultyFileSystem(random.Random(1))


# Reading.


@pytest.mark.conformance("PT-11")
@pytest.mark.parametrize(
    ("current", "expected"),
    [
        (EPOCH - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (EPOCH + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (EPOCH, None),
        (-1, None),
    ],
)
def test_a_fetch_that_waits_is_judged_by_its_epoch_whenever_it_is_looked_at(
    current: int, expected: ErrorCode | None
) -> None:
    partition = Broker().leader(isr=(LOCAL, REMOTE), leader_epoch=EPOCH, records=3)
    info = FetchInfo(0, current_leader_epoch=current)
    for params, available in ((follower_params(), 1), (consumer_params(), 0)):
        found = partition.available_bytes(params, info, enough=1)
        assert found == (available if expected is None else None)
    if expected is not None:
        with pytest.raises(KafkaError) as refused:
            partition.check_access(current, leader_only=True)
        assert refused.value.code is expected


@pytest.mark.conformance("PT-22")
def test_how_far_a_log_goes_depends_on_the_reader() -> None:
    partition = Broker().leader(isr=(LOCAL, REMOTE))
    records = [Record(timestamp=index, value=b"v") for index in range(3)]
    opening = encode_batch(
        records, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    partition.append_as_leader(memoryview(bytearray(opening)), required_acks=1, wall_ms=0)
    fetch(partition, 0)
    assert ends(partition) == (3, 0, 0)
    fetch(partition, 1)
    assert ends(partition) == (3, 1, 0)


def ends(partition: Partition) -> tuple[int, int, int]:
    """The latest offset for a replica, and for consumers of either isolation."""

    def asked(timestamp: int, isolation: Isolation, replica_id: int = -1) -> int:
        found = offset_for_timestamp(
            partition,
            timestamp=timestamp,
            isolation=isolation,
            current_leader_epoch=-1,
            replica_id=replica_id,
        )
        return found[1]

    isolations = (Isolation.HIGH_WATERMARK, Isolation.LAST_STABLE)
    for special in (wire.EARLIEST, wire.EARLIEST_LOCAL):
        assert [asked(special, isolation) for isolation in isolations] == [0, 0]
        assert asked(special, Isolation.LOG_END, REMOTE) == 0
    uncommitted, committed = (asked(wire.LATEST, isolation) for isolation in isolations)
    return asked(wire.LATEST, Isolation.LOG_END, REMOTE), uncommitted, committed


@pytest.mark.conformance("PT-23")
async def test_without_a_log_nothing_is_led_or_followed(autojump_clock: MockClock) -> None:
    async with Node(config=CONFIG).running() as node:
        await node.learn(registration(leader=REMOTE, isr=(REMOTE,), replicas=(REMOTE, OTHER)))
        listed = node.manager.offsets.list_offsets(
            TP, timestamp=-1, isolation=Isolation.HIGH_WATERMARK
        )
        assert listed.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await node.produce()).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        ended = node.manager.offsets.end_of_leader_epoch(TP, leader_epoch=1)
        assert ended.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert lead(Broker().leader(isr=(LOCAL, REMOTE))).followers.get(99) is None


# The topic's id.


def metadata_file(system: FaultyFileSystem) -> str:
    file = system.open_for_reading("/d/topic-0/partition.metadata")
    return file.read(0, file.size()).decode()


@pytest.mark.conformance("PT-52")
@pytest.mark.conformance("PT-53")
@pytest.mark.conformance("RM-78")
@ROLES
async def test_the_topics_id_is_on_the_disk_with_the_role(
    autojump_clock: MockClock, role: PartitionRegistration
) -> None:
    system = disk()
    async with Node(config=CONFIG, file_system=system).running() as node:
        await node.learn(role)
        assert metadata_file(system) == f"version: 0\ntopic_id: {uuid_text(TOPIC_ID)}"
    async with Node(config=CONFIG, file_system=system).running() as node:
        log = node.logs.get(TP)
        assert log is not None
        assert log.topic_id == TOPIC_ID
        assert node.logs.get_or_create(TP).topic_id == TOPIC_ID
        with pytest.raises(InconsistentTopicIdError):
            node.logs.get_or_create(TP, b"another topic id")
        await node.learn(role)
        assert node.manager.hosted.get(TP).log is log


@pytest.mark.conformance("RM-79")
@ROLES
async def test_a_log_without_an_id_is_given_its_topics(
    autojump_clock: MockClock, role: PartitionRegistration
) -> None:
    system = disk()
    async with Node(config=CONFIG, file_system=system).running() as node:
        node.logs.get_or_create(TP)
        assert not system.exists("/d/topic-0/partition.metadata")
        await node.learn(role)
        assert uuid_text(TOPIC_ID) in metadata_file(system)


@pytest.mark.conformance("RM-84")
async def test_a_log_directory_may_be_named_from_here(autojump_clock: MockClock) -> None:
    system = disk()
    config = BrokerConfig(node_id=LOCAL, log_dirs=("data/a", "data/b"))
    async with Node(config=config, file_system=system).running() as node:
        await node.learn(LED, LED)
        await node.manager.high_watermarks.write()
        for directory in config.log_dirs:
            assert system.exists(f"{directory}/{HIGH_WATERMARK_CHECKPOINT}")


# The topic's configuration.


@attrs.define(eq=False)
class Gate:
    """Offloads in place, while it is open."""

    opened: trio.Event = attrs.field(factory=trio.Event)

    async def __call__(self, fn: Callable[[], T], /) -> T:
        await self.opened.wait()
        return fn()


def with_retention(image: MetadataImage, *, ms: int) -> MetadataImage:
    topic = TopicImage("topic", TOPIC_ID, {0: LED}, {"retention.ms": str(ms)})
    return attrs.evolve(
        image,
        offset=image.offset + 1,
        topics={"topic": topic},
        topic_names_by_id={TOPIC_ID: "topic"},
    )


async def opened_while(node: Node, gate: Gate, later: MetadataImage) -> int:
    """The `retention.ms` of a log of 1000 that was being made when `later` came."""
    gate.opened = trio.Event()
    images = [node.image, with_retention(node.image, ms=1000), later]
    async with trio.open_nursery() as nursery:
        for before, after in itertools.pairwise(images):
            node.image = after
            nursery.start_soon(node.manager.apply_metadata, after, delta_between(before, after))
            await CLOCK.sleep(0.1)
            assert node.logs.get(TP) is None
        gate.opened.set()
    log = node.logs.get(TP)
    assert log is not None
    return log.config.retention_ms


@pytest.mark.conformance("PT-57b")
async def test_a_topic_configured_while_its_log_is_made_has_the_newer_configuration(
    autojump_clock: MockClock,
) -> None:
    gate = Gate()
    gate.opened.set()
    async with Node(config=CONFIG, offload=gate).running() as node:
        later = with_retention(node.image, ms=2000)
        assert await opened_while(node, gate, later) == 2000


@pytest.mark.conformance("PT-57c")
async def test_a_broker_configured_while_a_log_is_made_gives_it_the_newer_configuration(
    autojump_clock: MockClock,
) -> None:
    gate = Gate()
    gate.opened.set()
    async with Node(config=CONFIG, offload=gate).running() as node:
        topic = TopicImage("topic", TOPIC_ID, {0: LED}, {})
        later = attrs.evolve(
            with_retention(node.image, ms=1000),
            topics={"topic": topic},
            broker_configs={None: {"log.retention.ms": "3000"}},
        )
        assert await opened_while(node, gate, later) == 3000


@pytest.mark.conformance("PT-57")
async def test_a_topics_configuration_is_read_once_for_a_log_that_is_made(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Mapping[str, str]] = []
    honest = TopicConfig.in_force

    def counted(overrides: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
        read.append(overrides)
        return honest(overrides, broker)

    async with Node(config=CONFIG).running() as node:
        # Of a topic that is known already, so that nothing but the log needs it.
        node.image = with_retention(node.image, ms=1000)
        monkeypatch.setattr(TopicConfig, "in_force", counted)
        await node.manager.apply_metadata(
            node.image,
            attrs.evolve(delta_between(MetadataImage(), node.image), reconfigured=frozenset()),
        )
        assert read == [{"retention.ms": "1000"}]
