"""What one round of a follower costs, by how many partitions it follows.

    follower                                       leader
    ReplicaFetcher ── request, as on the wire ──>  server, handler, session, replicas
                   <── response, as on the wire ──

Both sides are the real ones, with every byte encoded and decoded, and nothing between them: what
is measured is theirs. The leader leads 100,000 partitions whose logs are in memory; sessions of
10, 1,000, 10,000 and 100,000 of them take turns. A round is a fetch that is answered at once.

    idle            nothing has moved since the last round: rounds per second, each side alone
    waiting         the same with the leader waiting a millisecond: processor time
    1% in motion    10,000 followed, 100 of which get a record each: against 100 followed
    memory          for each partition, beside its log
"""

import gc
import statistics
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import attrs
import trio

from replication.broker.handlers.fetch import fetch
from replication.broker.handlers.node import BrokerNode
from replication.broker.wiring import Wiring
from replication.errors import PeerUnavailableError, raise_bug
from replication.events import ignore
from replication.follower.fetcher import FetcherConfig, ReplicaFetcher
from replication.follower.followed_replicas import FollowedReplicas
from replication.follower.partitions import FetcherStats
from replication.follower.rules.fetch_state import (
    BrokerEndPoint,
    InitialFetchState,
)
from replication.leader.partition import Partition
from replication.leader.purgatory import Waited
from replication.leader.rules.fetch_session.cache import FetchSessionCache
from replication.leader.rules.fetch_session.context import FetchManager
from replication.metadata.cache import MetadataCache
from replication.metrics import MetricsRegistry
from replication.net import production_seams
from replication.net.idle import NEVER_SECONDS, IdleWatch
from replication.net.seams import Connection
from replication.server.answers import AnswerLine
from replication.server.authentication import Gate
from replication.server.connection_quotas import ConnectionSlot
from replication.server.request_metrics import Stopwatch
from replication.server.server import ServedConnection, Server
from replication.wire.apis import ApiKey
from replication.wire.fetch import FetchRequest, FetchResponse
from replication.wire.frames import decode_response, encode_request
from storage.log.append import LogAppendInfo
from storage.log.file_region import FileRegion
from storage.log.log import Log
from storage.types import OffsetAndEpoch, TopicPartition
from tests.bench.figures import Figure
from tests.replication.leader.leader_side import (
    LOCAL,
    REMOTE,
    TOPIC_ID,
    Broker,
    epoch_of as broker_epoch_of,
    registration,
)
from tests.replication.replica_manager.replica_manager_side import Node

SIZES = (10, 1_000, 10_000, 100_000)
MOVING = 100
FOLLOWED = 10_000
ROUNDS = 200
VERSION = 17
LEADER = BrokerEndPoint(LOCAL, "leader", 9092)
CLOCK = production_seams().clock


# The two sides.


class NoController:
    async def call(self, request: Any, *, timeout_ms: int) -> Any:
        await trio.lowlevel.checkpoint()
        raise PeerUnavailableError("there is none here")


@attrs.frozen
class _Nobody:
    """Where the frames come from, as far as the server wants to know."""

    peer: str = "b2"


_NOBODY = cast("Connection", _Nobody())


def _start_nothing(*_: object) -> None:
    raise AssertionError("a fetch is not answered later")


@attrs.define(eq=False)
class Endpoint:
    """The way to the leader: its server is called with the bytes, and timed."""

    server: Server
    broker: BrokerEndPoint = LEADER
    fetch_version: int = VERSION
    supports_truncation_on_fetch: bool = True
    leader_seconds: float = 0.0
    request_size: int = 0
    response_size: int = 0

    async def fetch(self, request: FetchRequest, *, version: int) -> FetchResponse:
        parts = encode_request(request, version=version, correlation_id=1, client_id="b2")
        frame = bytearray().join(bytes_of(part) for part in parts)[4:]
        began = time.perf_counter()
        session = Gate(clock=CLOCK).session(_NOBODY)
        watch = Stopwatch(CLOCK.now, Waited())
        watch.start()
        idle = IdleWatch(_NOBODY, CLOCK, NEVER_SECONDS)
        line = AnswerLine(
            _NOBODY, CLOCK.now, idle, self.server.metrics, _start_nothing, self.server.on_bug
        )
        served = ServedConnection(session, ConnectionSlot(_NOBODY, "PLAINTEXT", "", 0.0), line)
        _, answer = await self.server._answer(memoryview(frame), served, watch)
        self.leader_seconds = time.perf_counter() - began
        assert answer is not None, "a fetch is answered"
        received = b"".join(bytes_of(part) for part in answer)
        self.request_size, self.response_size = len(frame), len(received) - 4
        _, response = decode_response(
            memoryview(received)[4:], api_key=ApiKey.FETCH, version=version
        )
        assert isinstance(response, FetchResponse)
        return response

    async def fetch_earliest_offset(self, *_: object) -> OffsetAndEpoch:
        raise NotImplementedError("nothing is out of range here")

    fetch_latest_offset = fetch_earliest_offset

    async def fetch_epoch_end_offsets(self, *_: object) -> dict[TopicPartition, Any]:
        raise NotImplementedError("nothing has to be truncated here")

    def initiate_close(self) -> None:
        pass

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()


def bytes_of(part: object) -> bytes:
    return part.read() if isinstance(part, FileRegion) else bytes(part)  # type: ignore[call-overload]  # a buffer


@attrs.define(eq=False)
class Empty:
    """Followed logs that have nothing, which is all that an idle round may ask of them."""

    def latest_epoch(self, _: TopicPartition) -> int:
        return 1

    def log_start_offset(self, _: TopicPartition) -> int:
        return 0

    log_end_offset = high_watermark = log_start_offset

    def process_partition_data(self, *_: object) -> LogAppendInfo:
        return LogAppendInfo(log_start_offset=0)

    def complete_delayed_fetches(self) -> None:
        return None

    def end_offset_for_epoch(self, *_: object) -> OffsetAndEpoch:
        raise NotImplementedError

    def truncate_to(self, *_: object, **__: object) -> None:
        raise NotImplementedError

    truncate_fully_and_start_at = truncate_to


@attrs.define(eq=False)
class Follower:
    endpoint: Endpoint
    fetcher: ReplicaFetcher

    async def round(self) -> tuple[float, float]:
        """Seconds that follower and leader took."""
        began = time.perf_counter()
        await self.fetcher.do_work()
        took = time.perf_counter() - began
        return took - self.endpoint.leader_seconds, self.endpoint.leader_seconds


def follower_of(
    server: Server, count: int, *, replicas: FollowedReplicas | None = None, max_wait_ms: int = 0
) -> Follower:
    endpoint = Endpoint(server)
    fetcher = ReplicaFetcher(
        name="ReplicaFetcherThread-0-1",
        leader=endpoint,
        replicas=replicas or Empty(),
        config=FetcherConfig(replica_id=REMOTE, max_wait_ms=max_wait_ms),
        clock=CLOCK,
        failed=set(),
        stats=FetcherStats(MetricsRegistry(CLOCK.now), "ReplicaFetcherThread-0-1", LEADER),
        on_bug=raise_bug,
        broker_epoch=lambda: broker_epoch_of(REMOTE),
    )
    fetcher.partitions.add(
        {
            at(number): InitialFetchState(
                topic_id=TOPIC_ID, leader=LEADER, current_leader_epoch=1, init_offset=0
            )
            for number in range(count)
        }
    )
    return Follower(endpoint, fetcher)


def at(number: int) -> TopicPartition:
    return TopicPartition("topic", number)


@asynccontextmanager
async def leading(count: int) -> AsyncIterator[tuple[Node, Server]]:
    async with Node(clock=CLOCK).running() as node:
        await node.learn(*[registration()] * count)
        metadata = MetadataCache(CLOCK, node.image)
        wiring = Wiring(
            config=node.config,
            seams=(seams := production_seams()),
            toward_brokers=seams,
            metrics=MetricsRegistry(CLOCK.now),
            sink=ignore,
            on_bug=raise_bug,
            broker_epoch=lambda: broker_epoch_of(LOCAL),
        )
        groups = wiring.groups(node.manager)
        markers = wiring.marker_writer(node.manager, groups)
        producer_ids = wiring.producer_ids(NoController())
        transactions = wiring.transactions(metadata, markers, producer_ids)
        broker = BrokerNode(
            broker_id=LOCAL,
            cluster_id="bench",
            config=node.config,
            clock=CLOCK,
            offload=node.offload,
            metadata=metadata,
            logs=node.logs,
            replica_manager=node.manager,
            groups=groups,
            consumers=wiring.consumers(groups, metadata, node.manager),
            transactions=transactions,
            verification=wiring.verification(
                node.manager, wiring.questions(metadata, transactions)
            ),
            fetch_sessions=FetchManager(FetchSessionCache(chance=production_seams().chance)),
            controller=NoController(),
            producer_ids=producer_ids,
            broker_epoch=lambda: broker_epoch_of(LOCAL),
        )
        handlers = {ApiKey.FETCH: partial(fetch, broker)}
        yield node, Server(handlers=handlers, clock=CLOCK, sink=ignore, on_bug=raise_bug)


# What is measured.


def run() -> Iterator[Figure]:
    yield from trio.run(idle_rounds)
    yield from trio.run(one_percent_in_motion)
    yield from memory()


async def idle_rounds() -> list[Figure]:
    figures: list[Figure] = []
    async with leading(SIZES[-1]) as (_, server):
        followers = {count: follower_of(server, count) for count in SIZES}
        waiting = {count: follower_of(server, count, max_wait_ms=1) for count in SIZES}
        for each in (*followers.values(), *waiting.values()):
            for _ in range(4):  # in full, read once, sent once, and settled
                await each.round()
        gc.collect()
        gc.freeze()  # what is there stays; a collection would be counted as somebody's round
        seconds = await measured(followers)
        gc.unfreeze()
        smallest = SIZES[0]
        for count in SIZES[1:]:
            for side, name in enumerate(("follower", "leader")):
                figures.append(
                    Figure(
                        f"idle round, {count:,} beside {smallest}, {name}",
                        1 / seconds[count][side],
                        1 / seconds[smallest][side],
                        "per s",
                        goal=0.67,
                    )
                )
        processor = {count: await processor_seconds(each) for count, each in waiting.items()}
        figures.append(
            Figure(
                f"round that waits, {SIZES[-1]:,} beside {smallest}",
                1 / processor[SIZES[-1]],
                1 / processor[smallest],
                "per s",
                goal=0.67,
            )
        )
        for name in ("request_size", "response_size"):
            ours, floor = (getattr(followers[each].endpoint, name) for each in (SIZES[-1], 10))
            title = f"idle {name.replace('_size', '')}, {SIZES[-1]:,} beside {smallest}"
            figures.append(Figure(title, ours, floor, "B"))
    return figures


async def measured(followers: dict[int, Follower]) -> dict[int, tuple[float, float]]:
    """The medians of rounds taken in turn."""
    taken: dict[int, list[tuple[float, float]]] = {count: [] for count in followers}
    for _ in range(ROUNDS):
        for count, each in followers.items():
            taken[count].append(await each.round())
    return {
        count: (
            statistics.median(one for one, _ in rounds),
            statistics.median(other for _, other in rounds),
        )
        for count, rounds in taken.items()
    }


async def processor_seconds(follower: Follower) -> float:
    """Return the processor time of a round on both sides together."""
    rounds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        await follower.round()
        rounds.append(time.process_time() - began)
    return statistics.median(rounds)


async def one_percent_in_motion() -> list[Figure]:
    seconds = {}
    for count in (FOLLOWED, MOVING):
        async with leading(count) as (leader, server), following(count) as node:
            follower = follower_of(server, count, replicas=node.manager.replicas)
            for _ in range(4):
                await follower.round()
            seconds[count] = await rounds_in_motion(leader, follower)
    return [
        Figure(
            f"{MOVING} in motion of {FOLLOWED:,}, beside of {MOVING}, {name}",
            1 / seconds[FOLLOWED][side],
            1 / seconds[MOVING][side],
            "per s",
            goal=0.67,
        )
        for side, name in enumerate(("follower", "leader"))
    ]


@asynccontextmanager
async def following(count: int) -> AsyncIterator[Node]:
    async with Node(clock=CLOCK).running() as node:
        await node.learn(*[registration(leader=REMOTE)] * count)
        yield node


async def rounds_in_motion(leader: Node, follower: Follower) -> tuple[float, float]:
    """A record into each of the first hundred, then the round that takes it and the round that
    acknowledges it and learns that it is committed.
    """
    taken = []
    for _ in range(ROUNDS // 10):
        for number in range(MOVING):
            await leader.produce(to=at(number))
        first, second = await follower.round(), await follower.round()
        await follower.round()
        taken.append((first[0] + second[0], first[1] + second[1]))
    ends = {leader.state(at(number)).high_watermark for number in range(MOVING)}
    assert ends == {ROUNDS // 10}, "every record has been taken and acknowledged"
    return (
        statistics.median(one for one, _ in taken),
        statistics.median(other for _, other in taken),
    )


# Memory.

KEPT = 2_000
LIMIT = 2048.0


def memory() -> Iterator[Figure]:
    """Beside the log, of which there is one however it is used."""
    led, followed = trio.run(bytes_for_each)
    yield Figure("memory of a led partition, limit as floor", led, LIMIT, "B")
    yield Figure("memory of a followed partition, limit as floor", followed, LIMIT, "B")


async def bytes_for_each() -> tuple[float, float]:
    """A led one with its session; a followed one with its partition and its fetcher's part."""
    async with leading(KEPT) as (node, server):
        follower = follower_of(server, KEPT)
        for _ in range(4):
            await follower.round()
        side = Broker()
        logs = [node.manager.hosted.get(at(number)).log for number in range(KEPT)]
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        led = [lead(side, log) for log in logs]
        partitions = tracemalloc.get_traced_memory()[0] - before
        before = tracemalloc.get_traced_memory()[0]
        again = follower_of(server, KEPT)
        both = tracemalloc.get_traced_memory()[0] - before
        for _ in range(4):
            await again.round()
        with_session = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert len(led) == KEPT
    return (partitions + with_session - both) / KEPT, (partitions + both) / KEPT


def lead(side: Broker, log: Log) -> Partition:
    partition = Partition(
        topic_partition=log.topic_partition, topic_id=TOPIC_ID, log=log, around=side.around
    )
    partition.make_leader(registration(leader_epoch=2))
    return partition
