"""The demo's records, produced through a stock client, and the outcome of each.

confluent-kafka produces the records and reads them back. A record's key is its number, its value is
one line of a file. The client knows the brokers only by their addresses, as any program of a user
does. The loss ledger counts the records:

    acked and committed   the producer has its acknowledgement, and a consumer reads it back
    acked and lost        the producer has its acknowledgement, and it is missing: a failure
    never acked           the producer has no acknowledgement; it may be there or not
    duplicated            it is there more than once

Rule: a record counts as read back only if its bytes are the ones that were sent.
"""

import sysconfig
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stubs

from replication.errors import UnderstudyError
from storage.attributes import define, frozen

READ_TIMEOUT_SECONDS = 30.0


@frozen
class LedgerVerdict:
    """The numbers of the ledger; some records are there although they were never acked."""

    sent: int
    acked_and_committed: int
    acked_and_lost: int
    never_acked: int
    duplicated: int
    never_acked_but_there: int


@define
class Ledger:
    """One entry for each record sent: its CRC, and what became of it, by its number."""

    _checksums: list[int] = attrs.field(factory=list)
    _is_acked: bytearray = attrs.field(factory=bytearray)
    _times_seen: bytearray = attrs.field(factory=bytearray)
    acked: int = 0
    altered: int = 0

    @property
    def sent(self) -> int:
        return len(self._checksums)

    @property
    def in_flight(self) -> int:
        """The number of records that are sent and not acked yet."""
        return self.sent - self.acked

    def on_send(self, value: bytes) -> int:
        """Note a record that is about to be sent; return its number."""
        self._checksums.append(zlib.crc32(value))
        self._is_acked.append(0)
        self._times_seen.append(0)
        return len(self._checksums) - 1

    def on_ack(self, number: int) -> None:
        assert not self._is_acked[number], f"record {number} was acked twice"
        self._is_acked[number] = 1
        self.acked += 1

    def on_read(self, number: int, value: bytes) -> None:
        """Note a record that a consumer has read."""
        if not 0 <= number < self.sent or zlib.crc32(value) != self._checksums[number]:
            self.altered += 1
            return
        self._times_seen[number] = min(2, self._times_seen[number] + 1)

    def verdict(self) -> LedgerVerdict:
        pairs = list(zip(self._is_acked, self._times_seen, strict=True))
        return LedgerVerdict(
            sent=self.sent,
            acked_and_committed=sum(1 for acked, seen in pairs if acked and seen),
            acked_and_lost=sum(1 for acked, seen in pairs if acked and not seen),
            never_acked=sum(1 for acked, _ in pairs if not acked),
            duplicated=sum(1 for _, seen in pairs if seen > 1),
            never_acked_but_there=sum(1 for acked, seen in pairs if seen and not acked),
        )


class WorkloadError(UnderstudyError):
    """The client gave up; the message says what failed."""


def input_lines(given: Path | None) -> list[bytes]:
    """Return every line of the given file, or of the sources of Python's standard library."""
    if given is not None:
        return given.read_bytes().splitlines(keepends=True)
    library = Path(sysconfig.get_paths()["stdlib"])
    sources = (path for path in sorted(library.rglob("*.py")) if "site-packages" not in path.parts)
    return [line for path in sources for line in path.read_bytes().splitlines(keepends=True)]


def create_topic(
    bootstrap_servers: str, topic: str, *, partitions: int, replication_factor: int
) -> None:
    """Create a topic with min.insync.replicas=2, and wait until it exists."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    new = NewTopic(topic, partitions, replication_factor, config={"min.insync.replicas": "2"})
    try:
        admin.create_topics([new], operation_timeout=50)[topic].result(60)
    except KafkaException as error:
        raise WorkloadError(f"cannot create topic {topic}: {error}") from error


@define
class DemoWorkload:
    """A producer of numbered lines with `acks=all`, and its ledger."""

    bootstrap_servers: str
    topic: str
    on_ack: Callable[[int, float], None] = lambda _partition, _at: None
    message_timeout_ms: int = 60_000
    """How long a record may wait for its acknowledgement; librdkafka begins a new epoch after that."""
    ledger: Ledger = attrs.field(factory=Ledger)
    errors: dict[str, int] = attrs.field(factory=dict)
    _producer: Producer = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "compression.type": "lz4",
                "message.timeout.ms": self.message_timeout_ms,
                "topic.metadata.refresh.fast.interval.ms": 100,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

    def send(self, line: bytes) -> None:
        """Send one line; wait while the client's queue is full."""
        number = self.ledger.on_send(line)
        while True:
            try:
                self._producer.produce(
                    self.topic, line, number.to_bytes(8, "big"), on_delivery=self._on_delivery
                )
            except BufferError:
                self._producer.poll(0.05)
            else:
                break
        self._producer.poll(0)

    def poll(self, seconds: float) -> None:
        self._producer.poll(seconds)

    def outstanding(self) -> int:
        """Return the number of records that the client has neither delivered nor given up."""
        return len(self._producer)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors[error.str()] = self.errors.get(error.str(), 0) + 1
            return
        key, partition = message.key(), message.partition()
        assert isinstance(key, bytes), "every record carries its number as its key"
        assert partition is not None, "a delivered record has a partition"
        self.ledger.on_ack(int.from_bytes(key, "big"))
        self.on_ack(partition, time.time())


def read_back(bootstrap_servers: str, topic: str, *, partitions: int) -> Iterator[Message]:
    """Yield every committed record of the topic, from the beginning."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "demo",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        yield from _until_every_end(consumer, set(range(partitions)))
    finally:
        consumer.close()


def _until_every_end(consumer: Consumer, unfinished: set[int]) -> Iterator[Message]:
    deadline = time.monotonic() + READ_TIMEOUT_SECONDS
    while unfinished:
        for message in consumer.consume(10_000, 0.2):
            deadline = time.monotonic() + READ_TIMEOUT_SECONDS
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                unfinished.discard(message.partition())
            else:
                raise WorkloadError(f"cannot read back: {error.str()}")
        if time.monotonic() > deadline:
            raise WorkloadError(f"nothing read for {READ_TIMEOUT_SECONDS:g} s: {unfinished}")
