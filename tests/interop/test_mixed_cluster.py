"""A broker of ours in a cluster of Apache Kafka's, as a follower, as a leader and as a coordinator.

Broker 3 is ours, brokers 1 and 2 and controller 100 are Kafka's, and all four have the directories
that Kafka formatted. The tests share the cluster and run in their order; each has topics of its own.
At the end of the module the replicas on all three disks are equal, byte for byte and epoch for epoch.
"""

import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import pytest
import trio

from replication.cli.isolated import free_ports
from replication.cli.kafka.processes import write_properties
from replication.client.admin import Admin, NewTopic
from replication.client.admin.values import GroupDescription, PartitionDescription
from replication.client.offsets import OffsetAndMetadata
from replication.errors import ErrorCode
from replication.net import production_seams
from replication.wire.describe_configs import ConfigResourceType
from replication.wire.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from storage.types import TopicPartition
from tests.interop import tools
from tests.interop.kafka import CLUSTER_ID, Kafka
from tests.interop.own_clients import (
    SECONDS,
    admin_of,
    asked_until,
    consumer_of,
    producer_of,
    read_all,
)
from tests.replication.broker.clients import Client

pytestmark = [pytest.mark.interop, pytest.mark.slow]

OURS = 3
JAVAS = (1, 2)
RECORDS = 200
# A follower that is frozen leaves the ISR before its broker's session ends.
PROPERTIES = {
    "replica.lag.time.max.ms": "3000",
    "broker.session.timeout.ms": "9000",
    "min.insync.replicas": "2",
    "auto.leader.rebalance.enable": "false",
    # One coordinator of all groups, and one of all transactions.
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
COORDINATORS = [(OURS, 1, 2), (2, OURS, 1), (OURS, 2, 1)]
"""The replicas of the coordinators' topics, one after the other; the first one leads."""

T = TypeVar("T")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with Kafka(
        data_dir=tmp_path_factory.mktemp("mixed"), brokers=3, ours={OURS}, properties=PROPERTIES
    ) as kafka:
        yield kafka
        for broker in kafka.broker_ids:
            kafka.stop(broker)
        check_disks(kafka)


def check_disks(kafka: Kafka) -> None:
    """Compare the directories of all brokers with `understudy verify`."""
    directories = map(str, kafka.log_dirs.values())
    command = [sys.executable, "-m", "replication.cli", "verify", "--exact", "--output=json"]
    done = subprocess.run([*command, *directories], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def ask(kafka: Kafka, question: Callable[[Admin], Awaitable[T]]) -> T:
    async def asked() -> T:
        async with admin_of(kafka) as admin:
            return await question(admin)

    return trio.run(asked)


def create(kafka: Kafka, topic: str, *replicas: int) -> None:
    """Create a topic of one partition with these replicas, the first of them its leader."""
    ask(
        kafka,
        lambda admin: admin.create_topics([NewTopic(name=topic, replicas=(replicas,))]),
    )
    wait(kafka, topic, lambda found: sorted(found.isr) == sorted(replicas))


def wait(
    kafka: Kafka, topic: str, holds: Callable[[PartitionDescription], bool]
) -> PartitionDescription:
    """Return the description of the partition, once it is as wanted."""
    return ask(kafka, lambda admin: described(admin, topic, holds))


async def described(
    admin: Admin, topic: str, holds: Callable[[PartitionDescription], bool]
) -> PartitionDescription:
    async def once() -> PartitionDescription:
        (found,) = (await admin.describe_topics([topic]))[topic].partitions
        return found

    return await asked_until(once, holds)


def produce(kafka: Kafka, topic: str, first: int = 0, count: int = RECORDS) -> None:
    trio.run(send, kafka, topic, first, count)


async def send(kafka: Kafka, topic: str, first: int, count: int) -> None:
    async with producer_of(kafka, acks="all", linger_ms=0) as producer:
        for number in range(first, first + count):
            await producer.send(topic, b"%d" % number, partition=0)


def values(kafka: Kafka, topic: str, count: int) -> list[bytes | None]:
    return [each.value for each in trio.run(partial(read_all, kafka, topic, count))]


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def elect(kafka: Kafka, topic: str, *replicas: int) -> None:
    ask(kafka, lambda admin: elected(admin, topic, *replicas))


async def elected(admin: Admin, topic: str, *replicas: int) -> None:
    """Let the first of `replicas` lead, by a reassignment to this order and an election."""
    partition = TopicPartition(topic, 0)
    await admin.alter_partition_reassignments({partition: list(replicas)})
    await described(admin, topic, lambda found: sorted(found.isr) == sorted(replicas))
    await admin.elect_leaders([partition])
    await described(admin, topic, lambda found: found.leader == replicas[0])


def test_it_follows_a_java_leader_in_the_isr(mixed: Kafka) -> None:
    create(mixed, "java-leads", 1, 2, OURS)
    produce(mixed, "java-leads")
    assert values(mixed, "java-leads", RECORDS) == numbers(RECORDS)
    assert sorted(wait(mixed, "java-leads", lambda _: True).isr) == [1, 2, OURS]


def test_it_leads_java_followers(mixed: Kafka) -> None:
    create(mixed, "ours-leads", OURS, 1, 2)
    produce(mixed, "ours-leads")
    assert values(mixed, "ours-leads", RECORDS) == numbers(RECORDS)
    assert sorted(wait(mixed, "ours-leads", lambda _: True).isr) == [1, 2, OURS]


def test_a_leadership_goes_round_all_brokers(mixed: Kafka) -> None:
    create(mixed, "round", 1, 2, OURS)
    for turn, order in enumerate([(OURS, 1, 2), (2, OURS, 1), (OURS, 2, 1), (1, 2, OURS)]):
        produce(mixed, "round", turn * 50, 50)
        elect(mixed, "round", *order)
    produce(mixed, "round", 200, 50)
    assert values(mixed, "round", 250) == numbers(250)


@pytest.mark.parametrize("frozen", [1, OURS], ids=["a Java follower", "our follower"])
def test_the_isr_shrinks_by_a_frozen_follower_and_expands_again(mixed: Kafka, frozen: int) -> None:
    leader = OURS if frozen in JAVAS else 1
    topic = f"frozen-{frozen}"
    create(mixed, topic, leader, 2, frozen)
    mixed.freeze(frozen)
    try:
        produce(mixed, topic)
        shrunk = wait(mixed, topic, lambda found: frozen not in found.isr)
        assert sorted(shrunk.isr) == sorted({2, leader})
    finally:
        mixed.thaw(frozen)
    wait(mixed, topic, lambda found: frozen in found.isr)
    assert values(mixed, topic, RECORDS) == numbers(RECORDS)


def test_a_partition_is_moved_to_it_and_away_again(mixed: Kafka) -> None:
    create(mixed, "moved", 1, 2)
    produce(mixed, "moved")
    elect(mixed, "moved", OURS, 1)
    wait(mixed, "moved", lambda found: sorted(found.isr) == [1, OURS])
    produce(mixed, "moved", RECORDS)
    elect(mixed, "moved", 2, 1)
    wait(mixed, "moved", lambda found: sorted(found.isr) == [1, 2])
    assert values(mixed, "moved", 2 * RECORDS) == numbers(2 * RECORDS)


@pytest.mark.parametrize("end", [Kafka.stop, Kafka.kill], ids=["a shutdown", "a kill"])
@pytest.mark.parametrize("gone", [OURS, 1], ids=["ours", "Java's"])
def test_it_comes_back_after(mixed: Kafka, gone: int, end: Callable[[Kafka, int], None]) -> None:
    """The leader goes, another kind leads and takes records, and the first one has them again."""
    topic = f"{end.__name__}-{gone}"
    heir = 2 if gone == OURS else OURS
    create(mixed, topic, gone, heir, ({1, 2, OURS} - {gone, heir}).pop())
    produce(mixed, topic)
    end(mixed, gone)
    if end is Kafka.stop:
        assert wait(mixed, topic, lambda _: True).leader == heir, "the leadership went first"
    wait(mixed, topic, lambda found: found.leader == heir)
    produce(mixed, topic, RECORDS)
    mixed.start(gone)
    wait(mixed, topic, lambda found: gone in found.isr)
    assert values(mixed, topic, 2 * RECORDS) == numbers(2 * RECORDS)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_and_its_member_stay_while_their_coordinator_moves(
    mixed: Kafka, protocol: str
) -> None:
    group = topic = f"grouped-{protocol}"
    create(mixed, topic, 1, 2, OURS)

    async def read(admin: Admin) -> None:
        members = set()
        config = {"group_protocol": protocol, "enable_auto_commit": False}
        async with consumer_of(mixed, topic, group_id=group, **config) as consumer:
            for turn, order in enumerate(COORDINATORS):
                await send(mixed, topic, turn * 50, 50)
                read: list[bytes | None] = []
                while len(read) < 50:
                    read += [each.value for each in await consumer.poll(timeout_ms=1000)]
                assert read == numbers(50 * (turn + 1))[50 * turn :]
                await consumer.commit()
                await elected(admin, "__consumer_offsets", *order)
                found = await asked_until(
                    lambda: admin.describe_groups([group]), partial(is_coordinated_by, order[0])
                )
                members |= {each.member_id for each in found[group].members}
                # Java's coordinator shows a commit once its high watermark has passed it.
                await asked_until(
                    lambda: admin.list_group_offsets(group),
                    partial(is_committed, TopicPartition(topic, 0), 50 * (turn + 1)),
                )
        assert len(members) == 1, "the member has joined once"

    ask(mixed, with_time(read))


def is_coordinated_by(broker: int, found: Mapping[str, GroupDescription]) -> bool:
    (group,) = found.values()
    return group.coordinator is not None and group.coordinator.id == broker


def is_committed(
    partition: TopicPartition, offset: int, found: Mapping[TopicPartition, OffsetAndMetadata]
) -> bool:
    return found[partition].offset == offset


def with_time(question: Callable[[Admin], Awaitable[None]]) -> Callable[[Admin], Awaitable[None]]:
    async def asked(admin: Admin) -> None:
        with trio.fail_after(SECONDS):
            await question(admin)

    return asked


def test_an_open_transaction_ends_at_the_next_coordinator(mixed: Kafka) -> None:
    """Its partitions are led by both kinds, so each coordinator sends markers to the other kind."""
    leaders = {"transacted-1": (1, 2, OURS), "transacted-3": (OURS, 1, 2)}
    for topic, replicas in leaders.items():
        create(mixed, topic, *replicas)
    committed: list[bytes] = []

    async def write(admin: Admin) -> None:
        for order in COORDINATORS:
            async with producer_of(mixed, transactional_id=f"at-{order}") as producer:
                for ends in (True, False):
                    producer.begin_transaction()
                    for part in (b"early", b"late"):
                        value = b"%d %s" % (order[0], part)
                        for topic in leaders:
                            await producer.send(topic, value, partition=0)
                        committed.extend([value] * ends)
                        if part == b"early":
                            await elected(admin, "__transaction_state", *order)
                    await (producer.commit_transaction if ends else producer.abort_transaction)()
            async with producer_of(mixed, transactional_id=f"new-at-{order}") as producer:
                async with producer.transaction():
                    await producer.send("transacted-1", b"new", partition=0)
                committed.append(b"new")

    ask(mixed, with_time(write))
    for topic in leaders:
        expected = [each for each in committed if each != b"new" or topic == "transacted-1"]
        read = trio.run(
            partial(read_all, mixed, topic, len(expected), isolation_level="read_committed")
        )
        assert [each.value for each in read] == expected


CLIENT_METRICS: Final = "org.apache.kafka.tools.ClientMetricsCommand"


def test_it_keeps_metadata_that_it_does_not_use(mixed: Kafka) -> None:
    """Subscriptions to the metrics of clients (KIP-714); it reads them again after a restart."""
    given = ("--interval", "5000", "--match", "client_id=nobody")
    mixed.run_tool(CLIENT_METRICS, "--alter", "--name", "by-the-tool", *given)
    interval = IncrementalAlterableConfig(name="interval.ms", value="5000")
    resource = IncrementalAlterConfigsResource(
        resource_type=ConfigResourceType.CLIENT_METRICS,
        resource_name="by-our-broker",
        configs=[interval],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = trio.run(Client(production_seams()).ask, mixed.address(OURS), request)
    assert [each.error_code for each in answer.responses] == [ErrorCode.NONE], answer
    create(mixed, "after-the-subscriptions", 1, OURS)
    mixed.kill(OURS)
    mixed.start(OURS)
    wait(mixed, "after-the-subscriptions", lambda found: sorted(found.isr) == [1, OURS])
    listed = tools.run_tool(CLIENT_METRICS, "--bootstrap-server", mixed.address(OURS), "--list")
    assert sorted(listed.split()) == ["by-our-broker", "by-the-tool"]


def said_at_the_end(kafka: Kafka, directory: Path, node_id: int, cluster_id: str | None) -> str:
    """Start a further broker of ours, formatted for that cluster or not at all; return its last line."""
    config = directory / "server.properties"
    listed = (kafka.data_dir / f"node-{OURS}" / "server.properties").read_text().splitlines()
    known = dict(line.split("=", 1) for line in listed)
    known |= {"node.id": str(node_id), "log.dirs": str(directory / "log")}
    known |= {"listeners": f"PLAINTEXT://127.0.0.1:{free_ports(1)[0]}"}
    write_properties(config, known | {"initial.broker.registration.timeout.ms": "2000"})
    understudy = [sys.executable, "-m", "replication.cli"]
    if cluster_id is not None:
        format_it = [*understudy, "storage", "format", "-c", str(config), "-t", cluster_id]
        subprocess.run(format_it, check=True, capture_output=True)
    run = [*understudy, "broker", "--config", str(config)]
    done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


OTHER_CLUSTER: Final = "YW5vdGhlci1jbHVzdGVyIQ"
REFUSALS: Final = {
    "another cluster": (
        4,
        OTHER_CLUSTER,
        f"broker 4 is of cluster {OTHER_CLUSTER}, its controller of",
    ),
    "no cluster": (4, None, "the log directories of broker 4 are not formatted"),
    "an id in use": (
        1,
        CLUSTER_ID,
        "DUPLICATE_BROKER_REGISTRATION, another broker with this id is alive",
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_a_broker_that_does_not_belong_here_says_why(
    mixed: Kafka, tmp_path: Path, what: str
) -> None:
    node_id, cluster_id, expected = REFUSALS[what]
    assert expected in said_at_the_end(mixed, tmp_path, node_id, cluster_id)
