"""A broker's replica manager for tests: real logs, virtual time, a controller that answers."""

import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

import attrs
import trio

from replication.config import BrokerConfig, TopicConfig
from replication.errors import ErrorCode
from replication.events import Event
from replication.follower.rules.fetch_state import InitialFetchState, PartitionFetchState
from replication.leader.partition import ReplicaSnapshot
from replication.leader.rules.fetch_data import Answers, FetchInfo, FetchParams, TopicIdPartition
from replication.leader.rules.isr import IsrAnswer, IsrProposal
from replication.metadata.rules.image import (
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
    delta_between,
)
from replication.metrics import MetricsRegistry
from replication.net.clock import TrioClock
from replication.net.seams import NodeClock, Offload, Seams
from replication.net.tcp import TcpTransport
from replication.replica_manager import (
    ProduceResult,
    ReplicaManager,
    assemble_replica_manager,
)
from storage.filesystem import FileSystem
from storage.log.retention import DeletedSegments
from storage.manager.log_manager import LogManager
from storage.testing import FaultyFileSystem
from storage.types import Offset, TopicId, TopicPartition
from tests.replication.leader.leader_side import (
    LOCAL,
    REMOTE,
    TOPIC_ID,
    batch,
    broker,
    epoch_of,
    follower_params,
    registration,
)

T = TypeVar("T")

TP = TopicPartition("topic", 0)
SECOND = TopicPartition("topic", 1)
JANUARY_2025_MS = 1_735_689_600_000
CLOCK = TrioClock()


class OneClock(TrioClock):
    """Whose wall shows what the run's clock says, jumps included."""

    def wall_ms(self) -> int:
        return JANUARY_2025_MS + self.now_ms()


async def inline(fn: Callable[[], T], /) -> T:
    await trio.lowlevel.checkpoint()
    return fn()


class Fetchers:
    """Remembers which partitions are to be followed from where; fetches nothing."""

    nursery: trio.Nursery | None = None

    def __init__(self) -> None:
        self.following: dict[TopicPartition, InitialFetchState] = {}
        self.failed: set[TopicPartition] = set()
        self.calls: list[str] = []
        self.on_removal: Callable[[], None] = lambda: None

    def add_fetcher_for_partitions(
        self, initial_states: Mapping[TopicPartition, InitialFetchState], /
    ) -> None:
        self.calls.append("add")
        self.following.update(initial_states)
        self.failed.difference_update(initial_states)

    def remove_fetcher_for_partitions(
        self, partitions: Iterable[TopicPartition], /
    ) -> Mapping[TopicPartition, PartitionFetchState]:
        self.calls.append("remove")
        self.on_removal()
        for each in partitions:
            self.following.pop(each, None)
            self.failed.discard(each)
        return {}

    def log_start_moved(self, partition: TopicPartition, /) -> None:
        self.calls.append(f"log start of {partition}")

    def add_failed_partition(self, partition: TopicPartition, /) -> None:
        self.failed.add(partition)

    def followed_by(self, partition: TopicPartition, /) -> int:
        return int(partition in self.following)

    async def shutdown_idle_fetchers(self) -> None:
        await trio.lowlevel.checkpoint()

    async def resize(self, num_fetchers: int, /) -> None:
        self.calls.append(f"resize to {num_fetchers}")
        await trio.lowlevel.checkpoint()

    async def close_all(self) -> None:
        self.following.clear()
        await trio.lowlevel.checkpoint()


@attrs.define(eq=False)
class Controller:
    """Agrees to every proposal, after a while; or refuses with `error`."""

    error: ErrorCode = ErrorCode.NONE
    proposals: list[IsrProposal] = attrs.field(factory=list)

    async def submit(
        self, partition: TopicPartition, topic_id: TopicId, proposal: IsrProposal
    ) -> IsrAnswer:
        self.proposals.append(proposal)
        await CLOCK.sleep(0.01)
        if self.error is not ErrorCode.NONE:
            return IsrAnswer(error=self.error)
        return IsrAnswer(
            leader_epoch=proposal.leader_epoch,
            partition_epoch=proposal.partition_epoch + 1,
            isr=proposal.broker_ids,
        )


@attrs.define(eq=False, kw_only=True)
class Node:
    """One broker with everything around its replica manager."""

    config: BrokerConfig = attrs.field(factory=lambda: BrokerConfig(node_id=LOCAL))
    file_system: FileSystem = attrs.field(factory=lambda: FaultyFileSystem(random.Random(1)))
    image: MetadataImage = attrs.field(
        factory=lambda: MetadataImage(brokers={each: broker(each) for each in (1, 2, 3)})
    )
    fetchers: Fetchers = attrs.field(factory=Fetchers)
    controller: Controller = attrs.field(factory=Controller)
    offload: Offload = inline
    clock: NodeClock = CLOCK
    directory_ids: Iterator[bytes] = attrs.field(
        factory=lambda: (bytes([number]) * 16 for number in range(1, 256))
    )
    events: list[Event] = attrs.field(factory=list)
    assigned: list[tuple[TopicId, int, bytes]] = attrs.field(factory=list)
    deletions: list[tuple[TopicPartition, DeletedSegments]] = attrs.field(factory=list)
    bugs: list[BaseException] = attrs.field(factory=list)
    metrics: MetricsRegistry = attrs.field(factory=lambda: MetricsRegistry(CLOCK.now))
    logs: LogManager = attrs.field(init=False)
    manager: ReplicaManager = attrs.field(init=False)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Node"]:
        """Started; killed at the end, unless the test has shut it down."""
        self.logs = LogManager(
            self.file_system,
            self.config.log_dirs,
            node_id=LOCAL,
            config=TopicConfig.from_overrides({}, self.config).log,
            producer_id_expiration_ms=self.config.producer_id_expiration_ms,
            new_directory_id=self.directory_ids.__next__,
            on_segments_deleted=lambda *deletion: self.deletions.append(deletion),
        )
        self.logs.startup()
        self.manager = assemble_replica_manager(
            broker_id=LOCAL,
            config=self.config,
            seams=Seams(
                clock=self.clock,
                chance=random.Random(1),
                transport=TcpTransport(),
                file_system=self.file_system,
                offload=self.offload,
            ),
            log_manager=self.logs,
            metadata=lambda: self.image,
            alter_partition=self.controller,
            make_fetcher_manager=lambda _replicas: self.fetchers,
            broker_epoch=lambda: epoch_of(LOCAL),
            metrics=self.metrics,
            assign_directory=lambda *place: self.assigned.append(place),
            sink=self.events.append,
            on_bug=self.bugs.append,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(self.manager.run)
            yield self
            nursery.cancel_scope.cancel()
        self.logs.close_uncleanly()
        assert self.bugs == []

    # Metadata.

    async def learn(
        self,
        *registrations: PartitionRegistration,
        topic: str = "topic",
        topic_id: TopicId = TOPIC_ID,
        configs: Mapping[str, str] | None = None,
        brokers: Iterable[BrokerRegistration] = (),
    ) -> None:
        """New metadata: the partitions of a topic, none of them if it is deleted."""
        topics = {name: each for name, each in self.image.topics.items() if name != topic}
        if registrations:
            topics[topic] = TopicImage(
                topic, topic_id, dict(enumerate(registrations)), configs or {}
            )
        old, self.image = (
            self.image,
            attrs.evolve(
                self.image,
                offset=self.image.offset + 1,
                topics=topics,
                topic_names_by_id={each.topic_id: name for name, each in topics.items()},
                brokers={**self.image.brokers, **{each.broker_id: each for each in brokers}},
            ),
        )
        delta = delta_between(old, self.image)
        await trio.lowlevel.checkpoint()  # the manager's own work has a turn of its own
        await self.manager.apply_metadata(self.image, delta)

    async def lead(
        self, *, isr: tuple[int, ...] = (LOCAL, REMOTE), min_insync_replicas: int = 1
    ) -> None:
        """Become leader of the topic's only partition."""
        await self.learn(
            registration(isr=isr), configs={"min.insync.replicas": str(min_insync_replicas)}
        )

    def state(self, topic_partition: TopicPartition = TP) -> ReplicaSnapshot:
        snapshot = self.manager.hosted.snapshot(topic_partition)
        assert snapshot is not None
        return snapshot

    # Requests.

    async def produce(
        self,
        values: int = 1,
        *,
        acks: int = 1,
        to: TopicPartition = TP,
        timeout_ms: int = 1000,
        records: memoryview | None = None,
    ) -> ProduceResult:
        results = await self.manager.produce.append(
            timeout_ms=timeout_ms,
            required_acks=acks,
            entries={to: batch(values) if records is None else records},
        )
        return results[to]

    async def fetch(self, params: FetchParams, **wanted: FetchInfo) -> Answers:
        """Fetch the partitions p0, p1, ... of the topic."""
        return await self.manager.fetch.fetch(
            params,
            [
                (TopicIdPartition(TOPIC_ID, "topic", int(name[1:])), info)
                for name, info in wanted.items()
            ],
        )

    async def follow(self, offset: Offset, *, replica: int = REMOTE) -> None:
        """A follower's fetch at `offset`, which does not wait."""
        await self.fetch(follower_params(replica), p0=FetchInfo(offset, log_start_offset=0))


@attrs.define(eq=False)
class Later(Generic[T]):
    """The result of a call that runs beside the test, and when it came."""

    call: Callable[[], Awaitable[T]]
    at: float = -1.0
    _result: list[T] = attrs.field(factory=list)

    async def run(self) -> None:
        self._result.append(await self.call())
        self.at = CLOCK.now()

    @property
    def done(self) -> bool:
        return bool(self._result)

    @property
    def result(self) -> T:
        return self._result[0]


@contextlib.asynccontextmanager
async def beside(call: Callable[[], Awaitable[T]]) -> AsyncIterator[Later[T]]:
    """Run `call` until it waits, then the body; afterwards wait for both."""
    later = Later(call)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(later.run)
        await CLOCK.sleep(0.05)
        yield later
