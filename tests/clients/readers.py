"""Members of a consumer group, each of a stock client, and the ledger of what they read.

members    a thread each: poll, note what came, commit, again, until they have to leave
ledger     what each partition was read and committed to, held to at-least-once:
           the next owner of a partition begins at the last commit or, if it is unknown whether a
           later commit came through, at that one
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import aiokafka
import attrs
import confluent_kafka
import kafka
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka.cimpl import KafkaException
from kafka.errors import KafkaError as KafkaPythonError

from tests.clients.sample import TOPIC

GROUP = "readers"


@attrs.define(eq=False)
class Ledger:
    """Offsets by partition. A partition has one reader at a time."""

    values: dict[str, int] = attrs.field(factory=dict)
    """How often each was read."""
    readers: dict[int, str] = attrs.field(factory=dict)
    faults: list[str] = attrs.field(factory=list)
    _next: dict[int, int] = attrs.field(factory=dict)
    _acked: dict[int, int] = attrs.field(factory=dict)
    _tried: dict[int, int] = attrs.field(factory=dict)
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def read(self, reader: str, partition: int, offset: int, value: str) -> None:
        with self._lock:
            self.values[value] = self.values.get(value, 0) + 1
            expected = self._next.get(partition, 0)
            if self.readers.get(partition) == reader and offset == expected:
                pass
            elif not self._acked.get(partition, 0) <= offset <= self._tried.get(partition, 0):
                acked, tried = self._acked.get(partition, 0), self._tried.get(partition, 0)
                self.faults.append(
                    f"{reader} begins {partition} at {offset}, committed to {acked}, tried {tried}"
                )
            self.readers[partition] = reader
            self._next[partition] = offset + 1

    def trying(self, offsets: Mapping[int, int]) -> None:
        with self._lock:
            for partition, offset in offsets.items():
                self._tried[partition] = max(offset, self._tried.get(partition, 0))

    def committed(self, offsets: Mapping[int, int]) -> None:
        with self._lock:
            for partition, offset in offsets.items():
                self._acked[partition] = max(offset, self._acked.get(partition, 0))

    @property
    def acked(self) -> dict[int, int]:
        return dict(self._acked)


@attrs.define(eq=False)
class Reader:
    """One member; `leave` has it close its consumer, as a well-behaved process does."""

    name: str
    servers: str
    ledger: Ledger
    read: "Read"
    assigned: set[int] = attrs.field(factory=set)
    leaving: threading.Event = attrs.field(factory=threading.Event)
    failure: BaseException | None = None
    _thread: threading.Thread | None = None

    def start(self) -> "Reader":
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            self.read(self)
        except BaseException as error:  # noqa: BLE001 - `leave` reports it
            self.failure = error

    def leave(self) -> None:
        self.leaving.set()
        assert self._thread is not None, "a reader is started before it leaves"
        self._thread.join(30)
        assert not self._thread.is_alive(), f"{self.name} does not close"
        if self.failure is not None:
            raise self.failure

    def note(self, partition: int, offset: int, value: bytes) -> None:
        self.ledger.read(self.name, partition, offset, value.decode())

    def noted(self, polled: Mapping[Any, Sequence[Any]]) -> dict[int, int]:
        """Note what a client polled, by partition; return the offsets to commit after it."""
        offsets: dict[int, int] = {}
        for place, records in polled.items():
            for record in records:
                self.note(place.partition, record.offset, record.value)
                offsets[place.partition] = record.offset + 1
        return offsets


Read: TypeAlias = Callable[[Reader], None]


def confluent(reader: Reader) -> None:
    _read_with_confluent(reader, {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300})


def confluent_consumer_protocol(reader: Reader) -> None:
    """A member of the new protocol (KIP-848), whose time limits the broker sets."""
    _read_with_confluent(reader, {"group.protocol": "consumer"})


def _read_with_confluent(reader: Reader, settings: dict[str, object]) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": reader.servers,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 1000,
            "log_level": 0,
        }
        | settings
    )

    def assign(_: Any, partitions: list[confluent_kafka.TopicPartition]) -> None:
        reader.assigned |= {each.partition for each in partitions}

    def revoke(_: Any, partitions: list[confluent_kafka.TopicPartition]) -> None:
        reader.assigned -= {each.partition for each in partitions}

    consumer.subscribe([TOPIC], on_assign=assign, on_revoke=revoke, on_lost=revoke)
    while not reader.leaving.is_set():
        offsets: dict[int, int] = {}
        for message in consumer.consume(50, timeout=0.1):
            partition, offset, value = message.partition(), message.offset(), message.value()
            if message.error() is None:
                assert partition is not None
                assert offset is not None
                assert value is not None
                reader.note(partition, offset, value)
                offsets[partition] = offset + 1
        if offsets:
            reader.ledger.trying(offsets)
            places = [confluent_kafka.TopicPartition(TOPIC, *each) for each in offsets.items()]
            try:
                done = consumer.commit(offsets=places, asynchronous=False)
            except KafkaException:
                continue  # a rebalance, or no coordinator: others read it again
            assert done is not None
            good = {each.partition: each.offset for each in done if each.error is None}
            reader.ledger.committed(good)
    consumer.close()


def kafka_python(reader: Reader) -> None:
    # What it logs while a broker is away holds on to the sockets that it has forgotten.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=reader.servers.split(","),
        group_id=GROUP,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=6000,
        heartbeat_interval_ms=300,
        metadata_max_age_ms=1000,
        retry_backoff_ms=50,
    )
    consumer.subscribe([TOPIC])
    while not reader.leaving.is_set():
        # Long enough to join within one poll: an assignment that comes after the poll's time
        # is over is taken for known, and never taken up (3.0.12).
        polled = consumer.poll(timeout_ms=1500, max_records=50)
        reader.assigned = {each.partition for each in consumer.assignment()}
        offsets = reader.noted(polled)
        if offsets:
            reader.ledger.trying(offsets)
            try:
                consumer.commit(
                    {
                        kafka.TopicPartition(TOPIC, each): kafka.OffsetAndMetadata(offset, "", -1)
                        for each, offset in offsets.items()
                    }
                )
            except KafkaPythonError:
                continue  # as above
            reader.ledger.committed(offsets)
    consumer.close()


def aiokafka_(reader: Reader) -> None:
    # It logs every retry while a coordinator is away.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    asyncio.run(_read_with_aiokafka(reader))


async def _read_with_aiokafka(reader: Reader) -> None:
    consumer = aiokafka.AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=reader.servers,
        group_id=GROUP,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=6000,
        heartbeat_interval_ms=300,
        metadata_max_age_ms=1000,
    )
    await consumer.start()
    while not reader.leaving.is_set():
        fetched = await consumer.getmany(timeout_ms=100, max_records=50)
        reader.assigned = {each.partition for each in consumer.assignment()}
        offsets = reader.noted(fetched)
        if offsets:
            reader.ledger.trying(offsets)
            try:
                await consumer.commit(
                    {aiokafka.TopicPartition(TOPIC, each): at for each, at in offsets.items()}
                )
            except AiokafkaError:
                continue  # as above
            reader.ledger.committed(offsets)
    await consumer.stop()
