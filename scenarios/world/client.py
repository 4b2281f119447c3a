"""The probe of a story: a client that creates topics, produces and reads, one request at a time.

    create_topic    any broker forwards it to the controller
    send            find the leader ─> connect ─> Produce, once ─> Outcome
    read            find the leader ─> connect ─> Fetch, as a consumer, to the high watermark

It is no second implementation of `replication.client`, and shares that package's connection
(`replication.net.rpc`). It stays beside it because the judges need what our clients hide or never
do: every attempt's own answer, a batch sent again byte for byte or with a wrong epoch or sequence,
a fetch from a chosen broker, no retries of its own. Our clients run in a story as programs
(`clients/`), and the same judges look at them.

Rule 1: a batch is sent once, unless a story says otherwise, so its outcome (acked, refused or no
answer) depends on the cluster alone. Only the leader is looked for as often as needed. A batch
that is sent again is the same, byte for byte.

Rule 2: every batch has a connection of its own, so that one which waits for followers holds up no
other. Only questions about who leads share one with each broker, which stays open.

Rule 3: the client knows what it sent and which answers it received, and nothing more.

Rule 4: it refuses a fetched batch with a wrong checksum (`check.crcs`).

The file is long because the client is one object with a method for each request.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar, TypeAlias, TypeVar

import attrs

from replication.errors import ErrorCode, KafkaError, PeerUnavailableError
from replication.events import Event, EventSink, ignore
from replication.leader.rules.fetch_session import FINAL_EPOCH, INITIAL_EPOCH
from replication.net.rpc import RpcClient
from replication.net.seams import Seams
from replication.wire.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from replication.wire.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from replication.wire.init_producer_id import InitProducerIdRequest
from replication.wire.list_offsets import (
    EARLIEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from replication.wire.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from replication.wire.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from storage.batch.record_batch import check_crc, walk
from storage.batch.records import Record, decode_batch, encode_batch
from storage.types import Offset, TopicPartition

T = TypeVar("T")
Address: TypeAlias = tuple[str, int]

CLIENT = "client"
"""The name of the client and of its machine."""

CREATE_TOPICS_VERSION = 7
METADATA_VERSION = 12
PRODUCE_VERSION = 11
INIT_PRODUCER_ID_VERSION = 4
LIST_OFFSETS_VERSION = 7
FETCH_VERSION = 12  # the last version that has topic names

CONNECT_TIMEOUT_MS = 1_000
PATIENCE_MS = 60_000
BLOCK_ATTEMPTS = 20
# retry.backoff.ms, doubled from time to time up to retry.backoff.max.ms (KIP-580)
RETRY_SECONDS = 0.1
LONGEST_RETRY_SECONDS = 1.0
READ_BYTES = 1 << 20


@attrs.frozen
class AckedBatch:
    """The leader has written the batch, with its first record at `base_offset`."""

    base_offset: Offset


@attrs.frozen
class Refused:
    error: ErrorCode


@attrs.frozen
class NoAnswer:
    """The batch may be written or not; only the logs show it."""

    cause: str


Outcome: TypeAlias = AckedBatch | Refused | NoAnswer


@attrs.frozen(kw_only=True)
class ProducerSequence:
    """The numbers by which a partition recognises a batch that it already has (KIP-98)."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


@attrs.define(eq=False)
class SentRecords:
    """Records that were sent together, and their outcome; None while there is none."""

    partition: TopicPartition
    values: tuple[str, ...]
    acks: int
    outcome: Outcome | None = None
    sequence: ProducerSequence | None = None
    timestamp: int | None = None
    sent_at: float = 0.0
    answered_at: float = 0.0
    attempts: int = 0
    """The number of times that it was sent."""
    producer: str | None = None
    """The program of our own, and its life, that sent the batch once and in order."""

    @property
    def acked(self) -> bool:
        return isinstance(self.outcome, AckedBatch)


@attrs.frozen(kw_only=True)
class BatchAnswered(Event):
    """The answer that a producer received for the records it sent."""

    name: ClassVar[str] = "batch_answered"
    partition: TopicPartition
    values: tuple[str, ...]
    acks: int
    answer: str
    sent_at: float = 0.0
    end: Offset | None = None
    """The offset after the last record, if the answer says it."""


@attrs.frozen(kw_only=True)
class RecordsGiven(Event):
    """A consumer received records below `end`."""

    name: ClassVar[str] = "records_given"
    partition: TopicPartition
    end: Offset
    asked_at: float = 0.0


@attrs.frozen(kw_only=True)
class RottenBatchGiven(Event):
    """A consumer fetched a batch whose checksum is wrong."""

    name: ClassVar[str] = "rotten_batch_given"
    partition: TopicPartition
    offset: Offset


@attrs.frozen
class ReadRecord:
    offset: Offset
    value: str


@attrs.define(eq=False, kw_only=True)
class StoryClient:
    """The producer and consumer of a story's own commands."""

    name: str
    seams: Seams
    bootstrap: Sequence[Address]
    sink: EventSink = ignore
    speed: float = 1.0
    """How much faster the client's clock is than the brokers' clocks: `timeout.ms` is divided by it."""
    _kept: dict[Address, RpcClient] = attrs.field(factory=dict, init=False)

    # Topics.

    async def create_topic(
        self,
        topic: str,
        replicas: Sequence[Sequence[int]],
        *,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic with a partition for each list of brokers; the first leads."""
        wanted = CreatableTopic(
            name=topic,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
                for number, brokers in enumerate(replicas)
            ],
            configs=[
                CreatableTopicConfig(name=key, value=value)
                for key, value in (configs or {}).items()
            ],
        )

        said = f"topic {topic}"

        async def ask(client: RpcClient) -> ErrorCode:
            nonlocal said
            response = await client.call(
                CreateTopicsRequest(topics=[wanted]),
                version=CREATE_TOPICS_VERSION,
                timeout_ms=PATIENCE_MS,
            )
            (result,) = response.topics
            said = result.error_message or said
            return ErrorCode.of(result.error_code)

        error = await self.ask_somebody(ask)
        if error is not ErrorCode.NONE:
            raise KafkaError(error, said)

    # Producing.

    async def send(self, batch: SentRecords, *, timeout_ms: int, to: Address | None = None) -> None:
        """Send a batch to `to`, or to its leader, and note its `outcome`."""
        batch.attempts += 1
        if batch.timestamp is None:  # the time of its first attempt stays
            batch.timestamp, batch.sent_at = self.seams.clock.wall_ms(), self.seams.clock.now()
        self.finish(batch, await self.attempt(batch, timeout_ms, to))

    def finish(self, batch: SentRecords, outcome: Outcome) -> None:
        batch.outcome = outcome
        batch.answered_at = self.seams.clock.now()
        self.tell(batch, outcome)

    def tell(self, batch: SentRecords, outcome: Outcome) -> None:
        self.sink(
            BatchAnswered(
                partition=batch.partition,
                values=batch.values,
                acks=batch.acks,
                answer=str(outcome),
                sent_at=batch.sent_at,
                end=_end_of(batch, outcome),
            )
        )

    async def attempt(
        self, batch: SentRecords, timeout_ms: int, to: Address | None = None
    ) -> Outcome:
        """Send a batch once, over a connection of its own; return the outcome."""
        try:
            async with closing(await self.connect(batch.partition, to)) as client:
                return await self.ask(client, batch, timeout_ms)
        except PeerUnavailableError as error:
            return NoAnswer(str(error))

    async def ask(self, client: RpcClient, batch: SentRecords, timeout_ms: int) -> Outcome:
        if batch.timestamp is None:
            batch.timestamp = self.seams.clock.wall_ms()
        data = PartitionProduceData(index=batch.partition.partition, records=_encoded(batch))
        request = ProduceRequest(
            acks=batch.acks,
            timeout_ms=round(timeout_ms / self.speed),
            topic_data=[TopicProduceData(name=batch.partition.topic, partition_data=[data])],
        )
        patience_ms = timeout_ms + CONNECT_TIMEOUT_MS
        try:
            if batch.acks == 0:
                await client.send_unanswered(
                    request, version=PRODUCE_VERSION, timeout_ms=patience_ms
                )
                return NoAnswer("none was asked for")
            response = await client.call(request, version=PRODUCE_VERSION, timeout_ms=patience_ms)
        except PeerUnavailableError as error:
            return NoAnswer(str(error))
        answer: PartitionProduceResponse = response.responses[0].partition_responses[0]
        if answer.error_code != ErrorCode.NONE:
            return Refused(ErrorCode.of(answer.error_code))
        return AckedBatch(answer.base_offset)

    async def init_producer_id(self) -> int:
        """Return a new producer id, once the broker that is asked has a block of them."""

        async def ask(client: RpcClient) -> int:
            for _ in range(BLOCK_ATTEMPTS):
                answer = await client.call(
                    InitProducerIdRequest(),
                    version=INIT_PRODUCER_ID_VERSION,
                    timeout_ms=PATIENCE_MS,
                )
                if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    break
                await self.seams.clock.sleep(RETRY_SECONDS)
            else:
                raise PeerUnavailableError("no block of producer ids has come")
            if answer.error_code != ErrorCode.NONE:
                raise KafkaError(ErrorCode.of(answer.error_code), "an id for a producer")
            producer_id: int = answer.producer_id
            return producer_id

        return await self.ask_somebody(ask)

    # Reading.

    def _given(
        self, partition: TopicPartition, records: list[ReadRecord], *, asked_at: float
    ) -> list[ReadRecord]:
        if records:
            end = records[-1].offset + 1
            self.sink(RecordsGiven(partition=partition, end=end, asked_at=asked_at))
        return records

    async def read(self, partition: TopicPartition) -> list[ReadRecord]:
        """Return the records from the first one to the high watermark, as a consumer receives them."""
        records: list[ReadRecord] = []
        asked_at = self.seams.clock.now()
        position = await self.begins_at(partition)
        async with closing(await self.connect_to_leader(partition)) as client:
            while True:
                data = await self._fetch(client, partition, position)
                end = end_of(data)
                if end is None:
                    return records
                found = [record for record in records_of(data) if record.offset >= position]
                records += self._given(partition, found, asked_at=asked_at)
                position = end

    async def poll(
        self, partition: TopicPartition, position: Offset, *, rack: str = ""
    ) -> tuple[list[ReadRecord], Offset]:
        """Return the records of one fetch at `position`, and the next position.

        The fetch goes to the replica that the leader prefers for the rack (KIP-392). Raises
        KafkaError if the answer is an error.
        """
        # As a consumer does, it begins a fetch session; it never continues one.
        fetch = partial(
            self._fetch,
            partition=partition,
            position=position,
            session_epoch=INITIAL_EPOCH,
            rack=rack,
        )
        asked_at = self.seams.clock.now()
        async with closing(await self.connect_to_leader(partition)) as client:
            data = await fetch(client)
        if data.preferred_read_replica >= 0:
            address = await self._find(partition, data.preferred_read_replica)
            async with closing(await self._connect(address)) as client:
                data = await fetch(client)
        end = end_of(data)
        found = [record for record in records_of(data) if record.offset >= position]
        given = self._given(partition, found, asked_at=asked_at)
        return given, position if end is None else end

    async def begins_at(self, partition: TopicPartition) -> Offset:
        error, offset = await self.list_offset(partition, EARLIEST)
        if error is not ErrorCode.NONE:
            raise KafkaError(error, f"where {partition} begins")
        return offset

    async def list_offset(
        self, partition: TopicPartition, timestamp: int
    ) -> tuple[ErrorCode, Offset]:
        """Return the offset for `timestamp`, as a consumer receives it; EARLIEST and LATEST are
        timestamps too.
        """
        wanted = ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp)
        topic = ListOffsetsTopic(name=partition.topic, partitions=[wanted])
        async with closing(await self.connect_to_leader(partition)) as client:
            response = await client.call(
                ListOffsetsRequest(topics=[topic]),
                version=LIST_OFFSETS_VERSION,
                timeout_ms=PATIENCE_MS,
            )
        (answer,) = response.topics[0].partitions
        return ErrorCode.of(answer.error_code), answer.offset

    async def _fetch(
        self,
        client: RpcClient,
        partition: TopicPartition,
        position: Offset,
        *,
        session_epoch: int = FINAL_EPOCH,
        rack: str = "",
    ) -> PartitionData:
        wanted = FetchPartition(
            partition=partition.partition, fetch_offset=position, partition_max_bytes=READ_BYTES
        )
        request = FetchRequest(
            max_bytes=READ_BYTES,
            session_epoch=session_epoch,
            rack_id=rack,
            topics=[FetchTopic(topic=partition.topic, partitions=[wanted])],
        )
        response = await client.call(request, version=FETCH_VERSION, timeout_ms=PATIENCE_MS)
        data: PartitionData = response.responses[0].partitions[0]
        if data.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode.of(data.error_code), f"reading {partition} at {position}")
        self._check(partition, data)
        return data

    def _check(self, partition: TopicPartition, data: PartitionData) -> None:
        """Raise CORRUPT_MESSAGE for a batch with a wrong checksum."""
        view = _bytes_of(data)
        for position, header in walk(view):
            if not check_crc(view[position : position + header.size]):
                self.sink(RottenBatchGiven(partition=partition, offset=header.base_offset))
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{partition} at {header.base_offset}")

    # Connections.

    async def connect(self, partition: TopicPartition, to: Address | None) -> RpcClient:
        """Connect to a broker, or to the leader."""
        return await (self._connect(to) if to else self.connect_to_leader(partition))

    async def connect_to_leader(self, partition: TopicPartition) -> RpcClient:
        """Connect to the leader; look for it again while there is none."""
        pause = RETRY_SECONDS
        with self.seams.clock.move_on_after(PATIENCE_MS / 1000):
            while True:
                with contextlib.suppress(
                    PeerUnavailableError
                ):  # the leader died, and this broker does not know
                    return await self._connect(await self._find(partition))
                await self.seams.clock.sleep(pause)
                pause = min(2 * pause, LONGEST_RETRY_SECONDS)
        raise PeerUnavailableError(f"{partition} was led by nobody for {PATIENCE_MS} ms")

    async def _find(self, partition: TopicPartition, broker_id: int | None = None) -> Address:
        """Return the address of a broker, by default of the partition's leader."""
        metadata = await self._first_answer(
            lambda address: self._metadata(address, partition), self.bootstrap
        )
        wanted = [
            each.leader_id if broker_id is None else broker_id
            for topic in metadata.topics
            for each in topic.partitions
            if topic.name == partition.topic and each.partition_index == partition.partition
        ]
        for broker in metadata.brokers:
            if broker.node_id in wanted:
                return broker.host, broker.port
        missing = "leader" if broker_id is None else f"broker {broker_id}"
        raise PeerUnavailableError(f"the metadata of {partition} has no address of its {missing}")

    async def ask_somebody(
        self, ask: Callable[[RpcClient], Awaitable[T]], among: Sequence[Address] = ()
    ) -> T:
        """Return the answer of the first broker that gives one, over a connection of its own."""

        async def ask_at(address: Address) -> T:
            async with closing(await self._connect(address)) as client:
                return await ask(client)

        return await self._first_answer(ask_at, among or self.bootstrap)

    async def _first_answer(
        self, ask: Callable[[Address], Awaitable[T]], addresses: Sequence[Address]
    ) -> T:
        for address in addresses:
            with contextlib.suppress(PeerUnavailableError):
                return await ask(address)
        raise PeerUnavailableError("no broker answers")

    async def _metadata(self, address: Address, partition: TopicPartition) -> MetadataResponse:
        """Ask a broker over the connection that is kept for such questions."""
        client = self._kept.get(address)
        if client is None or client.closed:
            client = self._kept[address] = await self._connect(address)
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=partition.topic)], allow_auto_topic_creation=False
        )
        answer: MetadataResponse = await client.call(
            request, version=METADATA_VERSION, timeout_ms=CONNECT_TIMEOUT_MS
        )
        return answer

    def close(self) -> None:
        """Close the connections that stay open."""
        for client in self._kept.values():
            client.close()

    async def _connect(self, address: Address) -> RpcClient:
        host, port = address
        return await RpcClient.connect(
            self.seams.transport,
            host,
            port,
            client_id=self.name,
            clock=self.seams.clock,
            timeout_ms=CONNECT_TIMEOUT_MS,
        )


@contextlib.asynccontextmanager
async def closing(client: RpcClient) -> AsyncIterator[RpcClient]:
    try:
        yield client
    finally:
        client.close()


def key_of(value: str) -> str | None:
    """Return the part of a value before a colon, which is also the record's key."""
    key, colon, _ = value.partition(":")
    return key if colon else None


def _encoded(batch: SentRecords) -> bytes:
    assert batch.timestamp is not None, "a batch is made before it is sent"
    keys = [key_of(value) for value in batch.values]
    records = [
        Record(
            timestamp=batch.timestamp,
            key=None if key is None else key.encode(),
            value=value.encode(),
        )
        for key, value in zip(keys, batch.values, strict=True)
    ]
    return encode_batch(records, **({} if batch.sequence is None else attrs.asdict(batch.sequence)))


def _end_of(batch: SentRecords, outcome: Outcome) -> Offset | None:
    return outcome.base_offset + len(batch.values) if isinstance(outcome, AckedBatch) else None


def records_of(data: PartitionData) -> list[ReadRecord]:
    view = _bytes_of(data)
    return [
        ReadRecord(record.offset, (record.value or b"").decode())
        for position, header in walk(view)
        if not header.is_control
        for record in decode_batch(view[position : position + header.size])
    ]


def _bytes_of(data: PartitionData) -> memoryview:
    records = data.records
    assert isinstance(records, memoryview | None | bytes), "an answer has its records in memory"
    return memoryview(records or b"")


def end_of(data: PartitionData) -> Offset | None:
    """Return the offset after the last batch, whose records compaction may have removed; None if
    there is no batch.
    """
    headers = [header for _, header in walk(_bytes_of(data))]
    return headers[-1].next_offset if headers else None
