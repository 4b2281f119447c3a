"""Two brokers of Apache Kafka and one of ours are one cluster, whose controller is ours.

The directories are formatted by Kafka's StorageTool, with the features of its release. Every topic has
replicas on both kinds; after each test all of them are equal, byte for byte and epoch for epoch.
"""

from collections.abc import Iterator

import pytest
import trio

from replication.client.admin import Admin, NewTopic
from replication.coordinator.rules import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from replication.errors import ErrorCode
from replication.wire.api_versions import KAFKA_4_4, METADATA_VERSION
from replication.wire.create_topics import CreatableTopic, CreateTopicsRequest
from replication.wire.delete_topics import DeleteTopicsRequest, DeleteTopicState
from replication.wire.find_coordinator import GROUP, TRANSACTION, FindCoordinatorRequest
from storage.types import TopicPartition
from tests.clients.sample import in_thread
from tests.interop.jars import kafka_version
from tests.interop.kafka import CONTROLLER_ALONE, SMALL, Kafka
from tests.interop.own_clients import (
    SECONDS,
    admin_of,
    asked_until,
    check_equal,
    consumer_of,
    elect_uncleanly,
    killed,
    leaders_of,
    make_topic,
    produce,
    producer_of,
    read_all,
    wait_for_isr,
)
from tests.interop.test_own_groups import poll_until_shared

pytestmark = [pytest.mark.interop, pytest.mark.slow]

THEIRS, OURS = (1, 2), 3
ALL = (*THEIRS, OURS)
LEVELS = {"4.1": 27, "4.2": 29, "4.3": 30, "4.4": KAFKA_4_4}
"""The level of `metadata.version` that each release formats by default."""


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with Kafka(
        data_dir=tmp_path_factory.mktemp("theirs-in-ours"),
        brokers=3,
        ours={CONTROLLER_ALONE, OURS},
        properties={"min.insync.replicas": "2"},
        # Snapshots come often: a broker that was away begins with one.
        node_properties={
            CONTROLLER_ALONE: {"metadata.log.max.record.bytes.between.snapshots": "8192"}
        },
    ) as kafka:
        yield kafka


async def test_their_brokers_are_registered_and_follow_our_log(mixed: Kafka) -> None:
    level = LEVELS[kafka_version().rpartition(".")[0]]
    async with admin_of(mixed) as admin:
        found = await admin.describe_cluster()
        assert [each.id for each in found.brokers] == [*ALL]
        quorum = await admin.describe_metadata_quorum()
        assert quorum.leader_id == CONTROLLER_ALONE
        assert {each.node_id for each in quorum.observers} == {*ALL}
        for broker in ALL:
            async with Admin(mixed.address(broker)) as alone:
                features = await alone.describe_features()
                assert features[METADATA_VERSION].level == level
    for broker in THEIRS:
        assert "ERROR" not in mixed.output(broker)


async def test_what_their_brokers_forward_is_carried_out(mixed: Kafka) -> None:
    async with admin_of(mixed) as admin:
        for broker in await admin.calls.broker_ids():
            name = f"by-{broker}"
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=3)
            request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
            codes = []
            for _ in range(2):
                answer = await admin.calls.broker(broker, request)
                codes += [each.error_code for each in answer.topics]
            assert codes == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
            gone = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000)
            answer = await admin.calls.broker(broker, gone)
            assert [each.error_code for each in answer.responses] == [ErrorCode.NONE]


async def test_each_kind_follows_the_other(mixed: Kafka) -> None:
    await make_topic(mixed, "each", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    async with admin_of(mixed) as admin:
        assert await leaders_of(admin, "each") == [1, 2, 3]
        for partition in range(3):
            await produce(mixed, "each", *range(50), partition=partition)
        await wait_for_isr(admin, "each", *ALL)
    assert len(await read_all(mixed, "each", 150, partitions=3)) == 150
    await check_equal(mixed, "each")


async def test_leaders_that_die_are_replaced_by_the_other_kind(mixed: Kafka) -> None:
    await make_topic(mixed, "dies", (1, 3, 2))
    partition = TopicPartition("dies", 0)
    async with admin_of(mixed) as admin:
        await produce(mixed, "dies", *range(20))
        async with killed(mixed, 1):
            await produce(mixed, "dies", *range(20, 40))
            await wait_for_isr(admin, "dies", 2, 3, leader=3)
        await wait_for_isr(admin, "dies", *ALL)
        async with killed(mixed, 3):
            await produce(mixed, "dies", *range(40, 60))
            await wait_for_isr(admin, "dies", 1, 2)
        await wait_for_isr(admin, "dies", *ALL)
        await admin.elect_leaders([partition])
        await wait_for_isr(admin, "dies", *ALL, leader=1)
        await produce(mixed, "dies", *range(60, 80))
    read = await read_all(mixed, "dies", 80)
    assert [each.value for each in read] == [b"%d" % number * 100 for number in range(80)]
    await check_equal(mixed, "dies")


async def test_a_broker_of_theirs_leaves_in_good_order(mixed: Kafka) -> None:
    await make_topic(mixed, "leaves", (2, 3, 1), (2, 1, 3))
    async with admin_of(mixed) as admin:
        await produce(mixed, "leaves", *range(10))
        with trio.fail_after(SECONDS):
            await in_thread(mixed.stop, 2)
        await wait_for_isr(admin, "leaves", 1, 3)
        assert sorted(await leaders_of(admin, "leaves")) == [1, 3]
        await produce(mixed, "leaves", *range(10, 20))
        await in_thread(mixed.start, 2)
        await wait_for_isr(admin, "leaves", *ALL)
    assert "controlled shutdown" in mixed.output(2).lower()
    await check_equal(mixed, "leaves")


async def test_replicas_move_between_the_kinds(mixed: Kafka) -> None:
    partition = TopicPartition("moves", 0)
    await make_topic(mixed, "moves", (1, 2))
    async with admin_of(mixed) as admin:
        await produce(mixed, "moves", *range(20))
        for replicas in (3, 1), (2, 3), (1, 2, 3), (3, 2):
            await admin.alter_partition_reassignments({partition: replicas})
            await asked_until(admin.list_partition_reassignments, lambda moving: not moving)
            await wait_for_isr(admin, "moves", *replicas)
            await admin.elect_leaders([partition])
            await wait_for_isr(admin, "moves", *replicas, leader=replicas[0])
            await produce(mixed, "moves", *range(5))
    assert len(await read_all(mixed, "moves", 40)) == 40
    await check_equal(mixed, "moves")


async def test_an_unclean_leader_of_either_kind_cuts_the_other(mixed: Kafka) -> None:
    for topic, first, second in ("cut-1", 1, OURS), ("cut-2", OURS, 1):
        await make_topic(mixed, topic, (first, second), min_insync_replicas="1")
        async with admin_of(mixed) as admin:
            await produce(mixed, topic, *range(5))
            async with killed(mixed, second):
                await wait_for_isr(admin, topic, first)
                await produce(mixed, topic, *range(5, 10))
                await in_thread(mixed.kill, first)

            await elect_uncleanly(admin, TopicPartition(topic, 0), second)
            await produce(mixed, topic, *range(10, 15))
            await in_thread(mixed.start, first)
            await wait_for_isr(admin, topic, first, second, leader=second)
        read = await read_all(mixed, topic, 10)
        numbers = [*range(5), *range(10, 15)]
        assert [each.value for each in read] == [b"%d" % number * 100 for number in numbers]
        await check_equal(mixed, topic)


async def test_an_eligible_replica_of_either_kind_leads_without_loss(mixed: Kafka) -> None:
    """KIP-966: below min.insync.replicas who leaves the ISR stays eligible, if it left in good order."""
    for topic, first, second in ("elr-1", 2, OURS), ("elr-2", OURS, 2):
        await make_topic(mixed, topic, (first, second), min_insync_replicas="2")
        async with admin_of(mixed) as admin:
            await produce(mixed, topic, *range(5))
            await in_thread(mixed.stop, second)
            await wait_for_isr(admin, topic, first)
            (described,) = (await admin.describe_topics([topic]))[topic].partitions
            assert described.eligible_leaders == (second,)
            await in_thread(mixed.kill, first)
            await in_thread(mixed.start, second)
            await wait_for_isr(admin, topic, second, leader=second)
            await in_thread(mixed.start, first)
            await wait_for_isr(admin, topic, first, second, leader=second)
        assert len(await read_all(mixed, topic, 5)) == 5
        await check_equal(mixed, topic)


async def test_a_controller_that_dies_and_a_broker_that_was_away(mixed: Kafka) -> None:
    """The log begins after what the broker has: it is sent a snapshot."""
    log = mixed.log_dirs[1] / "__cluster_metadata-0"
    await make_topic(mixed, "while-away", (1, 2, 3))
    async with admin_of(mixed) as admin, producer_of(mixed) as producer:
        await producer.send("while-away", b"before")
        async with killed(mixed, CONTROLLER_ALONE):
            await producer.send("while-away", b"without a controller")
        async with killed(mixed, 1):
            await wait_for_isr(admin, "while-away", 2, 3)
            before = {*log.glob("*.checkpoint")}
            for number in range(40):
                await admin.create_topics([NewTopic(name=f"brief-{number}", partitions=5)])
                await admin.delete_topics([f"brief-{number}"])
            await producer.send("while-away", b"without broker 1")
        await wait_for_isr(admin, "while-away", *ALL)
        assert {*log.glob("*.checkpoint")} - before
    await check_equal(mixed, "while-away")


async def lead(admin: Admin, topic: str, broker: int) -> None:
    """Let a broker lead every partition of a topic, whose replicas are on all brokers."""
    described = (await admin.describe_topics([topic]))[topic].partitions
    replicas = (broker, *(each for each in ALL if each != broker))
    partitions = [TopicPartition(topic, each.partition) for each in described]
    await admin.alter_partition_reassignments(dict.fromkeys(partitions, replicas))
    await asked_until(admin.list_partition_reassignments, lambda moving: not moving)
    await admin.elect_leaders(partitions)
    await wait_for_isr(admin, topic, *ALL, leader=broker)


async def wait_for_coordinator(admin: Admin, kind: int, broker: int = OURS) -> None:
    """Ask a broker for a coordinator until it has one: it lets the coordinators' topic be created."""
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["first"])
    await admin.calls.broker_ids()

    async def found() -> int:
        (answer,) = (await admin.calls.broker(broker, request)).coordinators
        return ErrorCode.of(answer.error_code)

    await asked_until(found, lambda code: code == ErrorCode.NONE)


@pytest.mark.parametrize(
    ("topic", "kind", "broker"),
    [(GROUP_METADATA_TOPIC, GROUP, 1), (TRANSACTION_STATE_TOPIC, TRANSACTION, 2)],
)
async def test_our_controller_makes_the_topics_of_their_coordinators(
    mixed: Kafka, topic: str, kind: int, broker: int
) -> None:
    async with admin_of(mixed) as admin:
        await wait_for_coordinator(admin, kind, broker)
        await wait_for_isr(admin, topic, *ALL)
        assert len(await leaders_of(admin, topic)) == int(SMALL["offsets.topic.num.partitions"])


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_group_is_coordinated_by_each_kind_in_turn(mixed: Kafka, protocol: str) -> None:
    topic = group = f"grouped-{protocol}"
    await make_topic(mixed, topic, (1, 2, 3), (3, 1, 2))
    config = {"group_id": group, "group_protocol": protocol, "enable_auto_commit": False}
    if protocol == "classic":
        config["heartbeat_interval_ms"] = 200
    partition = TopicPartition(topic, 0)
    async with admin_of(mixed) as admin, consumer_of(mixed, topic, **config) as stays:
        await wait_for_coordinator(admin, GROUP)
        for turn, broker in enumerate((1, OURS, 2, OURS, 1)):
            await produce(mixed, topic, turn)
            await lead(admin, GROUP_METADATA_TOPIC, broker)
            with trio.fail_after(SECONDS):
                assert (await stays.getone()).value == b"%d" % turn * 100
                await stays.commit()
            described = (await admin.describe_groups([group]))[group]
            assert described.coordinator is not None
            assert (described.coordinator.id, len(described.members)) == (broker, 1)
            offsets = await admin.list_group_offsets(group)
            assert offsets[partition].offset == turn + 1
        async with consumer_of(mixed, topic, **config) as comes:
            for broker in (OURS, 2):
                await poll_until_shared(stays, comes, sizes=[1, 1])
                await lead(admin, GROUP_METADATA_TOPIC, broker)
    await check_equal(mixed, GROUP_METADATA_TOPIC)


async def test_transactions_go_on_while_their_coordinator_moves(mixed: Kafka) -> None:
    await make_topic(mixed, "transacted", (1, 2, 3), (3, 1, 2))
    kept: list[bytes] = []
    async with (
        admin_of(mixed) as admin,
        producer_of(mixed, transactional_id="moving", linger_ms=0) as producer,
    ):
        await wait_for_coordinator(admin, TRANSACTION)
        for turn, broker in enumerate((1, OURS, 2, OURS)):
            for end in "kept", "gone":
                with trio.fail_after(SECONDS):
                    producer.begin_transaction()
                    values = [b"%s-%d-%d" % (end.encode(), turn, part) for part in range(2)]
                    await producer.send("transacted", values[0], partition=0)
                    await lead(admin, TRANSACTION_STATE_TOPIC, broker)
                    await producer.send("transacted", values[1], partition=1)
                    if end == "kept":
                        kept += values
                        await producer.commit_transaction()
                    else:
                        await producer.abort_transaction()
        for coordinator in (OURS, 1):
            await lead(admin, TRANSACTION_STATE_TOPIC, coordinator)
            producer.begin_transaction()
            kept += [b"%d dies" % coordinator]
            await producer.send("transacted", kept[-1], partition=0)
            async with killed(mixed, coordinator):
                with trio.fail_after(SECONDS):
                    await producer.commit_transaction()
            await wait_for_isr(admin, TRANSACTION_STATE_TOPIC, *ALL)
    committed = "read_committed"
    read = await read_all(mixed, "transacted", len(kept), partitions=2, isolation_level=committed)
    assert sorted(each.value for each in read) == sorted(kept)
    await check_equal(mixed, "transacted", TRANSACTION_STATE_TOPIC)
