"""A group of the new protocol (KIP-848) with 100 members and 300 partitions, while one comes and dies.

A record is written to every partition once a second, so a member has something to read about three
times a second, and a gap of up to a second is the pace of the writes. Another member joins, in a
process of its own: measured are the longest time in which one of the others read nothing, and the
time until every partition is assigned and nothing moves any more. Then its process is killed, and
the time is measured until the group is stable again, the session of 15 s included. Heartbeats are
Kafka's default, every 5 s.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Self

import attrs

from tests.bench.kafka.asking import addresses, create_topic
from tests.bench.kafka.comparison import Comparison, Sizes
from tests.bench.kafka.sides import BROKERS, RivalCluster

PARTITIONS, MEMBERS, MEMBERS_A_PROCESS = 300, 100, 25
WRITES_A_SECOND = 1
# Neighbours, which a member may well have together, are written a third of a second apart.
STEP = 101
SESSION_MS = "15000"
CONFIG = {
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "offsets.topic.replication.factor": "3",
}
TOPIC = GROUP = "groups"
QUIET_SECONDS = 3.0
PATIENCE_SECONDS = 180.0


def run(clusters: Mapping[str, RivalCluster], sizes: Sizes) -> Iterator[Comparison]:
    taken = {side: list(rounds_at(cluster, sizes.rounds)) for side, cluster in clusters.items()}
    for at, name in enumerate(
        (
            f"a group of {MEMBERS}, one joins: the longest reading gap of the others",
            "until it has its partitions and the group is stable",
            "one is killed, until the group is stable",
        )
    ):
        rounds = {side: [each[at] for each in found] for side, found in taken.items()}
        yield Comparison(name=name, unit="s", rounds=rounds)


def rounds_at(cluster: RivalCluster, count: int) -> Iterator[tuple[float, float, float]]:
    """One side's rounds, all with the same hundred members."""
    servers = cluster.bootstrap_servers
    create_topic(addresses(servers)[0], TOPIC, [[BROKERS[n % 3]] for n in range(PARTITIONS)])
    with ExitStack() as stack:
        stack.enter_context(writing(servers))
        others = [
            stack.enter_context(Process.started(servers, MEMBERS_A_PROCESS))
            for _ in range(MEMBERS // MEMBERS_A_PROCESS)
        ]
        until_stable(others)
        for _ in range(count):
            yield one_round(servers, others)


def one_round(servers: str, others: list["Process"]) -> tuple[float, float, float]:
    """Return the gap, and the seconds until the group was stable after a join and a death."""
    joined = time.monotonic()
    with Process.started(servers, 1) as newcomer:
        stable = until_stable([*others, newcomer])
        gap = max(each.longest_gap(joined, stable) for each in others)
    died = time.monotonic()
    return gap, stable - joined, until_stable(others) - died


def until_stable(processes: list["Process"]) -> float:
    """Return when the last partition moved, once every member has some and none moves any more."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        time.sleep(0.1)  # members in other processes, which say what they have
        held = [each for process in processes for each in process.held()]
        moved = max(process.moved for process in processes)
        complete = all(held) and sorted(one for each in held for one in each) == [
            *range(PARTITIONS)
        ]
        if complete and time.monotonic() - moved > QUIET_SECONDS:
            return moved
        if time.monotonic() > deadline:
            raise RuntimeError(f"the group is not stable: {sorted(map(len, held))}")


@attrs.define(eq=False)
class Process:
    """Members in one process, and what they have said so far."""

    count: int
    _process: subprocess.Popen[str]
    moved: float = attrs.field(init=False, factory=time.monotonic)
    _partitions: dict[int, list[int]] = attrs.field(init=False, factory=dict)
    _gaps: list[float] = attrs.field(init=False, factory=list)
    _answered: threading.Event = attrs.field(init=False, factory=threading.Event)

    @classmethod
    @contextmanager
    def started(cls, servers: str, count: int) -> Iterator[Self]:
        """Start it; it is killed at the end."""
        words = [servers, TOPIC, GROUP, str(count)]
        command = [sys.executable, "-m", "tests.bench.kafka.group_members", *words]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, **pipes) as process:
            self = cls(count, process)
            listening = threading.Thread(target=self._listen)
            listening.start()
            try:
                yield self
            finally:
                process.kill()
                listening.join()

    def held(self) -> list[list[int]]:
        """Return the partitions of each of its members."""
        return [self._partitions.get(number, []) for number in range(self.count)]

    def longest_gap(self, begin: float, end: float) -> float:
        assert self._process.stdin is not None
        self._answered.clear()
        self._process.stdin.write(f"gap {begin} {end}\n")
        self._process.stdin.flush()
        if not self._answered.wait(PATIENCE_SECONDS):
            raise RuntimeError("a process of members does not answer")
        return self._gaps[-1]

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            if "gap" in said:
                self._gaps.append(said["gap"])
                self._answered.set()
            else:
                self._partitions[said["member"]] = said["partitions"]
                self.moved = max(self.moved, said["at"])


@contextmanager
def writing(servers: str) -> Iterator[None]:
    """Write to all partitions meanwhile, one after the other, at an even pace."""
    from confluent_kafka import Producer

    producer, ended = Producer({"bootstrap.servers": servers, "linger.ms": 20}), threading.Event()

    def write() -> None:
        number, began = 0, time.monotonic()
        while not ended.wait(0.01):
            while number < (time.monotonic() - began) * PARTITIONS * WRITES_A_SECOND:
                producer.produce(TOPIC, b"x", partition=number * STEP % PARTITIONS)
                number += 1
            producer.poll(0)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        producer.flush(10)
