"""A consumer for trio, after KafkaConsumer.

    async with Consumer("t", bootstrap_servers="localhost:9092", auto_offset_reset="earliest",
                        group_id="g") as consumer:
        async for record in consumer:                    one by one, for as long as it takes
            ...
        records = await consumer.poll(timeout_ms=500)    what there is, up to max.poll.records

Rule 1: a record is handed over once its position has moved, and nothing awaits between the
two. Cancelled at any checkpoint, a consumer has lost no record; what is committed are
positions, so it has committed nothing that was not handed over.

Rule 2: one task reads; another may `wakeup` it, ask where it is, pause, seek and commit.

Rule 3: leaving the block commits (`enable.auto.commit`) what was handed over, and leaves the
group. Left by an exception or cancelled, it does not commit: the record in hand comes again.

Rule 4: a consumer without topics waits for `subscribe` or `assign`.
"""

import re
import sys
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import trio

from replication.client.arguments import as_partition, as_partitions, list_of_names
from replication.client.consumer.assembly import Assembly, Parts
from replication.client.consumer.config import ConsumerConfig
from replication.client.consumer.group.listener import ConsumerRebalanceListener
from replication.client.consumer.group_calls import GroupCalls
from replication.client.consumer.interceptors import ConsumerInterceptor, Interceptors
from replication.client.consumer.lookups import LogLookups
from replication.client.consumer.offset_reset import EARLIEST, LATEST
from replication.client.consumer.opened import AnyPartition
from replication.client.consumer.poll_loop import NoGroup, PollLoop
from replication.client.consumer.position import FetchPosition, OffsetResetStrategy
from replication.client.consumer.records import (
    AnyDeserializer,
    ConsumerRecord,
    ConsumerRecords,
    OffsetAndMetadata,
)
from replication.client.consumer.subscription import SubscriptionState
from replication.client.errors import IllegalStateError, KafkaTimeoutError
from replication.extras import extra
from replication.net import production_seams
from replication.net.seams import Seams
from storage.types import Offset, TopicPartition

if TYPE_CHECKING:
    from replication.client.consumer.group.coordinator import ConsumerCoordinator

# One task may be handed so many records before it lets others run.
_YIELD_RECORDS = 128
_CLOSE_TIMEOUT_MS = 30_000
# What a consumer whose program has failed still spends on its goodbyes.
_FAREWELL_MS = 1_000


class Consumer(GroupCalls, LogLookups):
    """Keys and values are bytes, or what the deserialisers make of them.

    `config` are Kafka's words, underscored: `group_id="g"`, `auto_offset_reset="earliest"`,
    `max_poll_records=100`. ConfigError where one is wrong.
    """

    _stack: AsyncExitStack
    _deserializers: tuple[AnyDeserializer, AnyDeserializer]
    _opened: bool
    _reading: bool
    _since_yield: int

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
        self._deserializers = key_deserializer, value_deserializer
        self._interceptors = Interceptors(interceptors)
        self._seams = production_seams() if seams is None else seams
        self._parts = self._loop = self._coordinator = None
        self._listener = ConsumerRebalanceListener()
        self._opened = self._reading = False
        self._since_yield = 0
        if topics:
            self.subscribe(topics)

    # -- opening and closing

    async def __aenter__(self) -> Self:
        if self._opened:
            raise IllegalStateError("a consumer is opened once")
        self._opened = True
        async with AsyncExitStack() as stack:
            nursery = await stack.enter_async_context(trio.open_nursery())
            self._assemble(nursery)
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
            await self._say_goodbye(commits=error is None, timeout_ms=timeout_ms)
        finally:
            self._parts = self._loop = self._coordinator = None
            self._interceptors.close()
            # What was raised in the block is its own, and none of the nursery's.
            await self._stack.__aexit__(None, None, None)

    async def _say_goodbye(self, *, commits: bool, timeout_ms: float) -> None:
        """Bounded, and not cut short by a cancellation: others wait for our partitions."""
        parts, clock = self._open_parts, self._seams.clock
        try:
            with trio.CancelScope(shield=True), clock.move_on_after(timeout_ms / 1000):
                if self._coordinator is not None:
                    await self._coordinator.close(commits=commits, timeout_ms=timeout_ms)
                await parts.fetcher.close()
        finally:
            parts.network.close()

    def _assemble(self, nursery: trio.Nursery) -> None:
        key_deserializer, value_deserializer = self._deserializers
        parts = Assembly(
            config=self.config,
            seams=self._seams,
            subscriptions=self._subscriptions,
            nursery=nursery,
            wake=self._wake,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
        ).parts()
        self._parts = parts
        if self.config.group_id is not None:
            self._coordinator = self._join_in(self.config.group_id, parts, nursery)
        self._loop = PollLoop(
            config=self.config,
            subscriptions=self._subscriptions,
            metadata=parts.metadata,
            fetcher=parts.fetcher,
            offset_fetcher=parts.offset_fetcher,
            collector=parts.collector,
            coordinator=self._coordinator or NoGroup(),
            clock=self._seams.clock,
        )
        nursery.start_soon(parts.metadata.run)
        nursery.start_soon(self._hear_news, parts)

    def _join_in(self, group_id: str, parts: Parts, nursery: trio.Nursery) -> "ConsumerCoordinator":
        # Who is in no group does not wait for all that groups need.
        from replication.client.consumer.group.assembly import GroupAssembly  # noqa: PLC0415

        coordinator = GroupAssembly(
            config=self.config,
            group_id=group_id,
            parts=parts,
            subscriptions=self._subscriptions,
            clock=self._seams.clock,
            nursery=nursery,
            wake=self._wake,
            on_committed=self._interceptors.on_commit,
        ).coordinator()
        coordinator.listener = self._listener
        return coordinator

    async def _hear_news(self, parts: Parts) -> None:
        while True:
            await parts.metadata.wait_for_news()
            self._wake()

    # -- what is read

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Read these topics, or all whose whole name matches `pattern`, as a member of the group.

        The next polls join it; `listener` is told what comes and goes.
        """
        topics = list_of_names(topics)
        if self.config.group_id is None:
            raise IllegalStateError("subscribing needs a group.id; without one, assign partitions")
        if pattern is not None:
            self._subscriptions.subscribe_pattern(re.compile(pattern))
        else:
            self._subscriptions.subscribe(topics)
        self._listener = listener or ConsumerRebalanceListener()
        if self._coordinator is not None:
            self._coordinator.listener = self._listener
        self._new_subscription()

    def assign(self, partitions: Collection[AnyPartition]) -> None:
        """Read these partitions, in no group; those that stay keep their positions."""
        if self._subscriptions.assign_from_user(as_partitions(partitions)):
            self._new_subscription()

    async def unsubscribe(self) -> None:
        """Read nothing, and leave the group; what was handed over is not committed by this."""
        await trio.lowlevel.checkpoint()
        if self._coordinator is not None and self._subscriptions.uses_group:
            await self._coordinator.leave("it has unsubscribed")
        self._subscriptions.unsubscribe()
        self._new_subscription()

    def _new_subscription(self) -> None:
        if self._parts is not None:
            self._parts.fetcher.requests.buffer.retain_all(set(self._subscriptions.assigned))
            self._parts.metadata.request_update()
            self._wake()

    def assignment(self) -> set[TopicPartition]:
        """What is being read now."""
        return set(self._subscriptions.assigned)

    def subscription(self) -> frozenset[str]:
        """The topics that were subscribed to, or that match the pattern so far."""
        return self._subscriptions.topics

    # -- reading

    async def poll(
        self, timeout_ms: float = 0, *, max_records: int | None = None
    ) -> ConsumerRecords:
        """What there is, or comes within `timeout_ms`: up to max.poll.records, or fewer.

        Empty where there was nothing, and where only aborted records were passed over.
        KafkaError where reading cannot go on; WakeupError after `wakeup`.
        """
        with self._reads() as loop:
            collected = await loop.collect(timeout_ms=timeout_ms, most=max_records)
            return self._interceptors.on_consume(collected.handed_over())

    async def getmany(
        self, *partitions: AnyPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> Mapping[TopicPartition, list[ConsumerRecord]]:
        """The same by partition; of `partitions` alone where any are named."""
        only = set(as_partitions(partitions)) or None
        with self._reads() as loop:
            collected = await loop.collect(timeout_ms=timeout_ms, most=max_records, only=only)
            return self._interceptors.on_consume(collected.handed_over()).by_partition

    async def poll_arrow(
        self, timeout_ms: float = 0, *, columns: Sequence[str] | None = None
    ) -> Mapping[TopicPartition, Any]:
        """All that has been fetched, or comes within `timeout_ms`, as a `pyarrow.Table` of each
        partition: for who reads more records than Python makes objects of.

        `storage.batch.columns.columnar` says which columns there are. Keys and values are bytes, which no
        deserialiser has seen, nor an interceptor; they point into what was received. Raises as
        `poll` does, KeyError where there is no such column, and MissingExtraError without the
        `arrow` extra; positions and commits are the same.
        """
        with extra("arrow", "poll_arrow"):
            from storage.batch.columns.columnar import COLUMNS, schema_of, table  # noqa: PLC0415 - numpy, pyarrow

        wanted = COLUMNS if columns is None else columns
        schema_of(wanted)  # before anything is taken
        with self._reads() as loop:
            collected = await loop.collect(
                timeout_ms=timeout_ms,
                most=sys.maxsize,
                take=lambda fetch, _: fetch.take_columns(wanted),
            )
        return {tp: table(batches, wanted) for tp, batches in collected.records.items()}

    async def getone(self, *partitions: AnyPartition) -> ConsumerRecord:
        """The next record, however long it takes to come."""
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
        """End the present wait of a poll, or else the next one, by a WakeupError."""
        self._open_loop.wake_up()

    async def _let_others_run(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        self._since_yield += 1
        if self._since_yield >= _YIELD_RECORDS:
            self._since_yield = 0
            await trio.lowlevel.checkpoint()

    @contextmanager
    def _reads(self) -> Iterator[PollLoop]:
        """By one task at a time (KafkaConsumer.acquire)."""
        loop = self._open_loop
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
        """The offset that is read next; KafkaTimeoutError where it is not known in time."""
        tp = as_partition(partition)
        self._subscriptions.state(tp)
        await trio.lowlevel.checkpoint()
        timeout_ms = self._timeout(timeout_ms)
        if not await self._open_loop.until(
            lambda: self._subscriptions.valid_position(tp) is not None, timeout_ms=timeout_ms
        ):
            raise KafkaTimeoutError(f"no position of {tp} within {timeout_ms:.0f} ms")
        position = self._subscriptions.valid_position(tp)
        assert position is not None, "it was waited for"
        return position.offset

    def seek(self, partition: AnyPartition, offset: Offset | OffsetAndMetadata) -> None:
        """Read from `offset` on; with an epoch, the log is asked whether it still has it."""
        tp = as_partition(partition)
        to = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        if to.offset < 0:
            raise IllegalStateError(f"seek to {to.offset}: an offset is at least 0")
        view = self._open_parts.metadata.view
        if view.note_epoch(tp, to.leader_epoch):
            self._open_parts.metadata.request_update()
        position = FetchPosition(to.offset, to.leader_epoch, view.leader(tp))
        self._subscriptions.seek(tp, position)
        self._wake()

    def seek_to_beginning(self, *partitions: AnyPartition) -> None:
        """At the next poll; all that are assigned where none are named."""
        self._seek_by(EARLIEST, partitions)

    def seek_to_end(self, *partitions: AnyPartition) -> None:
        """At the next poll; all that are assigned where none are named."""
        self._seek_by(LATEST, partitions)

    def _seek_by(self, strategy: OffsetResetStrategy, partitions: Sequence[AnyPartition]) -> None:
        for tp in as_partitions(partitions) or self._subscriptions.assigned:
            self._subscriptions.request_reset(tp, strategy)
        self._wake()

    def pause(self, *partitions: AnyPartition) -> None:
        """Hand over nothing of these until `resume`; what is buffered of them is kept."""
        for tp in as_partitions(partitions):
            self._subscriptions.pause(tp)

    def resume(self, *partitions: AnyPartition) -> None:
        """Fetch these again."""
        for tp in as_partitions(partitions):
            self._subscriptions.resume(tp)
        self._wake()

    def paused(self) -> set[TopicPartition]:
        """Those that `pause` has stopped."""
        return self._subscriptions.paused
