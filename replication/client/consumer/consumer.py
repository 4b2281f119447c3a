"""A consumer for trio, after KafkaConsumer.

    async with Consumer("t", bootstrap_servers="localhost:9092", auto_offset_reset="earliest",
                        group_id="g") as consumer:
        async for record in consumer:                    one by one, for as long as it takes
            ...
        records = await consumer.poll(timeout_ms=500)    what there is, up to max.poll.records

Rule 1: a record is handed over once its position has moved, and nothing awaits between the
two. A consumer that is cancelled at any checkpoint has lost no record. Positions are what is
committed, so nothing is committed that was not handed over.

Rule 2: one task reads; another may `wakeup` it, ask for positions, pause, seek and commit.

Rule 3: leaving the block commits the positions (`enable.auto.commit`) and leaves the group. A
block that is left by an exception or cancelled does not commit: the record in hand comes again.

Rule 4: a consumer without topics waits for `subscribe` or `assign`.

The file is longer than others because the class is all that programs see of a consumer: each
method hands its work to one of the parts (`replication.client.consumer.assembly`).
"""

import re
import sys
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import trio

from replication.client.arguments import as_partition, as_partitions, list_of_names
from replication.client.consumer.assembly import Parts, assemble
from replication.client.consumer.completed_fetch import ReadSettings
from replication.client.consumer.config import ConsumerConfig
from replication.client.consumer.hooks import (
    ConsumerInterceptor,
    ConsumerRebalanceListener,
    Interceptors,
)
from replication.client.consumer.poll_loop import PollLoop
from replication.client.consumer.position import (
    EARLIEST,
    LATEST,
    FetchPosition,
    OffsetResetStrategy,
)
from replication.client.consumer.records import (
    AnyDeserializer,
    ConsumerRecord,
    ConsumerRecords,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    deserialize_function,
)
from replication.client.consumer.subscription import SubscriptionPattern, SubscriptionState
from replication.client.errors import IllegalStateError, KafkaTimeoutError
from replication.client.metadata import Metadata
from replication.client.network_client import NetworkClient
from replication.client.offsets import ConsumerGroupMetadata, as_offset
from replication.extras import extra
from replication.metrics import MetricName
from replication.net import production_seams
from replication.net.seams import Seams
from replication.wire import list_offsets
from storage.types import Offset, TopicPartition

if TYPE_CHECKING:
    from replication.client.consumer.group.commits import OnCommitted
    from replication.client.consumer.group.coordinator import ConsumerCoordinator

AnyPartition: TypeAlias = TopicPartition | tuple[str, int]
Committed: TypeAlias = Mapping[AnyPartition, Offset | OffsetAndMetadata]

# One task may be handed so many records before it lets others run.
_YIELD_RECORDS = 128
_CLOSE_TIMEOUT_MS = 30_000
# The time for commits and goodbyes when the program has failed.
_FAREWELL_MS = 1_000


class Consumer:
    """A consumer of records, open inside its `async with` block.

    Keys and values are bytes, or what the deserializers make of them. `config` holds Kafka's keys
    with underscores: `group_id="g"`, `auto_offset_reset="earliest"`, `max_poll_records=100`.
    ConfigError if one is wrong.
    """

    config: ConsumerConfig
    _open: Parts | None
    _stack: AsyncExitStack

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        key_deserializer: AnyDeserializer = None,
        value_deserializer: AnyDeserializer = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        seams: Seams | None = None,
        **config: Any,
    ) -> None:
        self.config = ConsumerConfig.of(bootstrap_servers=bootstrap_servers, **config).named()
        self._subscriptions = SubscriptionState(
            self.config.reset_strategy, self.config.exclude_internal_topics
        )
        self._read_settings = ReadSettings(
            check_crcs=self.config.check_crcs,
            read_committed=self.config.read_committed,
            key_deserializer=deserialize_function(key_deserializer),
            value_deserializer=deserialize_function(value_deserializer),
        )
        self._interceptors = Interceptors(interceptors)
        self._seams = production_seams() if seams is None else seams
        self._listener = ConsumerRebalanceListener()
        self._open = None
        self._was_opened = self._reading = False
        self._since_yield = 0
        if topics:
            self.subscribe(topics)

    # -- opening and closing

    async def __aenter__(self) -> Self:
        if self._was_opened:
            raise IllegalStateError("a consumer is opened once")
        self._was_opened = True
        async with AsyncExitStack() as stack:
            nursery = await stack.enter_async_context(trio.open_nursery())
            self._open = assemble(
                config=self.config,
                read_settings=self._read_settings,
                network=NetworkClient(config=self.config, seams=self._seams, nursery=nursery),
                subscriptions=self._subscriptions,
                interceptors=self._interceptors,
                listener=self._listener,
                wake=self._wake,
            )
            nursery.start_soon(self._wake_for_metadata, self._open.metadata)
            stack.callback(nursery.cancel_scope.cancel)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            timeout_ms = _CLOSE_TIMEOUT_MS if error is None else _FAREWELL_MS
            await self._say_goodbye(self._opened, commits=error is None, timeout_ms=timeout_ms)
        finally:
            self._open = None
            self._interceptors.close()
            # An error of the block is raised by the block, not by the nursery.
            await self._stack.__aexit__(None, None, None)

    async def _say_goodbye(self, opened: Parts, *, commits: bool, timeout_ms: float) -> None:
        """Commit and leave the group, shielded: other members wait for our partitions."""
        clock = self._seams.clock
        try:
            with trio.CancelScope(shield=True), clock.move_on_after(timeout_ms / 1000):
                if opened.coordinator is not None:
                    await opened.coordinator.close(commits=commits, timeout_ms=timeout_ms)
                await opened.fetcher.close()
        finally:
            opened.network.close()

    async def _wake_for_metadata(self, metadata: Metadata) -> None:
        while True:
            await metadata.wait_for_news()
            self._wake()

    def _wake(self) -> None:
        if self._open is not None:
            self._open.loop.wake()

    @property
    def _opened(self) -> Parts:
        if self._open is None:
            raise IllegalStateError("a consumer is used inside `async with`")
        return self._open

    @property
    def _coordinator(self) -> "ConsumerCoordinator":
        if self.config.group_id is None:
            raise IllegalStateError("this needs a group.id")
        coordinator = self._opened.coordinator
        assert coordinator is not None, "a consumer with a group.id has a coordinator"
        return coordinator

    def _timeout(self, timeout_ms: float | None) -> float:
        return self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms

    # -- subscriptions and assignments

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Read these topics, or all whose whole name matches `pattern`, as a member of the group.

        The consumer matches the names itself; a `SubscriptionPattern` is matched by the brokers,
        which needs `group_protocol="consumer"`. The next polls join the group; `listener` is
        called when partitions come and go.
        """
        topics = list_of_names(topics)
        if self.config.group_id is None:
            raise IllegalStateError("subscribing needs a group.id; without one, assign partitions")
        if isinstance(pattern, SubscriptionPattern):
            if not self.config.uses_consumer_protocol:
                raise IllegalStateError("a SubscriptionPattern needs group.protocol=consumer")
            self._subscriptions.subscribe_server_pattern(pattern)
        elif pattern is not None:
            self._subscriptions.subscribe_pattern(re.compile(pattern))
        else:
            self._subscriptions.subscribe(topics)
        self._listener = listener or ConsumerRebalanceListener()
        if self._open is not None:
            self._coordinator.listener = self._listener
        self._new_subscription()

    def assign(self, partitions: Collection[AnyPartition]) -> None:
        """Read these partitions, in no group; those that stay keep their positions."""
        if self._subscriptions.assign_from_user(as_partitions(partitions)):
            self._new_subscription()

    async def unsubscribe(self) -> None:
        """Read nothing, and leave the group; this commits nothing."""
        await trio.lowlevel.checkpoint()
        if self._open is not None and self._open.coordinator and self._subscriptions.uses_group:
            await self._open.coordinator.leave("it has unsubscribed")
        self._subscriptions.unsubscribe()
        self._new_subscription()

    def _new_subscription(self) -> None:
        if self._open is not None:
            parts = self._open
            parts.fetcher.requests.buffer.retain_all(set(self._subscriptions.assigned))
            parts.metadata.request_update()
            self._wake()

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that are being read now."""
        return set(self._subscriptions.assigned)

    def subscription(self) -> frozenset[str]:
        """Return the topics that were subscribed to, or that match the pattern so far.

        The topics that brokers match with a `SubscriptionPattern` are not among them.
        """
        return self._subscriptions.topics

    # -- reading

    async def poll(
        self, timeout_ms: float = 0, *, max_records: int | None = None
    ) -> ConsumerRecords:
        """Return the records there are, or that come within `timeout_ms`.

        At most `max_records`, or max.poll.records. The result is empty if there were none, or
        only aborted ones. KafkaError if reading cannot go on; WakeupError after `wakeup`.
        """
        with self._reads() as loop:
            collected = await loop.collect(timeout_ms=timeout_ms, most=max_records)
            return self._interceptors.on_consume(collected.handed_over())

    async def getmany(
        self, *partitions: AnyPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> Mapping[TopicPartition, list[ConsumerRecord]]:
        """Return what `poll` returns, by partition; with `partitions`, only their records."""
        only = set(as_partitions(partitions)) or None
        with self._reads() as loop:
            collected = await loop.collect(timeout_ms=timeout_ms, most=max_records, only=only)
            return self._interceptors.on_consume(collected.handed_over()).by_partition

    async def poll_arrow(
        self, timeout_ms: float = 0, *, columns: Sequence[str] | None = None
    ) -> Mapping[TopicPartition, Any]:
        """Return what has been fetched, or comes within `timeout_ms`, as a `pyarrow.Table` each.

        It is for programs that read more records than Python makes objects of.
        `storage.batch.columns.columnar` names the columns. Keys and values are bytes that point
        into what was received; neither deserializers nor interceptors see them. Positions and
        commits are those of `poll`. Raises as `poll` does, KeyError for an unknown column, and
        MissingExtraError without the `arrow` extra.
        """
        with extra("arrow", "poll_arrow"):
            from storage.batch.columns.columnar import COLUMNS, schema_of, table  # noqa: PLC0415 - numpy, pyarrow

        wanted = COLUMNS if columns is None else columns
        schema_of(wanted)  # raises before anything is taken
        with self._reads() as loop:
            collected = await loop.collect(
                timeout_ms=timeout_ms,
                most=sys.maxsize,
                take=lambda fetch, _: fetch.take_columns(wanted),
            )
        return {tp: table(batches, wanted) for tp, batches in collected.records.items()}

    async def getone(self, *partitions: AnyPartition) -> ConsumerRecord:
        """Return the next record, however long it takes to come."""
        only = set(as_partitions(partitions)) or None
        with self._reads() as loop:
            await self._let_others_run()
            while True:
                collected = loop.collect_ready(only)
                if collected is None:
                    collected = await loop.collect(timeout_ms=None, most=1, only=only)
                for record in self._interceptors.on_consume(collected.handed_over()):
                    return record

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self

    async def __anext__(self) -> ConsumerRecord:
        return await self.getone()

    def wakeup(self) -> None:
        """End the present wait of a poll, or else the next one, with a WakeupError."""
        self._opened.loop.wake_up()

    async def _let_others_run(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        self._since_yield += 1
        if self._since_yield >= _YIELD_RECORDS:
            self._since_yield = 0
            await trio.lowlevel.checkpoint()

    @contextmanager
    def _reads(self) -> Iterator[PollLoop]:
        """Let one task read at a time (KafkaConsumer.acquire)."""
        loop = self._opened.loop
        if self._reading:
            raise IllegalStateError("another task is reading from this consumer")
        if self._subscriptions.has_none:
            raise IllegalStateError("subscribe to topics or assign partitions first")
        self._reading = True
        try:
            yield loop
        finally:
            self._reading = False

    # -- positions

    async def position(self, partition: AnyPartition, *, timeout_ms: float | None = None) -> Offset:
        """Return the offset that is read next; KafkaTimeoutError if it is not known in time."""
        tp = as_partition(partition)
        self._subscriptions.state(tp)
        await trio.lowlevel.checkpoint()
        timeout_ms = self._timeout(timeout_ms)
        if not await self._opened.loop.until(
            lambda: self._subscriptions.valid_position(tp) is not None, timeout_ms=timeout_ms
        ):
            raise KafkaTimeoutError(f"no position of {tp} within {timeout_ms:.0f} ms")
        position = self._subscriptions.valid_position(tp)
        assert position is not None, "it was waited for"
        return position.offset

    def seek(self, partition: AnyPartition, offset: Offset | OffsetAndMetadata) -> None:
        """Read from `offset` on; with an epoch, the leader is asked whether its log still has it."""
        tp = as_partition(partition)
        to = as_offset(offset)
        if to.offset < 0:
            raise IllegalStateError(f"seek to {to.offset}: an offset is at least 0")
        metadata = self._opened.metadata
        if metadata.view.note_epoch(tp, to.leader_epoch):
            metadata.request_update()
        position = FetchPosition(to.offset, to.leader_epoch, metadata.view.leader(tp))
        self._subscriptions.seek(tp, position)
        self._wake()

    def seek_to_beginning(self, *partitions: AnyPartition) -> None:
        """Seek to where each log begins, at the next poll; without arguments, in all partitions."""
        self._seek_by(EARLIEST, partitions)

    def seek_to_end(self, *partitions: AnyPartition) -> None:
        """Seek to where each log ends, at the next poll; without arguments, in all partitions."""
        self._seek_by(LATEST, partitions)

    def _seek_by(self, strategy: OffsetResetStrategy, partitions: Sequence[AnyPartition]) -> None:
        for tp in as_partitions(partitions) or self._subscriptions.assigned:
            self._subscriptions.request_reset(tp, strategy)
        self._wake()

    def pause(self, *partitions: AnyPartition) -> None:
        """Hand over no records of these partitions until `resume`; buffered ones are kept."""
        for tp in as_partitions(partitions):
            self._subscriptions.pause(tp)

    def resume(self, *partitions: AnyPartition) -> None:
        """Fetch these partitions again."""
        for tp in as_partitions(partitions):
            self._subscriptions.resume(tp)
        self._wake()

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that `pause` has stopped."""
        return self._subscriptions.paused

    # -- the group; also one that it is no member of, when partitions are assigned by hand

    async def commit(
        self, offsets: Committed | None = None, *, timeout_ms: float | None = None
    ) -> None:
        """Commit `offsets`, or the positions of all partitions.

        CommitFailedError if the group has gone on without this member, RebalanceInProgressError
        if a poll has to join first, KafkaTimeoutError if there is no answer in time.
        """
        coordinator = self._coordinator
        wanted = coordinator.consumed() if offsets is None else _offsets(offsets)
        await coordinator.commits.commit(wanted, timeout_ms=self._timeout(timeout_ms))

    def commit_soon(
        self,
        offsets: Committed | None = None,
        callback: "OnCommitted" = lambda _offsets, _error: None,
    ) -> None:
        """Commit once, beside the program (commitAsync); `callback` gets the outcome."""
        coordinator = self._coordinator
        wanted = coordinator.consumed() if offsets is None else _offsets(offsets)
        coordinator.commits.commit_soon(wanted, callback)

    async def committed(
        self, partition: AnyPartition, *, timeout_ms: float | None = None
    ) -> OffsetAndMetadata | None:
        """Return what the group has committed of a partition; None if nothing."""
        tp, coordinator = as_partition(partition), self._coordinator
        timeout_ms = self._timeout(timeout_ms)
        with self._seams.clock.move_on_after(timeout_ms / 1000):
            return (await coordinator.commits.committed([tp]))[tp]
        raise KafkaTimeoutError(f"no committed offset of {tp} within {timeout_ms:.0f} ms")

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the identity of this member, for a producer's transaction.

        A member that the group goes on without keeps its last identity until it has joined again: so
        the offsets of what it has read before are refused (KIP-447).
        """
        member = self._coordinator.protocol.membership
        generation_id, member_id = member.last_joined
        return ConsumerGroupMetadata(
            group_id=member.group_id,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=member.group_instance_id,
        )

    def enforce_rebalance(self, reason: str = "the program wants it") -> None:
        """Join the group again at the next poll.

        With `group_protocol="consumer"` there is nothing to join again: the coordinator is only
        asked at once whether it has another assignment.
        """
        self._coordinator.protocol.membership.request_rejoin(reason)
        self._wake()

    # -- logs and the cluster, whether or not the consumer reads them

    async def beginning_offsets(
        self, partitions: Collection[AnyPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, Offset]:
        """Return the offset at which each log begins."""
        return await self._bounds(partitions, list_offsets.EARLIEST, timeout_ms)

    async def end_offsets(
        self, partitions: Collection[AnyPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, Offset]:
        """Return the offset at which each log ends for this consumer.

        That is the high watermark, or the last stable offset with `read_committed`.
        """
        return await self._bounds(partitions, list_offsets.LATEST, timeout_ms)

    async def offsets_for_times(
        self, timestamps: Mapping[AnyPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after each time in milliseconds; None if there is none."""
        wanted = {as_partition(tp): at for tp, at in timestamps.items()}
        for tp, at in wanted.items():
            if at < 0:
                raise IllegalStateError(f"offsets_for_times: {tp} at {at}, before time began")
        return await self._opened.offset_fetcher.offsets_for(
            wanted, timeout_ms=self._timeout(timeout_ms)
        )

    async def _bounds(
        self, partitions: Collection[AnyPartition], timestamp: int, timeout_ms: float | None
    ) -> dict[TopicPartition, Offset]:
        found = await self._opened.offset_fetcher.offsets_for(
            dict.fromkeys(as_partitions(partitions), timestamp),
            timeout_ms=self._timeout(timeout_ms),
        )
        return {tp: each.offset for tp, each in found.items() if each is not None}

    def highwater(self, partition: AnyPartition) -> Offset | None:
        """Return the high watermark that the last fetch response named."""
        return self._subscriptions.state(as_partition(partition)).high_watermark

    def current_lag(self, partition: AnyPartition) -> int | None:
        """Return the number of records between the position and the end of the last fetch."""
        return self._subscriptions.lag(
            as_partition(partition), read_committed=self.config.read_committed
        )

    async def partitions_for(
        self, topic: str, *, timeout_ms: float | None = None
    ) -> list[TopicPartition]:
        """Return the topic's partitions; none if it is not known in time."""
        parts = self._opened
        metadata, transient = parts.metadata, parts.offset_fetcher.transient_topics
        added = {topic} - transient
        transient |= added
        try:
            with self._seams.clock.move_on_after(self._timeout(timeout_ms) / 1000):
                while metadata.view.partitions_of(topic) is None:
                    metadata.request_update()
                    await metadata.wait_for_news()
                    metadata.raise_for_topics([topic])
        finally:
            transient -= added
        return [TopicPartition(topic, each) for each in metadata.view.partitions_of(topic) or ()]

    def metrics(self) -> dict[MetricName, float]:
        """Return this consumer's metrics under Kafka's names."""
        return dict(self._opened.metrics.snapshot())


def _offsets(given: Committed) -> dict[TopicPartition, OffsetAndMetadata]:
    return {as_partition(tp): as_offset(each) for tp, each in given.items()}
