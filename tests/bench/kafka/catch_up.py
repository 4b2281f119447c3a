"""An empty replica takes everything that the leader has, in processes that are warm.

Each kind of cluster by itself (`run`), and each kind of follower behind each kind of leader, in one
cluster of both (`run_mixed`).

Four partitions on one broker, each given a replica on a second by AlterPartitionReassignments
and taken from it again, so that neither process starts anew. Timed from that request to the
last byte in the follower's files, as seen every 20 ms; the processor time is that of all nodes.
What lies in the files is in the page cache, dirty pages are written back before each round, and
the follower writes into memory that has been used before (`memory`).
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import trio

from replication.client import Admin
from storage.types import TopicPartition
from tests.bench.catch_up import FOLLOWER, LEADER, LOOK_SECONDS, MIB, PARTITIONS, produce_batches
from tests.bench.kafka.asking import addresses, create_topic, delete_topic, write
from tests.bench.kafka.comparison import (
    GIB,
    Comparison,
    Sizes,
    after_the_first,
    in_turn,
)
from tests.bench.kafka.memory import WarmMemory
from tests.bench.kafka.processes import worked_seconds
from tests.bench.kafka.sides import MIXED_FOLLOWERS, MIXED_LEADERS, RivalCluster, pids

PATIENCE_SECONDS = 120
KIB = 1024
BATCH_BYTES = {"1 MiB": MIB, "16 KiB": 16 * KIB}


def run(clusters: Mapping[str, RivalCluster], sizes: Sizes) -> Iterator[Comparison]:
    for name, batch_bytes in BATCH_BYTES.items():
        topic = f"catch-up-{batch_bytes}"
        for cluster in clusters.values():
            fill(cluster, topic, sizes.catch_up_bytes, batch_bytes)
        taken = in_turn(
            clusters,
            lambda cluster, topic=topic: catch_up(cluster, topic),  # type: ignore[misc]  # mypy infers no lambda with a default
            rounds=1 + sizes.rounds,
        )
        for cluster in clusters.values():
            delete_topic(cluster, topic)
        label = f"catch-up, {sizes.catch_up_bytes / GIB:g} GiB of {name} batches"
        yield Comparison(
            name=label,
            unit="MiB/s",
            more_is_better=True,
            rounds=after_the_first(taken, 0),
        )
        yield Comparison(
            name=f"{label}, processor time",
            unit="s/GiB",
            rounds=after_the_first(taken, 1),
        )


def run_mixed(clusters: Mapping[str, RivalCluster], sizes: Sizes) -> Iterator[Comparison]:
    """Measure each kind of follower behind each kind of leader; `clusters` is one, of both kinds."""
    (cluster,) = clusters.values()
    for name, leader in MIXED_LEADERS.items():
        topic = f"behind-{leader}"
        fill(cluster, topic, sizes.catch_up_bytes, MIB, leader=leader)
        taken: dict[str, list[tuple[float, float]]] = {side: [] for side in MIXED_FOLLOWERS}
        for _ in range(1 + sizes.rounds):
            for side, follower in MIXED_FOLLOWERS.items():
                taken[side].append(
                    catch_up(
                        cluster, topic, leader=leader, follower=follower, workers=[leader, follower]
                    )
                )
        delete_topic(cluster, topic)
        label = f"a follower behind {name}, {sizes.catch_up_bytes / GIB:g} GiB"
        yield Comparison(
            name=label, unit="MiB/s", more_is_better=True, rounds=after_the_first(taken, 0)
        )
        yield Comparison(
            name=f"{label}, processor time of both", unit="s/GiB", rounds=after_the_first(taken, 1)
        )


def fill(
    cluster: RivalCluster, topic: str, total_bytes: int, batch_bytes: int, leader: int = LEADER
) -> None:
    """Batches of one record each, on the leader alone."""
    brokers = addresses(cluster.bootstrap_servers)
    create_topic(brokers[0], topic, [[leader]] * PARTITIONS)
    write(brokers, topic)
    produce_batches(cluster.bootstrap_servers, topic, total_bytes, batch_bytes)


def catch_up(
    cluster: RivalCluster,
    topic: str,
    *,
    leader: int = LEADER,
    follower: int = FOLLOWER,
    workers: Sequence[int] = (),
) -> tuple[float, float]:
    """MiB/s, and seconds of processor time of `workers`, by default of all nodes, for a GiB."""
    working = [cluster.pid(node_id) for node_id in workers] or pids(cluster)
    os.sync()
    wanted = stored_bytes(cluster, leader, topic)
    memory = WarmMemory(wanted)
    memory.give_back(0)
    worked, began = worked_seconds(working), time.perf_counter()
    reassign(cluster, topic, [leader, follower])
    wait_until_stored(cluster, follower, topic, wanted, memory.give_back)
    taken = time.perf_counter() - began
    worked = worked_seconds(working) - worked
    memory.close()
    wait_until_moved(cluster)
    reassign(cluster, topic, [leader])
    wait_until_stored(cluster, follower, topic, 0)
    return wanted / MIB / taken, worked / (wanted / GIB)


def wait_until_stored(
    cluster: RivalCluster,
    follower: int,
    topic: str,
    wanted: int,
    on_stored: Callable[[int], None] = lambda _: None,
) -> None:
    """Wait until the follower has `wanted` bytes; tell `on_stored` how many it has until then."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (stored := stored_bytes(cluster, follower, topic)) != wanted:
        on_stored(stored)
        if time.monotonic() > deadline:
            raise RuntimeError(f"the follower does not come to have {wanted} bytes")
        time.sleep(LOOK_SECONDS)  # a file that another process writes


def stored_bytes(cluster: RivalCluster, broker: int, topic: str) -> int:
    """Return the bytes stored, without directories that wait for their removal."""
    return sum(
        size_of(path)
        for number in range(PARTITIONS)
        for path in (cluster.log_dir(broker) / f"{topic}-{number}").glob("*.log")
    )


def size_of(path: Path) -> int:
    """Return a file's size, or 0 while its directory is being renamed."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def reassign(cluster: RivalCluster, topic: str, replicas: list[int]) -> None:
    async def ask() -> None:
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.alter_partition_reassignments(
                {TopicPartition(topic, number): replicas for number in range(PARTITIONS)}
            )

    trio.run(ask)


def wait_until_moved(cluster: RivalCluster) -> None:
    """The new replica is in sync, and nothing is on the move any more."""

    async def are_moving() -> bool:
        async with Admin(cluster.bootstrap_servers) as admin:
            return bool(await admin.list_partition_reassignments())

    while trio.run(are_moving):
        time.sleep(LOOK_SECONDS)  # a reassignment: only the controller knows when it is over
