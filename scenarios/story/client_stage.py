"""The state that a story's clients act on, whatever its cluster is: what they sent and received.

    ClientStage          clients, what they asked, and the cluster as their commands see it
      Stage              the simulated cluster, its world and its checkers (`stage`)
      KafkaStage         Apache Kafka's brokers as processes (`scenarios.kafka.stage`)

What is sent in the background belongs to a nursery that ends before the cluster does.
"""

import abc
import contextlib
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Protocol, TypeVar

import attrs
import trio

from replication.cluster.interface import NotInTimeError
from replication.errors import ErrorCode, KafkaError, PeerUnavailableError, UnderstudyError
from replication.events import Event
from replication.metadata.rules.image import MetadataImage, PartitionRegistration
from replication.net.seams import NodeClock
from replication.wire.apis import ApiKey
from scenarios.checkers.admin_requests import AdminRequests
from scenarios.story.script import ScriptError
from scenarios.world.client import (
    RETRY_SECONDS,
    Address,
    NoAnswer,
    ProducerSequence,
    ReadRecord,
    SentRecords,
    StoryClient,
)
from scenarios.world.cluster import PATIENCE_SECONDS
from scenarios.world.retrying import IdempotentLane, StoryConsumer, deliver
from scenarios.world.trace import TopicMadeAgain
from storage.errors import StorageError
from storage.filesystem import FileSystem
from storage.types import TopicPartition

T = TypeVar("T")

ANSWER_SECONDS = 10.0
UNKNOWN_TOPIC = NoAnswer("its topic was deleted meanwhile, and made again")


@attrs.define(eq=False)
class IdempotentProducer:
    """The producer id, epoch and next sequences of an idempotent producer."""

    producer_id: int
    epoch: int = 0
    next_sequences: dict[TopicPartition, int] = attrs.field(factory=dict)


@attrs.define(eq=False)
class BackgroundProducer:
    """The task of a producer in the background, and its progress."""

    records: int
    acked: int = 0
    longest: float = 0.0  # seconds from a record's first attempt to its ack
    gave_up: str | None = None

    @property
    def done(self) -> bool:
        return self.gave_up is not None or self.acked == self.records


class StoryCluster(Protocol):
    """The part of a cluster that the commands of clients use."""

    @property
    def clock(self) -> NodeClock: ...

    @property
    def names(self) -> list[str]: ...

    @property
    def broker_names(self) -> list[str]: ...

    @property
    def image(self) -> MetadataImage: ...

    @property
    def has_quorum(self) -> bool: ...

    def is_running(self, name: str) -> bool: ...

    def partition(self, topic_partition: TopicPartition) -> PartitionRegistration | None: ...

    def leader(self, topic_partition: TopicPartition) -> str | None: ...

    def disks(self) -> FileSystem:
        """Return the disks of all nodes, to be read."""

    def log_directories(self, name: str) -> list[str]:
        """Return the paths of a node's log directories in `disks`."""

    async def until(
        self,
        predicate: Callable[[], bool],
        *,
        what: str,
        seconds: float = ...,
        why: Callable[[], str] | None = None,
    ) -> None: ...

    async def start(self, name: str) -> None: ...

    async def kill(self, name: str) -> None: ...

    async def stop(self, name: str) -> None: ...


class LinkFaults(Protocol):
    """The faults of links, each known by the names of its ends (`scenarios.world.network`)."""

    def cut(self, a: str, b: str, *, one_way: bool = False) -> None: ...

    def hold(self, a: str, b: str, api: ApiKey, *, after: int = 0) -> None: ...

    def heal(self, a: str, b: str, *, one_way: bool = False) -> None: ...

    def heal_all(self) -> None: ...

    def tear(self, a: str, b: str, api: ApiKey | None = None) -> None: ...

    def set_delay(
        self, a: str, b: str, *, least: float, mean_extra: float, one_way: bool = False
    ) -> None: ...


@attrs.define(eq=False, kw_only=True, repr=False)
class ClientStage(abc.ABC):
    """The state of the clients of one story."""

    batches: list[SentRecords] = attrs.field(factory=list, init=False)
    accounted: dict[TopicPartition, list[ReadRecord]] = attrs.field(factory=dict, init=False)
    """The records at the last `ledger` command."""
    producers: dict[str, IdempotentProducer] = attrs.field(factory=dict, init=False)
    work: dict[str, BackgroundProducer] = attrs.field(factory=dict, init=False)
    consumers: dict[TopicPartition, StoryConsumer] = attrs.field(factory=dict, init=False)
    trimmed: set[str] = attrs.field(factory=set, init=False)
    """The topics of which records were deleted on request."""
    deleted: dict[str, float] = attrs.field(factory=dict, init=False)
    """The topics that were deleted on request, and when."""
    compacted: set[str] = attrs.field(factory=set, init=False)
    """The topics that keep only the last record of each key."""
    remade: set[str] = attrs.field(factory=set, init=False)
    """The topics that replaced a deleted one of the same name."""
    commits: list[str | None] = attrs.field(factory=list, init=False)
    """The answers to commits in the background, None for one that is not answered yet."""
    requests: AdminRequests = attrs.field(factory=AdminRequests, init=False)
    """The requests for topics, which the metadata must show."""
    _background: trio.Nursery | None = attrs.field(default=None, init=False)
    _starting_or_stopping: list[str] = attrs.field(factory=list, init=False)
    _idempotent_lanes: dict[tuple[str, TopicPartition], IdempotentLane] = attrs.field(
        factory=dict, init=False
    )
    _waiting: list[SentRecords] = attrs.field(factory=list, init=False)
    _of_unknown_topic: list[SentRecords] = attrs.field(factory=list, init=False)
    _of_former_topics: list[SentRecords] = attrs.field(factory=list, init=False)
    _client: StoryClient | None = attrs.field(default=None, init=False)

    @property
    @abc.abstractmethod
    def cluster(self) -> StoryCluster:
        """The cluster of the story; ScriptError before its first command."""

    @property
    def client(self) -> StoryClient:
        self.cluster  # noqa: B018 - its error is the better one
        assert self._client is not None, "a client comes with the cluster"
        return self._client

    @abc.abstractmethod
    async def open(
        self, *, brokers: int, controllers: int, combined: bool, properties: dict[str, str]
    ) -> None:
        """Open the cluster of the story."""

    @abc.abstractmethod
    async def until_led(self, partition: TopicPartition) -> None:
        """Wait until a running broker leads the partition and every running broker knows it."""

    @abc.abstractmethod
    def is_equal(self, partition: TopicPartition) -> bool:
        """Return whether the replicas in sync have the same records."""

    # Faults.

    @property
    @abc.abstractmethod
    def network(self) -> LinkFaults:
        """The links between nodes, and between them and clients."""

    @property
    def programs_running(self) -> Collection[str]:
        """The names of the machines on which clients of ours run."""
        return ()

    async def kill(self, name: str) -> None:
        """Kill a node, or a client of ours."""
        await self.cluster.kill(name)

    @abc.abstractmethod
    def pause(self, name: str) -> None:
        """Freeze a node as SIGSTOP would."""

    @abc.abstractmethod
    def resume(self, name: str) -> None:
        """Let a frozen node continue."""

    # What a watcher of the cluster checks; most clusters have none.

    def look(self) -> None:  # noqa: B027 - most have no watcher
        """Raise the violation that the watcher has found, if there is one."""

    def judge_answered(self) -> None:  # noqa: B027 - most have no watcher
        """Check that the metadata has what administrators were answered."""

    def requests_unclean(self, partition: TopicPartition) -> None:  # noqa: B027 - most have no watcher
        """Note that an unclean election was requested."""

    def tell(self, event: Event) -> None:  # noqa: B027 - most have no watcher
        """Report a fault that came from outside to the watcher."""

    def why_out_of_sync(self, partition: TopicPartition) -> str:
        """Return why replicas are not in sync, as far as that can be seen."""
        del partition
        return ""

    # Starts and stops.

    def start_or_stop_in_background(self, name: str, way: Callable[[str], Awaitable[None]]) -> None:
        """Start or stop a node in the background; if that fails, the node stays down."""

        async def go() -> None:
            try:
                await way(name)
            except (UnderstudyError, StorageError, OSError):
                self.look()  # a violation is the better error
            finally:
                self._starting_or_stopping.remove(name)

        assert self._background is not None, "a cluster's story has a background"
        self._starting_or_stopping.append(name)
        self._background.start_soon(go)

    def stays(self, name: str) -> bool:
        """Return whether a node is neither starting nor stopping."""
        return name not in self._starting_or_stopping

    async def until_none_starts_or_stops(self) -> bool:
        """Wait until no node is starting or stopping; return False if no majority of the controllers
        is up, which they may wait for.
        """
        cluster = self.cluster
        await cluster.until(
            lambda: not self._starting_or_stopping or not cluster.has_quorum,
            what="every node is up, or down",
        )
        return cluster.has_quorum

    async def until_known(self, partition: TopicPartition) -> None:
        """Wait until a broker knows the partition. That none does is a failure of its own, and not
        one of its replicas, of which there are none.
        """
        cluster = self.cluster
        await cluster.until(
            lambda: cluster.partition(partition) is not None, what=f"a broker knows {partition}"
        )

    def ask_in_background(self, ask: Callable[[], Awaitable[object]]) -> None:
        """Ask in the background, and ignore Kafka's errors."""

        async def asking() -> None:
            with contextlib.suppress(KafkaError, PeerUnavailableError):
                await ask()

        assert self._background is not None, "a cluster's story has a background"
        self._background.start_soon(asking)

    # Sending.

    def new_batch(
        self, partition: TopicPartition, values: tuple[str, ...], acks: int
    ) -> SentRecords:
        known = {value for batch in self.batches for value in batch.values}
        if known & set(values) or len(set(values)) < len(values):
            raise ScriptError("no value is produced twice: the ledger tells records by them")
        batch = SentRecords(partition, values, acks)
        self.batches.append(batch)
        return batch

    def waits_for(self, batch: SentRecords) -> None:
        """Let the command `answers` report this batch."""
        self._waiting.append(batch)

    def sent_to(self, partition: TopicPartition) -> list[SentRecords]:
        """Return the batches sent to the present topic of that name.

        A batch that was on its way when the topic was created counts as unanswered: it may be in
        the former topic or in this one.
        """
        return [
            attrs.evolve(batch, outcome=UNKNOWN_TOPIC) if batch in self._of_unknown_topic else batch
            for batch in self.batches
            if batch.partition == partition and batch not in self._of_former_topics
        ]

    def sent_to_former_topic(self, partition: TopicPartition) -> list[SentRecords]:
        """Return the batches that a former topic of that name acked and that were sent once."""
        return [batch for batch in self._of_former_topics if batch.partition == partition]

    def has_unknown_topic(self, batch: SentRecords) -> bool:
        return batch.outcome is UNKNOWN_TOPIC

    def made_again(self, topic: str) -> None:
        """Record that a new topic has a deleted one's name, and that every running broker knows it."""
        gone_at = self.deleted.pop(topic)
        self.remade.add(topic)
        known = [*self._of_unknown_topic, *self._of_former_topics]
        for batch in self.batches:
            if batch.partition.topic == topic and batch not in known:
                over = batch.acked and batch.attempts <= 1 and batch.answered_at < gone_at
                (self._of_former_topics if over else self._of_unknown_topic).append(batch)
        for partition in [each for each in self.consumers if each.topic == topic]:
            del self.consumers[partition]
        self.tell(TopicMadeAgain(topic=topic))

    async def put_in_sequence(
        self,
        batch: SentRecords,
        name: str,
        *,
        epoch: int | None = None,
        sequence: int | None = None,
    ) -> None:
        """Give a batch the next sequence of an idempotent producer, unless `epoch` or `sequence`
        say otherwise.
        """
        producer = self.producers.get(name)
        if producer is None:
            producer_id = await self.retry_until_answered(self.client.init_producer_id)
            producer = self.producers[name] = IdempotentProducer(producer_id)
        if epoch is not None and epoch != producer.epoch:
            producer.epoch = epoch
            producer.next_sequences.clear()
        if sequence is None:
            sequence = producer.next_sequences.get(batch.partition, 0)
        producer.next_sequences[batch.partition] = sequence + len(batch.values)
        batch.sequence = ProducerSequence(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
        )

    def deliver_in_background(
        self, batch: SentRecords, name: str | None, *, timeout_ms: int, delivery_timeout_ms: int
    ) -> None:
        """Send a batch in the background until it is answered, in the lane of its idempotent
        producer if it has one.
        """
        assert self._background is not None, "a cluster's story has a background"
        send = partial(deliver, self.client)
        if name is not None:
            at = name, batch.partition
            if at not in self._idempotent_lanes:
                self._idempotent_lanes[at] = IdempotentLane(self.client, batch.partition)
            send = partial(self._idempotent_lanes[at].send)
        self.waits_for(batch)
        self._background.start_soon(
            partial(send, batch, timeout_ms=timeout_ms, delivery_timeout_ms=delivery_timeout_ms)
        )

    def send_in_background(
        self, batch: SentRecords, *, timeout_ms: int, to: Address | None = None
    ) -> None:
        assert self._background is not None, "a cluster's story has a background"
        batch.outcome = None
        self.waits_for(batch)
        self._background.start_soon(partial(self.client.send, batch, timeout_ms=timeout_ms, to=to))

    # Reading.

    async def retry_until_answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the answer of `ask`; repeat it while the leader or the log start has just moved.

        The log start may have been read before retention deleted what was there.
        """
        with self.cluster.clock.move_on_after(PATIENCE_SECONDS):
            while True:
                try:
                    return await ask()
                except KafkaError as error:
                    if not (error.retriable or error.code is ErrorCode.OFFSET_OUT_OF_RANGE):
                        raise
                await self.cluster.clock.sleep(RETRY_SECONDS)
        raise NotInTimeError(f"no answer within {PATIENCE_SECONDS:g} virtual seconds")

    async def repeat_until(
        self, ask: Callable[[], Awaitable[object]], *, until: Callable[[], bool]
    ) -> None:
        """Ask again and again, whatever the answer, until the change has happened. A broker whose
        power fails closes no connection: its answer is not waited for.
        """
        clock = self.cluster.clock
        with clock.move_on_after(PATIENCE_SECONDS):
            while not until():
                with (
                    contextlib.suppress(KafkaError, PeerUnavailableError),
                    clock.move_on_after(ANSWER_SECONDS),
                ):
                    await ask()
                await clock.sleep(RETRY_SECONDS)
            return
        raise NotInTimeError(f"not within {PATIENCE_SECONDS:g} virtual seconds, asked again")

    def consumer(self, partition: TopicPartition) -> StoryConsumer:
        """Return the consumer that polls a partition."""
        if partition not in self.consumers:
            self.consumers[partition] = StoryConsumer(client=self.client, partition=partition)
        return self.consumers[partition]

    async def answers(self) -> list[SentRecords]:
        """Return the batches sent in the background, once all of them have an outcome."""
        waiting, self._waiting = self._waiting, []
        await self.cluster.until(
            lambda: all(batch.outcome is not None for batch in waiting),
            what="every batch is answered",
        )
        return waiting
