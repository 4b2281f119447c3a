"""A broker's surroundings for tests of its partitions: metadata, time and disk at hand.

Nothing here pretends to be what it tests: logs are real ones on a `FaultyFileSystem`,
metadata is a `MetadataImage`, and the observer keeps a list of its calls.
"""

import random

import attrs

from replication.errors import ErrorCode
from replication.leader.partition import Partition
from replication.leader.rules.fetch_data import (
    ClientMetadata,
    FetchInfo,
    FetchParams,
    FetchPartitionData,
    Isolation,
)
from replication.leader.rules.isr import IsrAnswer, Pending
from replication.leader.rules.leadership import Leadership, Surroundings
from replication.metadata.rules.image import (
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
)
from replication.wire.broker_registration import Endpoint
from storage.batch.records import Record, encode_batch
from storage.config import LogConfig
from storage.filesystem import FileSystem
from storage.log.log import Log
from storage.testing import FaultyFileSystem
from storage.types import Offset, TopicPartition

LOCAL, REMOTE, OTHER = 1, 2, 3
TOPIC_ID = bytes(range(16))
TP = TopicPartition("topic", 0)
MAX_LAG_MS = 30_000
BROKER_EPOCH = 100


def batch(
    values: int = 1,
    *,
    base_offset: Offset = 0,
    leader_epoch: int = -1,
    timestamp: int = 0,
    size: int = 1,
) -> memoryview:
    """A batch of `values` records, in memory that a leader may stamp."""
    records = [Record(timestamp=timestamp + each, value=b"x" * size) for each in range(values)]
    encoded = encode_batch(records, base_offset=base_offset, leader_epoch=leader_epoch)
    return memoryview(bytearray(encoded))


def registration(
    *,
    leader: int = LOCAL,
    leader_epoch: int = 1,
    partition_epoch: int = 1,
    isr: tuple[int, ...] = (LOCAL, REMOTE),
    replicas: tuple[int, ...] = (LOCAL, REMOTE),
) -> PartitionRegistration:
    return PartitionRegistration(
        replicas=replicas,
        isr=isr,
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
    )


def broker(
    broker_id: int,
    *,
    broker_epoch: int | None = None,
    fenced: bool = False,
    in_controlled_shutdown: bool = False,
    port: int = 9092,
) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=broker_id,
        broker_epoch=epoch_of(broker_id) if broker_epoch is None else broker_epoch,
        incarnation_id=bytes(16),
        endpoints=(Endpoint("PLAINTEXT", f"host{broker_id}", port),),
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
    )


def epoch_of(broker_id: int) -> int:
    return BROKER_EPOCH + broker_id


def open_log(
    file_system: FileSystem | None = None,
    topic_partition: TopicPartition = TP,
    config: LogConfig | None = None,
) -> Log:
    file_system = file_system or FaultyFileSystem(random.Random(1))
    return Log.open(
        file_system,
        f"/logs/{topic_partition}",
        topic_partition,
        config=config,
        topic_id=TOPIC_ID,
    )


class Broker:
    """What one broker's partitions see, and what they tell."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.image = MetadataImage(brokers={each: broker(each) for each in (1, 2, 3, 4)})
        self.proposals: list[Pending] = []
        self.reported: list[str] = []
        self.log_starts_moved = 0
        self.around = Surroundings(
            broker_id=LOCAL,
            broker_epoch=lambda: epoch_of(LOCAL),
            metadata=lambda: self.image,
            now_ms=lambda: self.now_ms,
            max_lag_ms=MAX_LAG_MS,
            observer=self,
        )

    def log_end_moved(self, leadership: Leadership, /) -> None:
        self.reported.append("log end")

    def high_watermark_moved(self, leadership: Leadership, /) -> None:
        self.reported.append(f"high watermark {leadership.log.high_watermark}")

    def log_start_moved(self, topic_partition: TopicPartition, /) -> None:
        self.log_starts_moved += 1

    def isr_change_proposed(self, leadership: Leadership, pending: Pending, /) -> None:
        self.proposals.append(pending)

    def isr_changed(self, leadership: Leadership, previous: frozenset[int], /) -> None:
        self.reported.append(f"isr {sorted(leadership.isr)}")

    def set_broker(
        self,
        broker_id: int,
        *,
        broker_epoch: int | None = None,
        fenced: bool = False,
        in_controlled_shutdown: bool = False,
    ) -> None:
        changed = broker(
            broker_id,
            broker_epoch=broker_epoch,
            fenced=fenced,
            in_controlled_shutdown=in_controlled_shutdown,
        )
        self.image = attrs.evolve(self.image, brokers={**self.image.brokers, broker_id: changed})

    def partition(self, log: Log | None = None, *, min_insync_replicas: int = 1) -> Partition:
        return Partition(
            topic_partition=TP,
            topic_id=TOPIC_ID,
            log=log or open_log(),
            around=self.around,
            min_insync_replicas=min_insync_replicas,
        )

    def leader(
        self,
        isr: tuple[int, ...] = (LOCAL, REMOTE),
        *,
        replicas: tuple[int, ...] | None = None,
        records: int = 0,
        leader_epoch: int = 1,
        min_insync_replicas: int = 1,
        log: Log | None = None,
    ) -> Partition:
        """Return a partition that leads, with `records` records appended at its leader epoch."""
        partition = self.partition(log, min_insync_replicas=min_insync_replicas)
        partition.make_leader(
            registration(isr=isr, replicas=replicas or isr, leader_epoch=leader_epoch)
        )
        if records:
            append(partition, records)
        self.reported.clear()
        return partition

    def answer(self, partition: Partition) -> bool:
        """The controller accepts the last proposal; whether it must be sent again."""
        pending = self.proposals[-1]
        accepted = IsrAnswer(
            leader_epoch=pending.sent.leader_epoch,
            partition_epoch=pending.sent.partition_epoch + 1,
            isr=pending.sent.broker_ids,
        )
        return lead(partition).on_isr_answer(pending, accepted)

    def refuse(self, partition: Partition, error: ErrorCode) -> bool:
        return lead(partition).on_isr_answer(self.proposals[-1], IsrAnswer(error=error))


def lead(partition: Partition) -> Leadership:
    assert partition.leadership is not None
    return partition.leadership


def append(partition: Partition, values: int = 1, *, acks: int = 1) -> Offset:
    """Append that many records in one batch; where the log then ends."""
    partition.append_as_leader(batch(values), required_acks=acks, wall_ms=0)
    return partition.log.log_end_offset


def follower_params(
    replica: int = REMOTE, *, epoch: int | None = None, min_bytes: int = 1, max_wait_ms: int = 0
) -> FetchParams:
    return FetchParams(
        replica_id=replica,
        replica_epoch=epoch_of(replica) if epoch is None else epoch,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        isolation=Isolation.LOG_END,
    )


def consumer_params(
    *,
    isolation: Isolation = Isolation.HIGH_WATERMARK,
    knows_followers: bool = True,
    min_bytes: int = 1,
    max_wait_ms: int = 0,
) -> FetchParams:
    return FetchParams(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        isolation=isolation,
        client_metadata=ClientMetadata("") if knows_followers else None,
    )


def fetch(
    partition: Partition,
    offset: Offset,
    *,
    replica: int = REMOTE,
    current: int = -1,
    last: int = -1,
    broker_epoch: int | None = None,
) -> FetchPartitionData:
    """A follower's fetch, which tells the leader where it stands."""
    info = FetchInfo(
        offset, log_start_offset=0, current_leader_epoch=current, last_fetched_epoch=last
    )
    return partition.fetch(
        follower_params(replica, epoch=broker_epoch),
        info,
        max_bytes=1 << 20,
        min_one=True,
        note=True,
    )
