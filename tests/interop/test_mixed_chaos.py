"""Nodes of a mixed cluster are killed and frozen, one after another, while stock clients go on.

    writer   writes numbered records to `orders`: idempotent, acks=all
    mover    consumes them, and writes each to `left` and to `right` in one transaction with its
             offsets (KIP-447); it aborts one transaction in ten by itself
    reader   is in a group of the new protocol (KIP-848), and reads both, read_committed

In the end every acknowledged record is in `orders` once and in order, and `left` and `right` have the
same records: a transaction that is torn, lost or done twice would show there. What a group committed
never went back, and all replicas are equal, byte for byte and epoch for epoch; so are the metadata logs
of all nodes. The report of the run explains every election and every truncation.

The clients are confluent-kafka, whose protocol is librdkafka's. `CHAOS_SEED` picks another run,
`CHAOS_FAULTS` a longer one.
"""

import contextlib
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import attrs
import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)

from replication.cli.demo_workload import DemoWorkload, create_topic, read_back
from replication.verify.directories import verify_directories
from storage.filesystem import OsFileSystem
from tests.interop.bad_luck import PATIENCE_SECONDS, BadLuck
from tests.interop.explained import check_explained
from tests.interop.kafka import CONTROLLER_ALONE, Kafka
from tests.interop.mixed_quorum import METADATA, batches_in, check_equal

pytestmark = pytest.mark.interop

ORDERS, LEFT, RIGHT = TOPICS = ("orders", "left", "right")
PARTITIONS: Final = 3
SEED = int(os.environ.get("CHAOS_SEED", "1"))
FAULTS = int(os.environ.get("CHAOS_FAULTS", "5"))
BATCH, PAUSE_SECONDS, MOST_OUTSTANDING = 50, 0.2, 2000
MOST_MOVED: Final = 500
# After a record that has timed out librdkafka sends those behind it again, in a new producer epoch,
# although some may be in the log. A controller of Kafka's may take a minute to start on a busy machine.
MESSAGE_TIMEOUT_MS: Final = 900_000
CLIENT: Final = {"log_level": 0, "reconnect.backoff.max.ms": 500}
PROPERTIES: Final = {
    "min.insync.replicas": "2",
    "transaction.state.log.min.isr": "2",
    "replica.lag.time.max.ms": "3000",
    # Small segments, so that nodes die while they roll.
    "log.segment.bytes": "1048576",
}


@attrs.frozen
class Taken:
    """A record that a consumer was given."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes


def taken(consumer: Consumer, most: int) -> list[Taken]:
    """Wait half a second at most, and pass over the errors that librdkafka mends by itself."""
    return [
        Taken(each.topic(), each.partition(), each.offset(), each.key(), each.value())  # type: ignore[arg-type]  # a record has all five
        for each in consumer.consume(most, 0.5)
        if each.error() is None
    ]


@attrs.define(eq=False)
class Run:
    """What the clients do in threads of their own until `stop`, and what they have seen."""

    servers: str
    chance: random.Random
    stopped: threading.Event = attrs.field(factory=threading.Event)
    seen: Counter[tuple[str, bytes]] = attrs.field(factory=Counter)
    committed: dict[int, int] = attrs.field(factory=dict)
    went_back: list[str] = attrs.field(factory=list)
    aborted: int = 0

    def consumer(self, group: str, **config: object) -> Consumer:
        return Consumer(
            {
                **CLIENT,
                "bootstrap.servers": self.servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                **config,
            }
        )

    def move(self) -> None:
        """Move records until the end; begin anew with what was committed when a client gives up."""
        while not self.stopped.is_set():
            with contextlib.suppress(KafkaException):
                self._move()

    def _move(self) -> None:
        orders = self.consumer(
            "mover", **{"enable.auto.commit": False, "session.timeout.ms": 10_000}
        )
        producer = Producer(
            {**CLIENT, "bootstrap.servers": self.servers, "transactional.id": "mover"}
        )
        try:
            producer.init_transactions(PATIENCE_SECONDS)
            orders.subscribe([ORDERS])
            while not self.stopped.is_set():
                if found := taken(orders, MOST_MOVED):
                    self._in_one_transaction(producer, orders, found)
        finally:
            orders.close()

    def _in_one_transaction(self, producer: Producer, orders: Consumer, found: list[Taken]) -> None:
        producer.begin_transaction()
        try:
            for each in found:
                for topic in (LEFT, RIGHT):
                    producer.produce(topic, each.value, each.key, each.partition)
            positions = orders.position(orders.assignment())
            producer.send_offsets_to_transaction(positions, orders.consumer_group_metadata())
            if self.chance.random() > 0.1:
                producer.commit_transaction(PATIENCE_SECONDS)
                return
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
        producer.abort_transaction(PATIENCE_SECONDS)
        self.aborted += 1
        for each in reversed(found):
            orders.seek(TopicPartition(ORDERS, each.partition, each.offset))

    def read(self) -> None:
        reader = self.consumer("reader", **{"group.protocol": "consumer"})
        reader.subscribe([LEFT, RIGHT])
        try:
            while not self.stopped.is_set():
                self.seen.update((each.topic, each.key) for each in taken(reader, 1000))
        finally:
            reader.close()

    def watch(self) -> None:
        """Note how far the mover's group has committed, and where it went back."""
        watcher = self.consumer("mover")
        asked = [TopicPartition(ORDERS, partition) for partition in range(PARTITIONS)]
        while not self.stopped.wait(0.5):
            with contextlib.suppress(KafkaException):
                for each in watcher.committed(asked, timeout=5):
                    before = self.committed.get(each.partition, OFFSET_INVALID)
                    if each.error is None and each.offset < before:
                        self.went_back.append(f"{each.partition}: {before} to {each.offset}")
                    self.committed[each.partition] = max(before, each.offset)
        watcher.close()


@contextlib.contextmanager
def going_on(run: Run) -> Iterator[None]:
    """Run the clients beside the block; raise what they raise."""
    with ThreadPoolExecutor() as pool:
        tasks: list[Future[None]] = [pool.submit(each) for each in (run.move, run.read, run.watch)]
        try:
            yield
        finally:
            run.stopped.set()
            for task in tasks:
                task.result()


def records(servers: str, topic: str) -> dict[int, list[bytes]]:
    """Return the keys of each partition's committed records, in their order."""
    found: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    for each in read_back(servers, topic, partitions=PARTITIONS):
        partition, key = each.partition(), each.key()
        assert partition is not None
        assert isinstance(key, bytes), "every record has its number as its key"
        found[partition].append(key)
    return found


@pytest.mark.parametrize(
    ("ours", "controllers"),
    [
        pytest.param({2, 3, CONTROLLER_ALONE}, 1, id="two brokers and the controller of ours"),
        pytest.param({3}, 1, id="one broker of ours", marks=pytest.mark.slow),
        pytest.param(
            {3, CONTROLLER_ALONE, CONTROLLER_ALONE + 1},
            3,
            id="a quorum of both kinds",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_no_record_is_lost_and_no_transaction_is_torn(
    tmp_path: Path, ours: set[int], controllers: int
) -> None:
    chance = random.Random(SEED)
    with Kafka(
        data_dir=tmp_path, brokers=3, controllers=controllers, ours=ours, properties=PROPERTIES
    ) as kafka:
        servers = kafka.bootstrap_servers
        for topic in TOPICS:
            create_topic(servers, topic, partitions=PARTITIONS, replication_factor=3)
        workload = DemoWorkload(servers, ORDERS, message_timeout_ms=MESSAGE_TIMEOUT_MS)
        run = Run(servers, random.Random(SEED))

        def write() -> None:
            if workload.outstanding() < MOST_OUTSTANDING:
                for _ in range(BATCH):
                    workload.send(chance.randbytes(chance.randrange(200)))
            workload.poll(0)
            time.sleep(PAUSE_SECONDS)  # the load of clients that pause, not all that they could

        luck = BadLuck(kafka, random.Random(SEED), write)
        with going_on(run):
            luck.wait_until_in_sync()
            for _ in range(FAULTS):
                luck.strike()
            deadline = time.monotonic() + PATIENCE_SECONDS
            while workload.outstanding() and time.monotonic() < deadline:
                workload.poll(0.1)
            sent = workload.ledger.sent
            while sum(run.committed.values()) < sent and time.monotonic() < deadline:
                time.sleep(0.5)  # other threads note what librdkafka gives them, with a bound
            while len(run.seen) < 2 * sent and time.monotonic() < deadline:
                time.sleep(0.5)  # as above
        story = f"seed {SEED}: {luck.happened}, {run.aborted} aborted, {workload.errors}"
        orders, left, right = (records(servers, topic) for topic in TOPICS)
        assert workload.ledger.acked == sent, story
        for topic, found in zip(TOPICS, (orders, left, right), strict=True):
            keys = [key for partition in found.values() for key in partition]
            assert sorted(keys) == [number.to_bytes(8, "big") for number in range(sent)], (
                f"{topic}: {len(keys)} records, {len(set(keys))} different, of {sent}; {story}"
            )
            for partition in found.values():
                assert partition == sorted(partition), f"{topic}: out of order; {story}"
        assert len(run.seen) == 2 * sent, story
        assert not run.went_back, f"{run.went_back}; {story}"
        luck.wait_until_in_sync()
        for broker in kafka.broker_ids:
            kafka.stop(broker)
        directories = list(map(str, kafka.log_dirs.values()))
        comparison = verify_directories(OsFileSystem(), directories, copies=3)
    assert comparison.same, f"{story}: {comparison}"
    logs = [batches_in(tmp_path / f"node-{each}" / "log" / METADATA) for each in kafka.node_ids]
    check_equal(logs, end=min(max(log) for log in logs))
    check_explained(kafka, tmp_path)
