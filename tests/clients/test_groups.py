"""Consumer groups of stock clients, over real sockets: three brokers, one of which dies.

A producer goes on all the while. Two members read; a third comes; one goes; the group's
coordinator is killed, and with it a replica of everything. In the end every value has been
read, each takeover began where the last commit was, and what was committed is still there.
"""

import contextlib
import gc
import socket
import time

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupType
from confluent_kafka.admin import AdminClient

from replication.cluster.cluster import Cluster
from replication.coordinator.rules import GROUP_METADATA_TOPIC, partition_for
from tests.clients.readers import (
    GROUP,
    Ledger,
    Read,
    Reader,
    aiokafka_,
    confluent,
    confluent_consumer_protocol,
    kafka_python,
)
from tests.clients.sample import (
    PARTITIONS,
    PATIENCE_SECONDS,
    TOPIC,
    cluster_for_clients,
    create_topic,
    in_thread,
    until,
)
from tests.deep import one_in

pytestmark = pytest.mark.client

QUICK = {
    "broker_session_timeout_ms": "1000",
    "broker_heartbeat_interval_ms": "200",
    "min_insync_replicas": "2",
    "group_consumer_heartbeat_interval_ms": "300",
    "group_consumer_session_timeout_ms": "6000",
}


def produce(servers: str, name: str, count: int) -> set[str]:
    """Spread over the partitions; returns when all of them are acknowledged."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True, "log_level": 0}
    )
    values = {f"{name} {number}" for number in range(count)}
    for number, value in enumerate(sorted(values)):
        producer.produce(TOPIC, value.encode(), partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_SECONDS) == 0
    return values


def all_read(ledger: Ledger, values: set[str]) -> None:
    until(
        lambda: values <= ledger.values.keys(),
        lambda: f"{len(values - ledger.values.keys())} were never read; {ledger.faults}",
    )


def shared(readers: list[Reader]) -> None:
    """Wait until each member has a part, and together they have everything."""
    until(
        lambda: (
            all(each.assigned for each in readers)
            and sorted(one for each in readers for one in each.assigned) == list(range(PARTITIONS))
        ),
        lambda: [(each.name, each.assigned, each.failure) for each in readers],
    )


def close_forgotten_sockets() -> None:
    """kafka-python lets go of sockets that could not connect without closing them."""
    for each in gc.get_objects():
        if isinstance(each, socket.socket) and each.fileno() >= 0:
            listens = each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            connected = False
            with contextlib.suppress(OSError):
                each.getpeername()
                connected = True
            if not listens and not connected:
                each.close()


def is_of_the_new_protocol(servers: str) -> bool:
    admin = AdminClient({"bootstrap.servers": servers})
    listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(PATIENCE_SECONDS)
    return [each.group_id for each in listed.valid] == [GROUP]


def coordinator(cluster: Cluster) -> int:
    leader = cluster.leader(GROUP_METADATA_TOPIC, partition_for(GROUP, 3))
    assert leader is not None
    return leader


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # close_forgotten_sockets
@pytest.mark.parametrize(
    "read", [confluent_consumer_protocol, *one_in(3, [confluent, aiokafka_, kafka_python])]
)
async def test_a_group_reads_everything_though_members_come_go_and_die(read: Read) -> None:
    ledger = Ledger()
    async with cluster_for_clients(**QUICK) as cluster:
        servers = cluster.bootstrap_servers

        def member(name: str) -> Reader:
            return Reader(name, servers, ledger, read).start()

        await in_thread(create_topic, servers)
        values = await in_thread(produce, servers, "before", 300)
        readers = [member("one"), member("two")]
        await in_thread(shared, readers)
        readers.append(member("three"))
        values |= await in_thread(produce, servers, "while three comes", 300)
        await in_thread(shared, readers)
        await in_thread(all_read, ledger, values)
        assert await in_thread(is_of_the_new_protocol, servers) is (
            read is confluent_consumer_protocol
        )
        await in_thread(readers.pop(0).leave)
        values |= await in_thread(produce, servers, "while one goes", 300)
        await in_thread(shared, readers)
        await cluster.kill_broker(coordinator(cluster))
        values |= await in_thread(produce, servers, "while the coordinator dies", 300)
        await in_thread(all_read, ledger, values)
        for reader in readers:
            reader.leaving.set()
        for reader in readers:
            await in_thread(reader.leave)
        successor = member("successor")
        values |= await in_thread(produce, servers, "after", 30)
        await in_thread(all_read, ledger, values)
        await in_thread(successor.leave)
    close_forgotten_sockets()
    assert ledger.faults == []
    assert ledger.values.keys() == values, "and nothing else"


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # close_forgotten_sockets
@pytest.mark.parametrize("read", [confluent, *one_in(2, [aiokafka_, kafka_python])])
async def test_a_group_of_stock_clients_changes_its_protocol_and_back(read: Read) -> None:
    ledger = Ledger()
    async with cluster_for_clients(**QUICK) as cluster:
        servers = cluster.bootstrap_servers
        await in_thread(create_topic, servers)
        values = await in_thread(produce, servers, "before", 300)
        classic = [Reader(name, servers, ledger, read).start() for name in ("one", "two")]
        await in_thread(shared, classic)
        assert await in_thread(is_of_the_new_protocol, servers) is False
        newcomer = Reader("new", servers, ledger, confluent_consumer_protocol).start()
        values |= await in_thread(produce, servers, "while it is upgraded", 300)
        await in_thread(shared, [*classic, newcomer])
        assert await in_thread(is_of_the_new_protocol, servers) is True
        await cluster.kill_broker(coordinator(cluster))
        values |= await in_thread(produce, servers, "while the coordinator dies", 300)
        await in_thread(all_read, ledger, values)
        await in_thread(newcomer.leave)
        values |= await in_thread(produce, servers, "while it is downgraded", 300)
        await in_thread(shared, classic)
        await in_thread(all_read, ledger, values)
        assert await in_thread(is_of_the_new_protocol, servers) is False
        for reader in classic:
            await in_thread(reader.leave)
    close_forgotten_sockets()
    assert ledger.faults == []
    assert ledger.values.keys() == values, "and nothing else"


async def test_a_consumer_that_assigns_by_hand_closes_at_once() -> None:
    """librdkafka looked for its coordinator for 45 s, when there was none."""

    def look(servers: str) -> float:
        create_topic(servers)
        consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "by hand"})
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        consumer.poll(0.5)
        began = time.monotonic()
        consumer.close()
        return time.monotonic() - began

    async with cluster_for_clients() as cluster:
        assert await in_thread(look, cluster.bootstrap_servers) < 30
