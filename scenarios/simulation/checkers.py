"""What must hold in every story, watched from beside the cluster.

After every event, of every replica that is online:

    log start <= high watermark <= log end
    below its high watermark it holds what was committed, and nothing else

"Committed" is what was first seen below a high watermark: offset, leader epoch and CRC of
each batch, noted once and never changed. So also:

    who is elected has all that was committed, and who joins the ISR reaches as far
    no log is cut below its high watermark

Two kinds of elections may lose what was committed, and a partition that has seen one is let
off: an unclean one; and that of the last known leader, where nobody else is known to hold
all (KIP-966), if it has lost its power since it led, and with it what it had not synced, or
its disk was replaced. Who is elected from the ISR or the ELR is never let off, power or not;
but without ELRs (version 0) the last member stays in the ISR, and is the last known one.

Once a partition is at rest, its replicas are equal byte for byte (`replication.verify`).

Rule: a checker reads, and changes nothing. It looks at disks through views of its own.
"""

from collections.abc import Iterator

import attrs

from replication.events import (
    BecameLeader,
    BrokerRegistered,
    Event,
    IsrChanged,
    LeaderElected,
    LogTruncated,
    TopicCreated,
)
from replication.partition import PartitionSnapshot
from scenarios.drawing import batches_of
from scenarios.simulation.cluster import (
    CONTROLLER,
    SimulatedCluster,
    node_name,
    partition_directory,
)
from scenarios.simulation.trace import DiskReplaced, PowerCut
from storage.record_batch import BatchHeader
from storage.types import LeaderEpoch, Offset, TopicId, TopicPartition


@attrs.define(eq=False)
class InvariantViolatedError(AssertionError):
    """Something that must never happen has happened: a bug of ours, whatever the story."""

    rule: str
    """Which invariant: the same for every way in which it can be violated."""
    what: str

    def __str__(self) -> str:
        return self.what


@attrs.frozen
class CommittedBatch:
    base_offset: Offset
    last_offset: Offset
    leader_epoch: LeaderEpoch
    crc: int

    @classmethod
    def of(cls, header: BatchHeader) -> "CommittedBatch":
        return cls(header.base_offset, header.last_offset, header.leader_epoch, header.crc)


@attrs.define(eq=False)
class Checkers:
    """Made before the cluster, which it is the watcher of; then it is told which that is."""

    cluster: SimulatedCluster | None = None
    violation: InvariantViolatedError | None = attrs.field(default=None, init=False)
    """The first; what comes after it is its consequence, and is not looked at."""
    _committed: dict[TopicPartition, dict[Offset, CommittedBatch]] = attrs.field(
        factory=dict, init=False
    )
    _may_have_lost: set[TopicPartition] = attrs.field(factory=set, init=False)
    # Of the topics that are there now; an older one of the same name is no concern of ours.
    _topic_ids: dict[str, TopicId] = attrs.field(factory=dict, init=False)
    # Whose power failed, or whose disk was replaced, since they last registered: what the controller decides about these, it
    # decides, or has decided before it could tell, about what they were before.
    _gone: set[str] = attrs.field(factory=set, init=False)
    # The same, since they last joined the ISR.
    _unsure: dict[TopicPartition, set[str]] = attrs.field(factory=dict, init=False)

    def __call__(self, event: Event) -> None:
        """The cluster's watcher: what it raises ends the node that told of `event`."""
        if self.violation is None:
            self._watch(event)
            self.look()

    def _watch(self, event: Event) -> None:
        match event:
            case TopicCreated(topic=topic, topic_id=topic_id):
                self._topic_ids[topic] = topic_id
                for partition in [each for each in self._committed if each.topic == topic]:
                    del self._committed[partition]
            case BrokerRegistered(broker=broker_id):
                self._gone.discard(node_name(broker_id))
            case PowerCut(node=name) | DiskReplaced(node=name):
                self._gone.add(name)
                for partition in self._committed:
                    self._unsure.setdefault(partition, set()).add(name)
            case IsrChanged(partition=partition, isr=isr, previous_isr=previous):
                joined = {node_name(broker_id) for broker_id in set(isr) - set(previous)}
                joined -= self._gone
                self._check_joined(partition, joined)
                self._unsure.get(partition, set()).difference_update(joined)
            case LeaderElected(partition=partition):
                unsure = node_name(event.leader) in self._unsure.get(partition, ())
                if event.cause == "unclean" or (unsure and self._may_be_unsure(event)):
                    self._may_have_lost.add(partition)
            case LogTruncated(partition=partition) if partition not in self._may_have_lost:
                self._check(
                    event.to_offset >= event.high_watermark,
                    "no log is cut below its high watermark",
                    f"{partition} was cut to {event.to_offset}, below its high watermark"
                    f" {event.high_watermark}",
                )
            case BecameLeader(partition=partition):
                self._check_complete(partition, event.leader_epoch)
            case _:
                pass

    def _may_be_unsure(self, event: LeaderElected) -> bool:
        """Whoever is elected may have lost what it had not synced."""
        assert self.cluster is not None, "only a cluster elects"
        version = self.cluster.configs[CONTROLLER].understudy_eligible_leader_replicas_version
        return event.cause == "last known" or version == 0

    def look(self) -> None:
        """Compare every replica that is online with what must hold; once more at the end."""
        if self.violation is not None:
            raise self.violation
        for name, partition, replica in self._replicas():
            where = f"{partition} on {name}"
            start, end = replica.log_start_offset, replica.log_end_offset
            high_watermark = replica.high_watermark
            self._check(
                start <= high_watermark <= end,
                "log start <= high watermark <= log end",
                f"{where}: log start {start} <= high watermark {high_watermark} <= log end {end}",
            )
            if partition not in self._may_have_lost:
                self._compare(name, partition, high_watermark)

    def is_let_off(self, partition: TopicPartition) -> bool:
        """Whether it has seen an election that may have lost what was committed."""
        return partition in self._may_have_lost

    @property
    def has_let_off_any(self) -> bool:
        return bool(self._may_have_lost)

    def committed_end(self, partition: TopicPartition) -> Offset:
        """Where what was committed ends."""
        batches = self._committed.get(partition, {})
        return max((batch.last_offset + 1 for batch in batches.values()), default=0)

    def _compare(self, name: str, partition: TopicPartition, high_watermark: Offset) -> None:
        """What lies below the high watermark, with what was committed there."""
        known = self._committed.setdefault(partition, {})
        for batch in self._batches(name, partition):
            if batch.next_offset > high_watermark:
                break
            held = CommittedBatch.of(batch)
            expected = known.setdefault(held.base_offset, held)
            self._check(
                expected == held,
                "below a high watermark is what was committed",
                f"{partition} on {name} has {held} below its high watermark {high_watermark},"
                f" where {expected} was committed",
            )

    def _check_complete(self, partition: TopicPartition, leader_epoch: LeaderEpoch) -> None:
        """Whoever has just become leader holds all that was committed before its epoch.

        Whoever led before may not know yet that it does no longer: of it nothing is asked.
        """
        if partition in self._may_have_lost:
            return
        committed = self._committed.get(partition, {})
        for name, led, replica in self._replicas():
            if led == partition and replica.is_leader and replica.leader_epoch == leader_epoch:
                held = {b.base_offset: CommittedBatch.of(b) for b in self._batches(name, led)}
                lost = [b for b in committed.values() if held.get(b.base_offset) != b]
                lost = [b for b in lost if b.last_offset >= replica.log_start_offset]
                lost = [b for b in lost if b.leader_epoch < leader_epoch]
                self._check(
                    not lost,
                    "who is elected has all that was committed",
                    f"{name} leads {partition} without {lost}, which were committed",
                )

    def _check_joined(self, partition: TopicPartition, joined: set[str]) -> None:
        """Whoever has just joined the ISR reaches as far as what was committed: it may lead next."""
        if partition in self._may_have_lost:
            return
        committed = self.committed_end(partition)
        for name, held, replica in self._replicas():
            self._check(
                held != partition or name not in joined or replica.log_end_offset >= committed,
                "who joins the ISR reaches as far as what was committed",
                f"{name} joined the ISR of {partition} with a log that ends at"
                f" {replica.log_end_offset}, and {committed} was committed",
            )

    def _replicas(self) -> Iterator[tuple[str, TopicPartition, PartitionSnapshot]]:
        if self.cluster is None:
            return
        for name, broker in self.cluster.brokers.items():
            replica_manager = getattr(broker, "replica_manager", None)  # none before it is up
            if replica_manager is not None:
                for partition, snapshot in replica_manager.describe().items():
                    if snapshot.topic_id == self._topic_ids.get(partition.topic):
                        yield name, partition, snapshot

    def _batches(self, name: str, partition: TopicPartition) -> list[BatchHeader]:
        assert self.cluster is not None, "only a cluster has replicas"
        return batches_of(self.cluster.disk(name), partition_directory(name, partition))

    def _check(self, holds: bool, rule: str, what: str) -> None:  # noqa: FBT001 - as `assert`
        if not holds:
            self.violation = InvariantViolatedError(rule, what)
            raise self.violation
