"""What each client does in a process of its own, started by `tests.bench.clients`.

    python -m tests.bench.client_jobs CLIENT WHAT SERVERS TOPIC COUNT

What it prints is JSON. Nothing is imported here that a client would not: the time to the first
record begins with this process.
"""

import json
import random
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

OURS, AIOKAFKA, KAFKA_PYTHON = CLIENTS = ("understudy", "aiokafka", "kafka-python")
SENT_BYTES = 100
TOGETHER = 1000
"""Records that `send_many` is given at once."""
# By what topics are called: the least and the most bytes of a record there.
SIZES = {"100": (100, 100), "1024": (1024, 1024), "varied": (20, 180)}


Send = Callable[[Any, list[bytes]], Awaitable[None]]
"""Sends the values with a producer."""


def values_of(topic: str, count: int) -> list[bytes]:
    """The same for every client."""
    least, most = SIZES[topic.split("-", maxsplit=1)[0]]
    if least == most:
        return [bytes(least)] * count
    draw = random.Random(1)
    return [bytes(draw.randint(least, most)) for _ in range(count)]


class Stopwatch:
    """Seconds that have passed, and those that this process was at work."""

    def __init__(self) -> None:
        self._began, self._worked = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self._began, time.process_time() - self._worked


class Understudy:
    def do(self, what: str, servers: str, topic: str, count: int) -> object:
        import trio

        return trio.run(getattr(self, what), servers, topic, count)

    async def produce(self, servers: str, topic: str, count: int) -> object:
        async def send(producer: Any, values: list[bytes]) -> None:
            for value in values:
                await producer.send_soon(topic, value)

        return await self._produced(servers, topic, count, send)

    async def produce_many(self, servers: str, topic: str, count: int) -> object:
        async def send(producer: Any, values: list[bytes]) -> None:
            for begin in range(0, count, TOGETHER):
                await producer.send_many(topic, values[begin : begin + TOGETHER])

        return await self._produced(servers, topic, count, send)

    async def _produced(self, servers: str, topic: str, count: int, send: Send) -> object:
        from replication.client import Producer

        values = values_of(topic, count)
        producer: Producer[bytes, bytes] = Producer(servers)
        async with producer:
            await producer.send(topic, values[0])
            stopwatch = Stopwatch()
            await send(producer, values)
            await producer.flush()
            return stopwatch.read()

    async def consume(self, servers: str, topic: str, count: int) -> object:
        from replication.client import Consumer

        async with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            read = len(await consumer.poll(timeout_ms=10_000))
            stopwatch = Stopwatch()
            while read < count:
                read += len(await consumer.poll(timeout_ms=1000))
            return stopwatch.read()

    async def consume_columns(self, servers: str, topic: str, count: int) -> object:
        from replication.client import Consumer

        async with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            read = len(await consumer.poll(timeout_ms=10_000))  # as many as the others
            consumer.pause((topic, 0))
            await consumer.poll_arrow()  # numpy and pyarrow are imported
            consumer.resume((topic, 0))
            stopwatch = Stopwatch()
            while read < count:
                read += sum(map(len, (await consumer.poll_arrow(timeout_ms=1000)).values()))
            return stopwatch.read()

    async def send(self, servers: str, topic: str, count: int) -> list[float]:
        from replication.client import Producer

        value, taken = bytes(SENT_BYTES), []
        producer: Producer[bytes, bytes] = Producer(servers, linger_ms=0)
        async with producer:
            for _ in range(count + count // 4):
                began = time.perf_counter()
                await producer.send(topic, value)
                taken.append(time.perf_counter() - began)
        return taken[-count:]

    async def first(self, servers: str, topic: str, count: int) -> float:
        from replication.client import Consumer

        async with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            while not await consumer.poll(timeout_ms=1000):
                pass
            return time.time()

    async def assigned(self, servers: str, topic: str, count: int) -> float:
        from replication.client import Consumer

        async with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, number) for number in range(count)])
            for _ in range(5):
                await consumer.poll(timeout_ms=500)
            return resident_mib()


class Aiokafka:
    def do(self, what: str, servers: str, topic: str, count: int) -> object:
        import asyncio

        return asyncio.run(getattr(self, what)(servers, topic, count))

    async def produce(self, servers: str, topic: str, count: int) -> object:
        async def send(producer: Any, values: list[bytes]) -> None:
            for value in values:
                await producer.send(topic, value)

        return await self._produced(servers, topic, count, send)

    async def produce_many(self, servers: str, topic: str, count: int) -> object:
        """Fill the batches in the program itself, which is aiokafka's way."""

        async def send(producer: Any, values: list[bytes]) -> None:
            batch = producer.create_batch()
            for value in values:
                if batch.append(key=None, value=value, timestamp=None) is None:
                    await producer.send_batch(batch, topic, partition=0)
                    batch = producer.create_batch()
                    batch.append(key=None, value=value, timestamp=None)
            await producer.send_batch(batch, topic, partition=0)

        return await self._produced(servers, topic, count, send)

    async def _produced(self, servers: str, topic: str, count: int, send: Send) -> object:
        from aiokafka import AIOKafkaProducer

        values = values_of(topic, count)
        producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=5)
        await producer.start()
        await producer.send_and_wait(topic, values[0])
        stopwatch = Stopwatch()
        await send(producer, values)
        await producer.flush()
        taken = stopwatch.read()
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

    async def consume(self, servers: str, topic: str, count: int) -> object:
        consumer = await self._consumer(servers, topic)
        read = sum(map(len, (await consumer.getmany(timeout_ms=10_000)).values()))
        stopwatch = Stopwatch()
        while read < count:
            read += sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))
        taken = stopwatch.read()
        await consumer.stop()
        return taken

    consume_columns = consume  # it knows records only

    async def send(self, servers: str, topic: str, count: int) -> list[float]:
        from aiokafka import AIOKafkaProducer

        value, taken = bytes(SENT_BYTES), []
        producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=0)
        await producer.start()
        for _ in range(count + count // 4):
            began = time.perf_counter()
            await producer.send_and_wait(topic, value)
            taken.append(time.perf_counter() - began)
        await producer.stop()
        return taken[-count:]

    async def first(self, servers: str, topic: str, count: int) -> float:
        consumer = await self._consumer(servers, topic)
        while not await consumer.getmany(timeout_ms=1000):
            pass
        at = time.time()
        await consumer.stop()
        return at

    async def assigned(self, servers: str, topic: str, count: int) -> float:
        consumer = await self._consumer(servers, topic, count)
        for _ in range(5):
            await consumer.getmany(timeout_ms=500)
        used = resident_mib()
        await consumer.stop()
        return used


class KafkaPython:
    def do(self, what: str, servers: str, topic: str, count: int) -> object:
        return getattr(self, what)(servers.split(","), topic, count)

    def produce(self, servers: list[str], topic: str, count: int) -> object:
        from kafka import KafkaProducer

        values = values_of(topic, count)
        producer = KafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=5)
        producer.send(topic, values[0]).get(30)
        stopwatch = Stopwatch()
        for value in values:
            producer.send(topic, value)
        producer.flush()
        taken = stopwatch.read()
        producer.close()
        return taken

    def _consumer(self, servers: list[str], topic: str, partitions: int = 1) -> Any:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(
            bootstrap_servers=servers, auto_offset_reset="earliest", max_poll_records=500
        )
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        return consumer

    def consume(self, servers: list[str], topic: str, count: int) -> object:
        consumer = self._consumer(servers, topic)
        read = sum(map(len, consumer.poll(timeout_ms=10_000).values()))
        stopwatch = Stopwatch()
        while read < count:
            read += sum(map(len, consumer.poll(timeout_ms=1000).values()))
        taken = stopwatch.read()
        consumer.close()
        return taken

    def send(self, servers: list[str], topic: str, count: int) -> list[float]:
        from kafka import KafkaProducer

        value, taken = bytes(SENT_BYTES), []
        producer = KafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=0)
        for _ in range(count + count // 4):
            began = time.perf_counter()
            producer.send(topic, value).get(30)
            taken.append(time.perf_counter() - began)
        producer.close()
        return taken[-count:]

    def first(self, servers: list[str], topic: str, count: int) -> float:
        consumer = self._consumer(servers, topic)
        while not consumer.poll(timeout_ms=1000):
            pass
        at = time.time()
        consumer.close()
        return at

    def assigned(self, servers: list[str], topic: str, count: int) -> float:
        consumer = self._consumer(servers, topic, count)
        for _ in range(5):
            consumer.poll(timeout_ms=500)
        used = resident_mib()
        consumer.close()
        return used


def resident_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    client, what, servers, topic, count = sys.argv[1:]
    clients: dict[str, type[Any]] = {
        OURS: Understudy,
        AIOKAFKA: Aiokafka,
        KAFKA_PYTHON: KafkaPython,
    }
    print(json.dumps(clients[client]().do(what, servers, topic, int(count))))


if __name__ == "__main__":
    main()
