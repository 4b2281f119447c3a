"""A follower's catch-up over loopback, against a bare copy of the same bytes.

    ours    a broker that was away fetches 2 GiB of 1 MiB batches and appends them
    floor   one process sends the same files with sendfile, another receives each
            chunk into one buffer and writes it to a file: no protocol, no checks

Both write to the same file system, from the page cache into the page cache: what was
written before is synced away first, so that neither pays for the other's dirty pages.
On a virtual machine both are bound by the first touch of fresh memory, which is what
makes single rounds differ so much: believe the median of a quiet machine.

Ours is timed from the first byte in the follower's directory to the last, so that
starting a process and waiting for a session are not in it.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stubs

from replication.cli.isolated import IsolatedCluster
from tests.bench.figures import Figure, interleaved

MIB = 1024 * 1024
TOTAL_BYTES = 2048 * MIB
PARTITIONS = 4
OVERHEAD = 128  # of a batch with one record
ROUNDS = 5
LEADER, FOLLOWER = 1, 2
LOOK_SECONDS = 0.02  # rarely enough to leave both cores to the brokers
CHUNK = 10 * MIB  # what one fetch brings at most, for the floor too

CONFIG = {
    "min.insync.replicas": "1",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "replica.fetch.max.bytes": str(CHUNK),
    "replica.fetch.response.max.bytes": str(CHUNK),
    "message.max.bytes": str(2 * MIB),
}


def run() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as scratch:
        with IsolatedCluster(Path(scratch), brokers=2, config=CONFIG) as cluster:
            cluster.wait_until_ready()
            fill(cluster)
            segments = sorted(cluster.log_dir(LEADER).glob("bench-*/*.log"))
            catch_up(cluster)  # what is written first meets fresh memory: it does not count
            ours, floor = interleaved(
                lambda: catch_up(cluster), lambda: bare_copy(segments), rounds=ROUNDS
            )
        yield Figure("follower catch-up, 2 GiB of 1 MiB batches", ours, floor, "MiB/s", goal=0.7)


def fill(cluster: IsolatedCluster) -> None:
    """2 GiB on the leader alone: the follower is dead before the first record."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    assignment = [[LEADER, FOLLOWER]] * PARTITIONS
    topic = NewTopic("bench", num_partitions=PARTITIONS, replica_assignment=assignment)
    admin.create_topics([topic])["bench"].result(20)
    cluster.kill(FOLLOWER)
    produce_batches(cluster.bootstrap_servers, "bench", TOTAL_BYTES, MIB)


def produce_batches(servers: str, topic: str, total_bytes: int, batch_bytes: int) -> None:
    """Write batches of one record each to the leaders of all partitions, without replicas."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "acks": 1,
            "message.max.bytes": 2 * MIB,
            "batch.size": batch_bytes,
            "queue.buffering.max.kbytes": 128 * 1024,
            "linger.ms": 0,
            "log_level": 0,  # a follower may be away
        }
    )
    value = os.urandom(batch_bytes - OVERHEAD)
    for number in range(total_bytes // batch_bytes):
        while len(producer) * batch_bytes > 64 * MIB:
            producer.poll(0.05)
        producer.produce(topic, value, partition=number % PARTITIONS)
    if producer.flush(120):
        raise RuntimeError("the leader did not take the records")


def catch_up(cluster: IsolatedCluster) -> float:
    """MiB/s at which an empty follower fills up.

    Its files are removed again at the end, so that this and the bare copy both write into
    memory that the other has just given back: fresh memory is slow on a virtual machine.
    """
    os.sync()
    cluster.start(FOLLOWER)
    wanted = stored_bytes(cluster.log_dir(LEADER))
    began, first = 0.0, 0
    while (stored := stored_bytes(cluster.log_dir(FOLLOWER))) < wanted:
        if stored and not first:
            began, first = time.perf_counter(), stored
        time.sleep(LOOK_SECONDS)
    rate = (wanted - first) / MIB / (time.perf_counter() - began)
    cluster.kill(FOLLOWER)
    shutil.rmtree(cluster.log_dir(FOLLOWER))
    return rate


def stored_bytes(log_dir: Path) -> int:
    return sum(path.stat().st_size for path in log_dir.glob("bench-*/*.log"))


def bare_copy(segments: list[Path]) -> float:
    """MiB/s of `sendfile` into a socket, `recv_into` and `write` out of it."""
    size = sum(path.stat().st_size for path in segments)
    os.sync()
    with socket.create_server(("127.0.0.1", 0)) as server, tempfile.TemporaryDirectory() as to:
        port = server.getsockname()[1]
        code = "from tests.bench import catch_up; import sys; catch_up.receive(*sys.argv[1:])"
        receiver = subprocess.Popen([sys.executable, "-c", code, str(port), to, str(size)])
        connection, _ = server.accept()
        began = time.perf_counter()
        with connection:
            for path in segments:
                with path.open("rb") as file:
                    connection.sendfile(file)
            receiver.wait()
        return size / MIB / (time.perf_counter() - began)


def receive(port: str, directory: str, size: str) -> None:
    """The other end of `bare_copy`, in a process of its own."""
    buffer = memoryview(bytearray(CHUNK))
    left = int(size)
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        file = os.open(f"{directory}/copy", os.O_CREAT | os.O_WRONLY)
        while left:
            filled = 0
            while filled < min(CHUNK, left):
                filled += connection.recv_into(buffer[filled:])
            os.write(file, buffer[:filled])
            left -= filled
        os.close(file)
