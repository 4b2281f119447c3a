"""Our client beside aiokafka and kafka-python, at the same work against our isolated brokers.

    produce         so many records, acks=all, as fast as the client takes them, until all are acked
    produce_many    the same, as many at once as the client's own call for that takes
    consume         the records of `produce`, from the first to the last
    consume_columns the same as Arrow columns (`poll_arrow`); aiokafka's as records, as before
    send            one record at a time, each acked before the next is sent, no linger: p50, p99
    start           from the start of a process to its first record
    memory          a consumer that is assigned 1,000 partitions

Three brokers, each a process; a topic of one partition on one of them, so that what is measured
is clients and not replication. Each client is a process of its own (`client_jobs`) that does one
job and prints how long it took; rounds of all three are taken in turn. A run of records of
one size is what our consumer decodes fastest, so there are records of many sizes too.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stubs

from replication.cli.isolated import IsolatedCluster
from tests.bench.client_jobs import AIOKAFKA, CLIENTS, KAFKA_PYTHON, OURS
from tests.bench.figures import Figure

ROUNDS = 3
RECORDS = {"100": 60_000, "varied": 60_000, "1024": 30_000}
SENDS, SEND_ROUNDS = 400, 5
PARTITIONS = 1000
GOALS = {AIOKAFKA: 2.0, KAFKA_PYTHON: 5.0}
MANY = "many"
# kafka-python has no way to send many at once, and columns are ours alone.
WORK = {
    "produce": CLIENTS,
    "produce_many": (OURS, AIOKAFKA),
    "consume": CLIENTS,
    "consume_columns": (OURS, AIOKAFKA),
}


def run() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as scratch, ExitStack() as stack:
        cluster = stack.enter_context(IsolatedCluster(Path(scratch), brokers=3))
        cluster.wait_until_ready()
        servers = cluster.bootstrap_servers
        create_topics(servers)
        for size, count in RECORDS.items():
            yield from throughput(servers, size, count)
        yield from latency(servers)
        yield from first_record(servers)
        yield from memory(servers)


def topic_of(client: str, size: str, what: str, round_: int) -> str:
    return f"{size}-{'many' if what == 'produce_many' else 'one'}-{client}-{round_}"


def create_topics(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    wanted = {
        topic_of(name, size, what, round_): [[1]]
        for name in CLIENTS
        for size in RECORDS
        for what in ("produce", "produce_many")
        for round_ in range(ROUNDS)
    }
    wanted |= {f"{name}-sends": [[1]] for name in CLIENTS}
    wanted[MANY] = [[1 + number % 3] for number in range(PARTITIONS)]
    topics = [
        NewTopic(name, num_partitions=len(replicas), replica_assignment=replicas)
        for name, replicas in wanted.items()
    ]
    for future in admin.create_topics(topics).values():
        future.result(60)


def throughput(servers: str, size: str, count: int) -> Iterator[Figure]:
    """Yield records/s, and the processor time for one record, the other's over ours."""
    for what, clients in WORK.items():
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in clients}
        for round_ in range(ROUNDS):
            for name in clients:
                topic = topic_of(name, size, what, round_)
                taken[name].append(ask(name, what, servers, topic, count))
        wall, worked = (
            {name: statistics.median(each[at] for each in taken[name]) for name in clients}
            for at in (0, 1)
        )
        label = f"{what} {size} B".replace("varied B", "20-180 B")
        for name in clients[1:]:
            goal = GOALS[name] if what in ("produce", "consume") else None
            yield Figure(
                f"{label} beside {name}", count / wall[OURS], count / wall[name], "rec/s", goal
            )
            each = {client: seconds / count * 1e6 for client, seconds in worked.items()}
            yield Figure(f"{name}'s work to {label}", each[name], each[OURS], "us")


def latency(servers: str) -> Iterator[Figure]:
    """The other's time over ours: more is better. What the broker and the kernel still have to
    do with what was produced before falls into the first round of the first client.
    """
    taken: dict[str, list[float]] = {name: [] for name in CLIENTS}
    for _ in range(SEND_ROUNDS):
        for name in CLIENTS:
            taken[name] += ask(name, "send", servers, f"{name}-sends", SENDS)
    for label, percent in (("p50", 50), ("p99", 99)):
        of = {
            name: statistics.quantiles(times, n=100)[percent - 1] * 1e6
            for name, times in taken.items()
        }
        yield Figure(f"{AIOKAFKA}'s send {label} beside ours", of[AIOKAFKA], of[OURS], "us", 1.0)
        yield Figure(f"{KAFKA_PYTHON}'s send {label} beside ours", of[KAFKA_PYTHON], of[OURS], "us")


def first_record(servers: str) -> Iterator[Figure]:
    taken: dict[str, list[float]] = {name: [] for name in CLIENTS}
    for _ in range(ROUNDS):
        for name in CLIENTS:
            began = time.time()
            read_at = float(ask(name, "first", servers, topic_of(OURS, "100", "produce", 0), 1))
            taken[name].append((read_at - began) * 1000)
    ours = statistics.median(taken[OURS])
    for name in (AIOKAFKA, KAFKA_PYTHON):
        yield Figure(f"{name}'s first record", statistics.median(taken[name]), ours, "ms")


def memory(servers: str) -> Iterator[Figure]:
    """Yield the memory of each client that is assigned all partitions and has polled for a while."""
    used = {name: float(ask(name, "assigned", servers, MANY, PARTITIONS)) for name in CLIENTS}
    for name in (AIOKAFKA, KAFKA_PYTHON):
        yield Figure(f"{name} with 1,000 partitions", used[name], used[OURS], "MiB")


def ask(client: str, what: str, *arguments: object) -> Any:
    """Run a job in a process of its own, and return what it prints."""
    command = [sys.executable, "-m", "tests.bench.client_jobs", client, what, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=300)
    return json.loads(done.stdout)
