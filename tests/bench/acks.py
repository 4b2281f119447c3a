"""How long a producer waits for acks=all, beside a bare round trip through the same hops.

    ours    client ──> leader ──> follower   the fetch that waited is answered
                              <── follower   the next fetch says that it has the record
            client <── leader                the high watermark has passed it

    floor   client ──> relay ──> two echoes ──> relay ──> client, each a process, one byte

Three brokers, each a process, one partition on all of them, one record of 100 bytes at a time.
Batches of either are taken in turn; the percentiles are over all of a kind.
"""

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stubs

from replication.cli.isolated import IsolatedCluster, free_ports
from replication.wire.apis import ApiKey
from replication.wire.frames import decode_response, encode_request
from replication.wire.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from storage.batch.records import Record, encode_batch
from tests.bench.figures import Figure

TURNS = 10
REQUESTS = 100
WARM_UP = 50
VERSION = 9
TOPIC = "acks"
LEADER = 1
HOST = "127.0.0.1"


def run() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as scratch, ExitStack() as stack:
        cluster = stack.enter_context(IsolatedCluster(Path(scratch), brokers=3))
        cluster.wait_until_ready()
        create_topic(cluster.bootstrap_servers)
        produce = stack.enter_context(Asker(*leader_address(cluster), produce_frame()))
        bare = stack.enter_context(Asker(HOST, start_relay(stack), framed(b"x")))
        produce.wait_until(acknowledged)
        for each in (produce, bare):
            each.times(WARM_UP)
        ours, floor = [], []
        for _ in range(TURNS):
            ours += produce.times(REQUESTS)
            floor += bare.times(REQUESTS)
    for name, percent in (("p50", 50), ("p99", 99)):
        yield Figure(
            f"acks=all beside a bare round trip, {name}",
            percentile(ours, percent) * 1000,
            percentile(floor, percent) * 1000,
            "ms",
        )


def percentile(seconds: list[float], percent: int) -> float:
    return statistics.quantiles(seconds, n=100)[percent - 1]


class Asker:
    """Sends the same frame again and again, each when the last one is answered."""

    def __init__(self, host: str, port: int, frame: bytes) -> None:
        self._connection = socket.create_connection((host, port), timeout=30)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frame = frame

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self) -> bytes:
        self._connection.sendall(self._frame)
        return receive_frame(self._connection)

    def times(self, count: int) -> list[float]:
        taken = []
        for _ in range(count):
            began = time.perf_counter()
            self.ask()
            taken.append(time.perf_counter() - began)
        return taken

    def wait_until(self, good: Callable[[bytes], bool]) -> None:
        """A broker may hear late that it leads."""
        for _ in range(200):
            if good(self.ask()):
                return
            time.sleep(0.05)
        raise RuntimeError("the leader does not take records")


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def receive_frame(connection: socket.socket) -> bytes:
    return receive(connection, int.from_bytes(receive(connection, 4), "big"))


def receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionError("the other side has left")
        received += part
    return received


# Ours.


def create_topic(bootstrap_servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topic = NewTopic(TOPIC, num_partitions=1, replica_assignment=[[LEADER, 2, 3]])
    admin.create_topics([topic])[TOPIC].result(20)


def leader_address(cluster: IsolatedCluster) -> tuple[str, int]:
    host, _, port = cluster.bootstrap_servers.split(",")[LEADER - 1].rpartition(":")
    return host, int(port)


def produce_frame(topic: str = TOPIC) -> bytes:
    # Timestamps of today: retention would delete old records, which changes the log's size.
    now_ms = int(time.time() * 1000)
    records = encode_batch([Record(timestamp=now_ms, value=os.urandom(100))])
    data = PartitionProduceData(index=0, records=memoryview(records))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    parts = encode_request(request, version=VERSION, correlation_id=1, client_id="bench")
    return b"".join(bytes(part) for part in parts if isinstance(part, bytes | memoryview))


def acknowledged(answer: bytes) -> bool:
    _, response = decode_response(memoryview(answer), api_key=ApiKey.PRODUCE, version=VERSION)
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0].error_code == 0


# The floor.


def start_relay(stack: ExitStack) -> int:
    """A process in front of two others; where it listens."""
    ports = free_ports(3)
    for role, port in (("echo", ports[1]), ("echo", ports[2]), ("relay", ports[0])):
        others = [str(each) for each in ports[1:]] if role == "relay" else []
        code = f"from tests.bench import acks; import sys; acks.{role}(*map(int, sys.argv[1:]))"
        process = subprocess.Popen([sys.executable, "-c", code, str(port), *others])
        stack.callback(process.wait)
        stack.callback(process.kill)
        wait_for(port)
    return ports[0]


def wait_for(port: int) -> None:
    for _ in range(200):
        try:
            socket.create_connection((HOST, port)).close()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"nobody listens on {port}")


def serve(port: int, answer: Callable[[bytes], bytes]) -> None:
    """One connection after the other; the first is only somebody who looks whether we are up."""
    with socket.create_server((HOST, port)) as server:
        while True:
            connection, _ = server.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection:
                try:
                    while True:
                        connection.sendall(framed(answer(receive_frame(connection))))
                except ConnectionError:
                    continue


def echo(port: int) -> None:
    serve(port, lambda body: body)


def relay(port: int, *others: int) -> None:
    echoes = [socket.create_connection((HOST, other)) for other in others]
    for each in echoes:
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def answer(body: bytes) -> bytes:
        for each in echoes:
            each.sendall(framed(body))
        answers = [receive_frame(each) for each in echoes]
        return answers[0]

    serve(port, answer)
