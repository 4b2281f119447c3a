"""A producer for trio, after KafkaProducer.

    async with Producer("localhost:9092") as producer:
        metadata = await producer.send("t", b"value", key=b"k")         there: where, and when
        delivery = await producer.send_soon("t", b"value")              on its way
        metadata = await delivery.wait()
        deliveries = await producer.send_many("t", [b"one", b"two"])    many at once

Rule 1: `send` waits until the record is acked, `send_soon` only until there is room for it
(`buffer.memory`) and the topic is known (`max.block.ms` for both).

Rule 2: the records that one task sends to one partition are written there in that order, once
(KIP-98), whatever becomes of connections and leaders in between.

    producer with transactional_id="tx"
        async with producer.transaction():                          all of it is there, or nothing
            await producer.send_soon("t", b"value")

Rule 3: leaving the block waits for records on their way. A block that is left by an exception or
cancelled does not wait: records without an outcome fail, and may or may not be written.

The file is longer than others because the class is all that programs see of a producer.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar

import trio

from replication.client.arguments import as_headers, as_timestamp
from replication.client.coordinators import Coordinators
from replication.client.errors import (
    IllegalStateError,
    RecordTooLargeError,
    TransactionAbortedError,
)
from replication.client.metadata import Metadata
from replication.client.network_client import NetworkClient
from replication.client.offsets import ConsumerGroupMetadata, OffsetAndMetadata, as_offset
from replication.client.producer.accumulator import RecordAccumulator
from replication.client.producer.appending import Filling, Room
from replication.client.producer.batch import (
    Deliveries,
    Delivery,
    ProducerBatch,
    RecordMetadata,
    RecordRun,
    record_size,
    wait_until_settled,
)
from replication.client.producer.config import ProducerConfig
from replication.client.producer.destinations import Destination, Destinations, Partitioner
from replication.client.producer.sender import Sender
from replication.client.producer.transactions import Transactions
from replication.errors import KafkaError, PeerUnavailableError
from replication.net import production_seams
from replication.net.seams import Seams
from storage.batch.compression import Codec
from storage.batch.record_batch import NO_SEQUENCE
from storage.batch.records import Header, RecordFields
from storage.types import NO_OFFSET, TopicPartition

K = TypeVar("K")
V = TypeVar("V")
Serializer: TypeAlias = Callable[[V], bytes | None]

# One task may send so many bytes before it lets others run.
_YIELD_BYTES = 1 << 16


def _as_it_is(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    raise TypeError(
        f"{type(value).__name__} is not bytes: name a serializer, as in"
        " Producer(..., value_serializer=str.encode)"
    )


class Producer(Generic[K, V]):
    """A producer of records, open inside its `async with` block.

    Keys and values are bytes, or what the serializers turn into bytes. `config` holds Kafka's keys
    with underscores: `linger_ms=20`, `acks="1"`, `compression_type="zstd"`. ConfigError if one is
    wrong.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        key_serializer: Serializer[K] = _as_it_is,
        value_serializer: Serializer[V] = _as_it_is,
        partitioner: Partitioner | None = None,
        seams: Seams | None = None,
        **config: Any,
    ) -> None:
        self.config = ProducerConfig.of(bootstrap_servers=bootstrap_servers, **config)
        self._key_serializer, self._value_serializer = key_serializer, value_serializer
        self._partitioner = partitioner
        self._seams = production_seams() if seams is None else seams
        self._now, self._wall_ms = self._seams.clock.now, self._seams.clock.wall_ms
        self._opened = self._closed = False
        self._transactions: Transactions | None = None
        self._filling: Filling | None = None
        self._largest = min(self.config.max_request_size, self.config.buffer_memory)
        self._since_yield = 0

    # Opening and closing.

    async def __aenter__(self) -> Self:
        if self._opened:
            raise IllegalStateError("a producer is opened once")
        self._opened = True
        stack = AsyncExitStack()
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        try:
            self._assemble(nursery)
            nursery.start_soon(self._metadata.run)
            nursery.start_soon(self._sender.run)
            if self._transactions is not None:
                nursery.start_soon(self._transactions.run)
                await self._transactions.init()
        except BaseException:
            # The error is raised alone: the nursery would put it into a group.
            await stack.__aexit__(None, None, None)
            raise
        self._stack = stack
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                await self.flush()
        finally:
            self._closed = True
            self._accumulator.give_up(PeerUnavailableError("the producer was closed"))
            self._room.freed()
            # An error of the block is raised by the block, not by the nursery.
            await self._stack.__aexit__(None, None, None)

    def _assemble(self, nursery: trio.Nursery) -> None:
        config, seams = self.config, self._seams
        network = NetworkClient(
            config=config,
            seams=seams,
            nursery=nursery,
            max_in_flight=config.max_in_flight_requests_per_connection,
        )
        self._accumulator = self._make_accumulator(network)
        self._destinations = Destinations(
            config=config,
            clock=seams.clock,
            draw=seams.chance.randrange,
            waiting_batches=self._accumulator.waiting_batches,
            partitioner=self._partitioner,
        )
        self._metadata = self._destinations.metadata = Metadata(
            network=network,
            topics_wanted=self._destinations.in_use,
            allow_auto_topic_creation=True,
        )
        self._room = Room(self._accumulator, seams.clock)
        self._sender = Sender(
            config=config,
            accumulator=self._accumulator,
            metadata=self._metadata,
            codec=Codec.named(config.compression_type),
            on_room=self._room.freed,
        )
        self._room.on_wait = self._sender.wake
        if config.transactional_id:
            self._begin_transactional(config.transactional_id)
        elif self._partitioner is None:
            self._filling = Filling(self._accumulator, self._metadata.view, self._largest)

    def _begin_transactional(self, transactional_id: str) -> None:
        transactions = self._transactions = Transactions(
            transactional_id=transactional_id,
            config=self.config,
            accumulator=self._accumulator,
            coordinators=Coordinators(self._metadata, self.config.max_block_ms),
            wake=self._sender.wake,
            flush=self._flush_before_end,
            feature=self._metadata.network.feature,
        )
        self._accumulator.may_send = transactions.may_send
        self._sender.transactional_id = transactional_id
        self._sender.may_add_partitions = lambda: transactions.bumps_epoch
        self._sender.on_failure = transactions.batch_failed

    def _make_accumulator(self, network: NetworkClient) -> RecordAccumulator:
        config = self.config
        return RecordAccumulator(
            batch_size=config.batch_size,
            linger=config.linger_ms / 1000,
            buffer_memory=config.buffer_memory,
            max_request_size=config.max_request_size,
            delivery_timeout=config.delivery_timeout_ms / 1000,
            retries=config.retries,
            backoff=lambda attempts: network.retry_wait_ms(attempts) / 1000,
            idempotent=config.enable_idempotence,
            transactional=bool(config.transactional_id),
            one_at_a_time=config.max_in_flight_requests_per_connection == 1,
        )

    # Sending.

    async def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[Header] = (),
    ) -> RecordMetadata:
        """Send a record and wait until it is acked.

        KafkaError, of a class of its own or with its code, if it was not delivered within
        `delivery.timeout.ms` or cannot be; KafkaTimeoutError if there was no room for it, or its
        topic was not known, within `max.block.ms`. If cancelled, it may be written or not.
        """
        delivery = await self.send_soon(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )
        return await delivery.wait()

    async def send_soon(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[Header] = (),
    ) -> Delivery:
        """Send a record; `wait` of the returned delivery gives its outcome.

        If cancelled, nothing was sent. Other tasks run now and then, not at each call.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        value_bytes = None if value is None else self._value_serializer(value)
        timestamp_ms = self._wall_ms() if timestamp_ms is None else as_timestamp(timestamp_ms)
        filling = self._filling
        if filling is not None and key is None and partition is None and headers == ():
            delivery = filling.append(topic, timestamp_ms, value_bytes)
            if delivery is not None:
                if filling.since_yield >= _YIELD_BYTES:
                    filling.since_yield = 0
                    await trio.lowlevel.cancel_shielded_checkpoint()
                return delivery
        self._check_may_send()
        key_bytes = None if key is None else self._key_serializer(key)
        all_headers = as_headers(headers)
        size = record_size(key_bytes, value_bytes, all_headers)
        if size > self._largest:
            with self._failing_transaction():
                raise self._too_large(size)
        destination = await self._ready_for(topic, partition, size)
        chosen = self._destinations.choose(destination, key_bytes, partition)
        record = NO_OFFSET, timestamp_ms, key_bytes, value_bytes, all_headers, NO_SEQUENCE
        batch, index = self._accumulator.append(chosen, record, size, now=self._now)
        sticky = destination.sticky
        if index == 0 or batch.is_closed:
            destination.used_at = batch.created_at
            self._sender.wake()
        if sticky.partition == chosen.partition:
            sticky.appended(size, batch_is_full=batch.is_closed)
            if filling is not None and key is None and partition is None:
                filling.fill(destination, batch)
        await self._let_others_run(size)
        return Delivery(batch, index)

    async def send_many(
        self,
        topic: str,
        values: Iterable[V | None],
        *,
        keys: Iterable[K | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Deliveries:
        """Send records in this order, at a fifth of what `send_soon` costs for each.

        `keys`, if given, has as many items as `values`. RecordTooLargeError before anything is
        sent. If it is cancelled or out of time, some records were sent and others not.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check_may_send()
        records = self._records(values, keys, timestamp_ms)
        run, deliveries = RecordRun(records), Deliveries()
        if run.largest > self._largest:
            with self._failing_transaction():
                raise self._too_large(run.largest)
        while not run.is_done:
            destination = await self._ready_for(topic, partition, run.next_size)
            self._check_may_send()
            chosen = self._destinations.choose(destination, run.next_key, partition)
            used = self._accumulator.used
            deliveries.add(*self._accumulator.append_run(chosen, run, now=self._now))
            await self._appended(destination, deliveries.last, self._accumulator.used - used)
        return deliveries

    def _records(
        self,
        values: Iterable[V | None],
        keys: Iterable[K | None] | None,
        timestamp_ms: int | None,
    ) -> list[RecordFields]:
        timestamp_ms = self._wall_ms() if timestamp_ms is None else as_timestamp(timestamp_ms)
        of_key, of_value = self._key_serializer, self._value_serializer
        values_bytes = [None if value is None else of_value(value) for value in values]
        if keys is None:
            keys_bytes: Iterable[bytes | None] = [None] * len(values_bytes)
        else:
            keys_bytes = [None if key is None else of_key(key) for key in keys]
        return [
            (NO_OFFSET, timestamp_ms, key, value, (), NO_SEQUENCE)
            for key, value in zip(keys_bytes, values_bytes, strict=True)
        ]

    async def _ready_for(self, topic: str, partition: int | None, size: int) -> Destination:
        """Return the destination of a record, once it is known and there is room for its bytes."""
        destination = self._destinations.known(topic, partition)
        if destination is None:
            with self._failing_transaction():
                destination = await self._destinations.find(topic, partition)
        if self._accumulator.waiting_for_room or not self._accumulator.has_room(size):
            with self._failing_transaction():
                await self._room.wait(size, timeout_ms=self.config.max_block_ms)
            self._check_may_send()
        return destination

    async def _appended(self, destination: Destination, batch: ProducerBatch, size: int) -> None:
        """Note that `size` bytes were appended to a batch; let others run now and then."""
        destination.used_at = batch.created_at
        self._sender.wake()
        if destination.sticky.partition == batch.partition.partition:
            destination.sticky.appended(size, batch_is_full=batch.is_closed)
        await self._let_others_run(size)

    async def _let_others_run(self, size: int) -> None:
        """Let other tasks run after every so many bytes."""
        self._since_yield += size
        if self._since_yield >= _YIELD_BYTES:
            self._since_yield = 0
            await trio.lowlevel.cancel_shielded_checkpoint()

    async def flush(self) -> None:
        """Send lingering batches at once, and wait until every record so far has an outcome."""
        self._accumulator.flushing += 1
        self._sender.wake()
        try:
            for batch in self._accumulator.unfinished():
                await wait_until_settled(batch)
        finally:
            self._accumulator.flushing -= 1
        await trio.lowlevel.checkpoint()

    async def _flush_before_end(self) -> None:
        """Flush before a transaction ends; raise if nothing is sent any more."""
        await self.flush()
        self._check_open()

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the topic's partitions; KafkaTimeoutError if it is not known in time."""
        self._check_open()
        destination = await self._destinations.find(topic)
        return [each.partition for each in destination.partitions]

    def _check_open(self) -> None:
        """Raise the reason if the producer sends nothing now."""
        if not self._opened:
            raise IllegalStateError("a producer sends inside `async with`")
        if self._closed:
            raise IllegalStateError("the producer is closed")
        if self._sender.failed is not None:
            raise self._sender.failed

    def _check_may_send(self) -> None:
        self._check_open()
        if self._transactions is not None:
            self._transactions.check_may_send()

    @contextmanager
    def _failing_transaction(self) -> Iterator[None]:
        """Leave only an abort to a transaction after an error of the block (KafkaProducer.doSend)."""
        try:
            yield
        except KafkaError as error:
            if self._transactions is not None:
                self._transactions.batch_failed(error)
            raise

    def _too_large(self, size: int) -> RecordTooLargeError:
        config = self.config
        key, limit = min(
            ("max.request.size", config.max_request_size),
            ("buffer.memory", config.buffer_memory),
            key=lambda each: each[1],
        )
        return RecordTooLargeError(f"a record of {size} bytes where {key} is {limit}")

    # Transactions.

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Send what the block sends as a whole, or not at all, for readers of committed records.

        TransactionAbortedError if it could not be committed.
        """
        self.begin_transaction()
        try:
            yield
        except BaseException:
            # The error of the block says more than one of the abort would.
            with (
                trio.CancelScope(shield=True),
                contextlib.suppress(KafkaError, PeerUnavailableError),
            ):
                await self.abort_transaction()
            raise
        try:
            await self.commit_transaction()
        except TransactionAbortedError:
            await self.abort_transaction()
            raise

    def begin_transaction(self) -> None:
        """Begin a transaction; IllegalStateError inside one.

        ProducerFencedError if another producer has the transactional id.
        """
        self._open_transactions.begin()

    async def commit_transaction(self) -> None:
        """Commit; TransactionAbortedError if a record failed: then abort the transaction."""
        await self._open_transactions.commit()

    async def abort_transaction(self) -> None:
        """Abort: readers of committed records see none of it, and unsent records fail."""
        await self._open_transactions.abort()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
    ) -> None:
        """Commit the offsets that a group has read up to, with the transaction (KIP-447)."""
        member = ConsumerGroupMetadata(group_id=group) if isinstance(group, str) else group
        wanted = {partition: as_offset(each) for partition, each in offsets.items()}
        await self._open_transactions.send_offsets(wanted, member)

    @property
    def _open_transactions(self) -> Transactions:
        self._check_open()
        if self._transactions is None:
            raise IllegalStateError("a producer without transactional_id has no transactions")
        return self._transactions
