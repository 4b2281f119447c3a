"""Our client beside aiokafka and kafka-python, at the same work against our isolated brokers.

    produce     so many records, acks=all, as fast as the client takes them, until all are acked
    consume     the same records, from the first to the last
    send        one record at a time, each acked before the next is sent, no linger: p50, p99
    start       from the start of a process to its first record
    memory      a consumer that is assigned 1,000 partitions

Three brokers, each a process; a topic of one partition on one of them, so that what is measured
is clients and not replication. Each client is a process of its own that says when it is ready,
does what it is told and says how long it took; rounds of all three are taken in turn.
"""

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stubs

from replication.cli.isolated import IsolatedCluster
from tests.bench.figures import Figure

ROUNDS = 3
RECORDS = {100: 60_000, 1024: 30_000}
SENDS = 400
PARTITIONS = 1000
OURS, AIOKAFKA, KAFKA_PYTHON = CLIENTS = ("understudy", "aiokafka", "kafka-python")
GOALS = {AIOKAFKA: 2.0, KAFKA_PYTHON: 5.0}
MANY = "many"


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


def create_topics(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    wanted = {
        f"{name}-{size}-{round_}": [[1]]
        for name in CLIENTS
        for size in RECORDS
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


def throughput(servers: str, size: int, count: int) -> Iterator[Figure]:
    """In records/s."""
    for what in ("produce", "consume"):
        rates: dict[str, list[float]] = {name: [] for name in CLIENTS}
        for round_ in range(ROUNDS):
            for name in CLIENTS:
                seconds = ask(name, what, servers, f"{name}-{size}-{round_}", size, count)
                rates[name].append(count / float(seconds))
        ours = statistics.median(rates[OURS])
        for name, goal in GOALS.items():
            floor = statistics.median(rates[name])
            yield Figure(f"{what} {size} B beside {name}", ours, floor, "rec/s", goal)


def latency(servers: str) -> Iterator[Figure]:
    """The other's time over ours: more is better."""
    taken = {name: ask(name, "send", servers, f"{name}-sends", 100, SENDS) for name in CLIENTS}
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
            read_at = float(ask(name, "first", servers, f"{OURS}-100-0", 100, 1))
            taken[name].append((read_at - began) * 1000)
    ours = statistics.median(taken[OURS])
    for name in (AIOKAFKA, KAFKA_PYTHON):
        yield Figure(f"{name}'s first record", statistics.median(taken[name]), ours, "ms")


def memory(servers: str) -> Iterator[Figure]:
    """Of the process, once it is assigned them all and has asked for records for a while."""
    used = {name: float(ask(name, "assigned", servers, MANY, 0, PARTITIONS)) for name in CLIENTS}
    for name in (AIOKAFKA, KAFKA_PYTHON):
        yield Figure(f"{name} with 1,000 partitions", used[name], used[OURS], "MiB")


def ask(client: str, what: str, *arguments: object) -> Any:
    """What a process of its own prints, when it is told that."""
    command = [sys.executable, "-m", __name__, client, what, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=300)
    return json.loads(done.stdout)


# The clients. Each job gives what is printed, as JSON.


class Understudy:
    def do(self, what: str, servers: str, topic: str, size: int, count: int) -> object:
        import trio

        jobs: dict[str, Callable[[str, str, int, int], Awaitable[object]]] = {
            "produce": self.produce,
            "consume": self.consume,
            "send": self.send,
            "first": self.first,
            "assigned": self.assigned,
        }
        return trio.run(jobs[what], servers, topic, size, count)

    async def produce(self, servers: str, topic: str, size: int, count: int) -> float:
        from replication.client import Producer

        value = bytes(size)
        producer: Producer[bytes, bytes] = Producer(servers)
        async with producer:
            await producer.send(topic, value)
            began = time.perf_counter()
            for _ in range(count):
                await producer.send_soon(topic, value)
            await producer.flush()
            return time.perf_counter() - began

    async def consume(self, servers: str, topic: str, size: int, count: int) -> float:
        from replication.client import Consumer

        async with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            read = len(await consumer.poll(timeout_ms=10_000))
            began = time.perf_counter()
            while read < count:
                read += len(await consumer.poll(timeout_ms=1000))
            return time.perf_counter() - began

    async def send(self, servers: str, topic: str, size: int, count: int) -> list[float]:
        from replication.client import Producer

        value, taken = bytes(size), []
        producer: Producer[bytes, bytes] = Producer(servers, linger_ms=0)
        async with producer:
            for _ in range(count + SENDS // 4):
                began = time.perf_counter()
                await producer.send(topic, value)
                taken.append(time.perf_counter() - began)
        return taken[-count:]

    async def first(self, servers: str, topic: str, size: int, count: int) -> float:
        from replication.client import Consumer

        async with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            while not await consumer.poll(timeout_ms=1000):
                pass
            return time.time()

    async def assigned(self, servers: str, topic: str, size: int, count: int) -> float:
        from replication.client import Consumer

        async with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, number) for number in range(count)])
            for _ in range(5):
                await consumer.poll(timeout_ms=500)
            return resident_mib()


class Aiokafka:
    def do(self, what: str, servers: str, topic: str, size: int, count: int) -> object:
        import asyncio

        jobs: dict[str, Callable[[str, str, int, int], Any]] = {
            "produce": self.produce,
            "consume": self.consume,
            "send": self.send,
            "first": self.first,
            "assigned": self.assigned,
        }
        return asyncio.run(jobs[what](servers, topic, size, count))

    async def produce(self, servers: str, topic: str, size: int, count: int) -> float:
        from aiokafka import AIOKafkaProducer

        value = bytes(size)
        producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=5)
        await producer.start()
        await producer.send_and_wait(topic, value)
        began = time.perf_counter()
        for _ in range(count):
            await producer.send(topic, value)
        await producer.flush()
        taken = time.perf_counter() - began
        await producer.stop()
        return taken

    async def _consumer(self, servers: str, topic: str, partitions: int = 1) -> Any:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        consumer = AIOKafkaConsumer(
            bootstrap_servers=servers, auto_offset_reset="earliest", max_poll_records=500
        )
        await consumer.start()
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        return consumer

    async def consume(self, servers: str, topic: str, size: int, count: int) -> float:
        consumer = await self._consumer(servers, topic)
        read = sum(map(len, (await consumer.getmany(timeout_ms=10_000)).values()))
        began = time.perf_counter()
        while read < count:
            read += sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))
        taken = time.perf_counter() - began
        await consumer.stop()
        return taken

    async def send(self, servers: str, topic: str, size: int, count: int) -> list[float]:
        from aiokafka import AIOKafkaProducer

        value, taken = bytes(size), []
        producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=0)
        await producer.start()
        for _ in range(count + SENDS // 4):
            began = time.perf_counter()
            await producer.send_and_wait(topic, value)
            taken.append(time.perf_counter() - began)
        await producer.stop()
        return taken[-count:]

    async def first(self, servers: str, topic: str, size: int, count: int) -> float:
        consumer = await self._consumer(servers, topic)
        while not await consumer.getmany(timeout_ms=1000):
            pass
        at = time.time()
        await consumer.stop()
        return at

    async def assigned(self, servers: str, topic: str, size: int, count: int) -> float:
        consumer = await self._consumer(servers, topic, count)
        for _ in range(5):
            await consumer.getmany(timeout_ms=500)
        used = resident_mib()
        await consumer.stop()
        return used


class KafkaPython:
    def do(self, what: str, servers: str, topic: str, size: int, count: int) -> object:
        return getattr(self, what)(servers.split(","), topic, size, count)

    def produce(self, servers: list[str], topic: str, size: int, count: int) -> float:
        from kafka import KafkaProducer

        value = bytes(size)
        producer = KafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=5)
        producer.send(topic, value).get(30)
        began = time.perf_counter()
        for _ in range(count):
            producer.send(topic, value)
        producer.flush()
        taken = time.perf_counter() - began
        producer.close()
        return taken

    def _consumer(self, servers: list[str], topic: str, partitions: int = 1) -> Any:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(
            bootstrap_servers=servers, auto_offset_reset="earliest", max_poll_records=500
        )
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        return consumer

    def consume(self, servers: list[str], topic: str, size: int, count: int) -> float:
        consumer = self._consumer(servers, topic)
        read = sum(map(len, consumer.poll(timeout_ms=10_000).values()))
        began = time.perf_counter()
        while read < count:
            read += sum(map(len, consumer.poll(timeout_ms=1000).values()))
        taken = time.perf_counter() - began
        consumer.close()
        return taken

    def send(self, servers: list[str], topic: str, size: int, count: int) -> list[float]:
        from kafka import KafkaProducer

        value, taken = bytes(size), []
        producer = KafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=0)
        for _ in range(count + SENDS // 4):
            began = time.perf_counter()
            producer.send(topic, value).get(30)
            taken.append(time.perf_counter() - began)
        producer.close()
        return taken[-count:]

    def first(self, servers: list[str], topic: str, size: int, count: int) -> float:
        consumer = self._consumer(servers, topic)
        while not consumer.poll(timeout_ms=1000):
            pass
        at = time.time()
        consumer.close()
        return at

    def assigned(self, servers: list[str], topic: str, size: int, count: int) -> float:
        consumer = self._consumer(servers, topic, count)
        for _ in range(5):
            consumer.poll(timeout_ms=500)
        used = resident_mib()
        consumer.close()
        return used


def resident_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    client, what, servers, topic, size, count = sys.argv[1:]
    clients: dict[str, type[Any]] = {
        OURS: Understudy,
        AIOKAFKA: Aiokafka,
        KAFKA_PYTHON: KafkaPython,
    }
    print(json.dumps(clients[client]().do(what, servers, topic, int(size), int(count))))


if __name__ == "__main__":
    main()
