"""One partition on this broker: its log, and its role in the cluster.

               make_leader (a new epoch)              make_follower
    follower ───────────────────────────> leader ────────────────────> follower
      a fetcher writes the log              producers write the log
                                            `leadership`: followers, ISR, high watermark

Rule 1: the leader epoch of a request is checked before anything else: one older than ours is
FENCED_LEADER_EPOCH, a newer one UNKNOWN_LEADER_EPOCH; the role is checked after that.

Rule 2: the answer to a fetch and what it says about its follower hold for one moment: the log
end *before* the read. Otherwise an append in between would make the follower late.

Rule 3: a fetch that diverges says nothing about how far its follower has come (KAFKA-13141).

Rule 4: nothing here waits, and a log has one writer at a time: the owner removes a partition
from its fetcher before it makes it leader.
"""

from functools import partial

import attrs

from replication.errors import ErrorCode, KafkaError
from replication.leader.rules.fetch_data import (
    NO_REPLICA,
    FetchInfo,
    FetchParams,
    FetchPartitionData,
    Isolation,
)
from replication.leader.rules.isr import committed
from replication.leader.rules.leadership import Leadership, Surroundings
from replication.leader.rules.log_reader import LogReader
from replication.leader.rules.settled import SessionWatch, Settled
from replication.metadata.rules.image import PartitionRegistration
from replication.wire.delete_records import HIGH_WATERMARK
from replication.wire.fetch import CONSUMER_REPLICA_ID
from replication.wire.metadata import NO_LEADER
from replication.wire.produce import ACKS_ALL
from storage.attributes import define, frozen
from storage.batch.allowance import Allowance
from storage.errors import UnexpectedAppendOffsetError
from storage.log.append import LogAppendInfo
from storage.log.log import Log, PreparedAppend
from storage.producers.verification import NO_TERMS, TransactionTerms
from storage.types import (
    NO_BROKER_EPOCH,
    NO_LEADER_EPOCH,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)

_NOBODY: frozenset[int] = frozenset()


@frozen(kw_only=True)
class ReplicaSnapshot:
    """The state of one replica, for metrics, tests and people."""

    topic_id: TopicId
    leader: int
    leader_epoch: LeaderEpoch
    partition_epoch: int
    is_leader: bool
    log_start_offset: Offset
    log_end_offset: Offset
    high_watermark: Offset
    replicas: tuple[int, ...]
    isr: frozenset[int]
    maximal_isr: frozenset[int]
    under_min_isr: bool

    @property
    def osr(self) -> frozenset[int]:
        """The assigned replicas out of sync; empty on a follower, which does not know the ISR."""
        return frozenset(self.replicas) - self.isr if self.is_leader else frozenset()


@define(eq=False, kw_only=True, repr=False)
class Partition:
    """One partition on this broker (see the head of this module)."""

    topic_partition: TopicPartition
    topic_id: TopicId
    log: Log
    around: Surroundings
    min_insync_replicas: int = 1
    read_only: bool = False
    """Whether it is a copy of another cluster's partition; producers cannot change it then."""
    leader: int = NO_LEADER
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    replicas: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    leadership: Leadership | None = None
    reader: LogReader = attrs.field(init=False)
    settled: Settled = attrs.field(factory=Settled, init=False)
    _partition_epoch: int = -1

    def __attrs_post_init__(self) -> None:
        self.reader = LogReader(self.log)
        self.log.on_moved = self.settled.unsettle

    @property
    def is_leader(self) -> bool:
        return self.leadership is not None

    @property
    def is_adding_local_replica(self) -> bool:
        """Whether a reassignment adds this broker's replica."""
        return self.around.broker_id in self.adding

    @property
    def isr(self) -> frozenset[int]:
        return _NOBODY if self.leadership is None else self.leadership.isr

    @property
    def partition_epoch(self) -> int:
        """The partition epoch of the last change that the controller confirmed or sent."""
        return self._partition_epoch if self.leadership is None else self.leadership.partition_epoch

    # Roles.

    def make_leader(self, registration: PartitionRegistration) -> bool:
        """Become leader, or lead on at a new epoch; return whether this broker did not lead before.

        Metadata older than ours changes nothing.
        """
        leadership = self.leadership
        if registration.partition_epoch < self.partition_epoch:
            return False
        if leadership is not None and registration.partition_epoch == self.partition_epoch:
            # The controller's answer to our proposal was the same change. The next one may
            # have been proposed since, and stays pending.
            return False
        previous_epoch = self.leader_epoch
        self._install(registration)
        if leadership is None:
            leadership = Leadership(
                topic_partition=self.topic_partition,
                log=self.log,
                around=self.around,
                min_insync_replicas=self.min_insync_replicas,
                leader_epoch=registration.leader_epoch,
                partition_epoch=registration.partition_epoch,
                isr_state=committed(registration.isr),
                epoch_start=self.log.log_end_offset,
                settled=self.settled,
            )
        leadership.install(registration)
        if self.leader_epoch > previous_epoch:
            follows_ours = self.is_leader and self.leader_epoch == previous_epoch + 1
            leadership.begin_leader_epoch(reelected=follows_ours, is_recorded=not self.read_only)
        newly = not self.is_leader
        self.leadership = leadership
        leadership.maybe_advance_high_watermark()
        return newly

    def make_follower(self, registration: PartitionRegistration) -> bool:
        """Follow, or wait for a leader; return whether a new leader epoch has begun."""
        if registration.partition_epoch < self.partition_epoch:
            return False
        new_epoch = registration.leader_epoch > self.leader_epoch
        self._install(registration)
        self.leadership = None
        return new_epoch

    def _install(self, registration: PartitionRegistration) -> None:
        assert registration.leader_epoch >= self.leader_epoch, "leader epochs only grow"
        self.settled.unsettle()
        self.leader = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.replicas = registration.replicas
        self.adding = registration.adding
        self.removing = registration.removing
        self._partition_epoch = registration.partition_epoch

    def configure(self, *, min_insync_replicas: int, read_only: bool = False) -> None:
        """Set the minimum ISR; a smaller one may let the high watermark advance."""
        self.read_only = read_only
        self.min_insync_replicas = min_insync_replicas
        if self.leadership is not None:
            self.leadership.configure(min_insync_replicas=min_insync_replicas)

    def check_access(self, current_leader_epoch: LeaderEpoch, *, leader_only: bool) -> None:
        """Raise KafkaError if the epoch or the role does not fit (Rule 1)."""
        if current_leader_epoch not in (NO_LEADER_EPOCH, self.leader_epoch):
            fenced = current_leader_epoch < self.leader_epoch
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH if fenced else ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"{self.topic_partition} is at epoch {self.leader_epoch}",
            )
        if leader_only and self.leadership is None:
            self._lead()

    def _lead(self) -> Leadership:
        if self.leadership is None:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} is led by {self.leader}"
            )
        return self.leadership

    def _check_may_change(self) -> None:
        if self.read_only:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{self.topic_partition} is a copy of another cluster's, until it is promoted",
            )

    # Appends.

    def append_as_leader(
        self,
        records: memoryview | PreparedAppend,
        *,
        required_acks: int,
        wall_ms: int,
        from_client: bool = True,
        terms: TransactionTerms = NO_TERMS,
        allowance: Allowance | None = None,
    ) -> LogAppendInfo:
        """Append a producer's records; raise KafkaError or StorageError if they are refused.

        LongCheckError says that the checks cost more than `allowance`. If the log's
        `flush_is_due` after that, the caller flushes it and then calls `flushed`.
        """
        leadership = self._lead()
        self._check_may_change()
        if required_acks == ACKS_ALL and leadership.under_min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition} has {len(leadership.isr)} replicas in sync,"
                f" {leadership.effective_min_isr} are needed",
            )
        info = self.log.append_as_leader(
            records,
            leader_epoch=self.leader_epoch,
            wall_ms=wall_ms,
            from_client=from_client,
            terms=terms,
            flush=False,
            allowance=allowance,
        )
        # Records that must be flushed first do not advance the high watermark yet.
        if self.log.flush_is_due or not leadership.maybe_advance_high_watermark():
            self.reader.share(partial(self.around.observer.log_end_moved, leadership))
        return info

    def flushed(self) -> None:
        """Advance the high watermark over records that `flush.messages` made durable.

        It may pass records that arrived meanwhile: in Kafka, too, it does not wait for their sync.
        """
        if self.leadership is not None:
            self.leadership.maybe_advance_high_watermark()

    def append_as_follower(
        self,
        records: memoryview,
        *,
        fetch_offset: Offset,
        leader_epoch: LeaderEpoch,
        high_watermark: Offset,
        log_start_offset: Offset,
        wall_ms: int,
    ) -> LogAppendInfo:
        """Append records that the leader of `leader_epoch` sent, and take its offsets.

        (ReplicaFetcherThread.processPartitionData.)
        """
        log = self.log
        if fetch_offset != log.local.log_end_offset:
            raise UnexpectedAppendOffsetError(
                f"{self.topic_partition} was fetched from {fetch_offset},"
                f" but its log ends at {log.log_end_offset}",
                first_offset=fetch_offset,
                last_offset=fetch_offset,
            )
        is_older = log.latest_epoch is not None and log.latest_epoch < leader_epoch
        info = self._append_from_leader(records, leader_epoch, wall_ms)
        log.update_high_watermark(high_watermark)
        if log_start_offset > log.log_start_offset:
            log.increment_log_start_offset(log_start_offset)
            if is_older and fetch_offset <= log_start_offset:
                # All that was here lies below the leader's log: nothing says that it is the same.
                log.keep_log_start()
        return info

    def _append_from_leader(
        self, records: memoryview, leader_epoch: LeaderEpoch, wall_ms: int
    ) -> LogAppendInfo:
        log = self.log
        try:
            return log.append_as_follower(records, leader_epoch=leader_epoch, wall_ms=wall_ms)
        except UnexpectedAppendOffsetError as error:
            # The leader's log starts inside a batch (after DeleteRecords). An empty log may start
            # where that batch does, and one that was cut inside of its own batch may end there:
            # nothing of that is left. Any other overlap is a divergence.
            log_end = log.log_end_offset
            if not error.first_offset < log_end <= error.last_offset:
                raise
            if log_end == log.log_start_offset:
                log.truncate_fully_and_start_at(error.first_offset)
            elif log.segments.active.end_offset <= error.first_offset:
                log.truncate_to(error.first_offset)
            else:
                raise
            return log.append_as_follower(records, leader_epoch=leader_epoch, wall_ms=wall_ms)

    # Deleting records.

    def delete_records(self, offset: Offset) -> Offset:
        """Delete the records below `offset`; HIGH_WATERMARK deletes all that are committed.

        Return the offset at which every replica's log must start then. Raises
        OffsetOutOfRangeError for an offset above the high watermark.
        """
        self._lead()
        self._check_may_change()
        if not self.log.config.is_deleted:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{self.topic_partition} keeps the last record of every key (cleanup.policy)",
            )
        start = self.log.high_watermark if offset == HIGH_WATERMARK else offset
        if start < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{start} is no offset")
        self.log.increment_log_start_offset(start)
        return start

    def deleted(self, offset: Offset) -> ErrorCode | None:
        """Return NONE once no live replica has records below `offset`; None until then."""
        return ErrorCode.NONE if self._lead().low_watermark >= offset else None

    # Fetches.

    def fetch(
        self, params: FetchParams, info: FetchInfo, *, max_bytes: int, min_one: bool, note: bool
    ) -> FetchPartitionData:
        """Read the records that `info` requests; with `note`, record the follower's position."""
        from_follower = params.from_follower
        preferred = NO_REPLICA if from_follower else self._preferred_replica(params, info)
        if preferred != NO_REPLICA:
            self.check_access(info.current_leader_epoch, leader_only=False)
            idle = self.reader.idle(Isolation.HIGH_WATERMARK)
            return attrs.evolve(idle, preferred_read_replica=preferred)
        self.check_access(info.current_leader_epoch, leader_only=params.leader_only)
        if from_follower:
            self._check_follower(params, info)
        log_end = self.log.local.log_end_offset
        answer = self.reader.read(
            info,
            params.isolation,
            max_bytes=max_bytes,
            min_one=min_one,
            allow_incomplete=params.hard_max_bytes,
            passes_empty=params.replica_id == CONSUMER_REPLICA_ID,
        )
        if note and from_follower and answer.diverging_epoch is None:
            assert self.leadership is not None, "only a leader may answer a follower"
            self.leadership.on_fetch(
                params.replica_id,
                fetch_offset=info.fetch_offset,
                log_start_offset=info.log_start_offset,
                leader_log_end=log_end,
                broker_epoch=params.replica_epoch,
            )
        return answer

    def may_settle(self, params: FetchParams, info: FetchInfo, answer: FetchPartitionData) -> bool:
        """Return whether this fetch would get the same answer until something here changes.

        A follower's fetch must also say nothing but that the follower is alive.
        """
        at_end = info.fetch_offset == self.reader.end_for(params.isolation)
        if not at_end or answer is not self.reader.idle(params.isolation):
            return False
        if params.from_follower:
            # A follower outside the ISR may join with any fetch, once it is eligible.
            return params.replica_id in self.isr
        return self.leadership is None or self.around.selector is None

    def settle(self, watch: SessionWatch, params: FetchParams) -> None:
        """Settle the partition in a session: `may_settle` was true, and the fetch was noted."""
        follower = self._lead().followers[params.replica_id] if params.from_follower else None
        self.settled.settle(watch, follower)

    def _preferred_replica(self, params: FetchParams, info: FetchInfo) -> int:
        """Return the replica that a consumer should read from; NO_REPLICA for this one.

        Only a leader sends consumers elsewhere: followers could send them around in a circle.
        """
        if self.leadership is None or params.client_metadata is None:
            return NO_REPLICA
        return self.leadership.preferred_replica(params.client_metadata, info.fetch_offset)

    def _check_follower(self, params: FetchParams, info: FetchInfo) -> None:
        broker = params.replica_id
        assert self.leadership is not None, "only a leader may answer a follower"
        if broker not in self.leadership.followers:
            # Its metadata may be newer than ours.
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER
                if info.current_leader_epoch == NO_LEADER_EPOCH
                else ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"broker {broker} is no replica of {self.topic_partition}",
            )
        registered = self.around.metadata().broker_epoch(broker)
        if registered is not None and NO_BROKER_EPOCH != params.replica_epoch < registered:
            # KIP-903: sent by a process that has been replaced since.
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {broker} is at epoch {registered}"
            )

    def available_bytes(self, params: FetchParams, info: FetchInfo, *, enough: int) -> int | None:
        """Return how many bytes a waiting fetch would get now, at most `enough` if that is certain.

        Return None if the fetch has to be answered at once.
        """
        try:
            self.check_access(info.current_leader_epoch, leader_only=params.leader_only)
        except KafkaError:
            return None
        return self.reader.available_bytes(info, params.isolation, enough=enough)

    def produced(self, required_offset: Offset) -> ErrorCode | None:
        """Return the outcome of an acks=all append up to `required_offset`; None while it waits."""
        if self.leadership is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return self.leadership.produced(required_offset)

    def snapshot(self) -> ReplicaSnapshot:
        leadership = self.leadership
        return ReplicaSnapshot(
            topic_id=self.topic_id,
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            is_leader=self.is_leader,
            log_start_offset=self.log.log_start_offset,
            log_end_offset=self.log.log_end_offset,
            high_watermark=self.log.high_watermark,
            replicas=self.replicas,
            isr=self.isr,
            maximal_isr=_NOBODY if leadership is None else leadership.maximal_isr,
            under_min_isr=leadership is not None and leadership.under_min_isr,
        )
