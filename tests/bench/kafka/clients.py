"""Producers (librdkafka's), each a process of its own; what it prints is JSON.

    python -m tests.bench.kafka.clients latency SERVERS TOPIC RATE SECONDS
    python -m tests.bench.kafka.clients throughput SERVERS TOPIC SIZE COUNT

`latency` is an open loop: a record is due at its time, whether or not the one before it has been
answered, and its wait runs from when it was due. `throughput` is as fast as the client takes
them, until all are acknowledged.
"""

import json
import os
import subprocess
import sys
import time
from typing import Any

WARM_UP_RECORDS = 100
LATENCY_BYTES = 100
PARTITIONS = 3
MOST_IN_MEMORY = 100_000
# As Apache Kafka's own producer is by default; with it five requests are on their way at most.
CONFIG = {"acks": "all", "enable.idempotence": True}


def ask(*arguments: object) -> Any:
    """Return what such a process prints."""
    command = [sys.executable, "-m", "tests.bench.kafka.clients", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=300)
    return json.loads(done.stdout)


def latency(servers: str, topic: str, rate: str, seconds: str) -> list[float]:
    """Milliseconds that each record waited to be acknowledged."""
    from confluent_kafka import Producer

    producer = Producer(CONFIG | {"bootstrap.servers": servers, "linger.ms": 0})
    value, taken = os.urandom(LATENCY_BYTES), []

    def acknowledge(due: float) -> Any:
        def on_delivery(error: object, _: object) -> None:
            if error:
                raise RuntimeError(error)
            taken.append((time.perf_counter() - due) * 1000)

        return on_delivery

    for _ in range(WARM_UP_RECORDS):
        producer.produce(topic, value, partition=0)
    producer.flush()
    count, gap, began = int(float(rate) * float(seconds)), 1 / float(rate), time.perf_counter()
    for number in range(count):
        due = began + number * gap
        while (left := due - time.perf_counter()) > 0:
            producer.poll(left)
        producer.produce(topic, value, partition=0, on_delivery=acknowledge(due))
        producer.poll(0)
    producer.flush()
    return taken


def throughput(servers: str, topic: str, size: str, count: str) -> float:
    """Seconds until all are acknowledged."""
    from confluent_kafka import Producer

    failed: list[object] = []

    def on_delivery(error: object, _: object) -> None:
        if error:
            failed.append(error)

    producer = Producer(
        CONFIG
        | {
            "bootstrap.servers": servers,
            "linger.ms": 5,
            "queue.buffering.max.messages": MOST_IN_MEMORY,
            "on_delivery": on_delivery,
        }
    )
    value = os.urandom(int(size))
    for partition in range(PARTITIONS):
        producer.produce(topic, value, partition=partition)
    producer.flush()
    began = time.perf_counter()
    for number in range(int(count)):
        while len(producer) >= MOST_IN_MEMORY:
            producer.poll(0.01)
        producer.produce(topic, value, partition=number % PARTITIONS)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()
    if failed:
        raise RuntimeError(failed[0])
    return time.perf_counter() - began


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    print(json.dumps({"latency": latency, "throughput": throughput}[what](*rest)))
