"""One task that follows one leader's partitions: it fetches, appends and truncates.

(AbstractFetcherThread and ReplicaFetcherThread in Kafka.)

    do_work, for ever
      maybe_truncate   truncate the logs that must be truncated before they may be fetched
      process_fetch_request
                       one request for every partition that is ready, in round-robin order
        records              append, take the high watermark, fetch the next ones
        a divergence         truncate to where the logs may agree, fetch again from there
        out of range         ask the leader for its log's ends, truncate or start over
        FENCED_LEADER_EPOCH  give the partition up until newer metadata arrives
        another error        leave the partition alone for one backoff
      then wake the consumers that wait for a high watermark here

`partitions.py` owns the partitions' states; this task and `log_truncation.py` work on them, and
`rules/` decides.

Rule 1: nothing is awaited between reading a state and writing it back. After a response was
awaited, a partition counts only if it is still at the offset and leader epoch of the request.

Rule 2: an error of one partition concerns that partition only: it is delayed, or it fails.

Rule 3: records are appended before anything else is awaited, because they lie in the connection's
receive buffer. What needs another question to the leader waits until every append is done.

Rule 4: errors of the leader and of the disk are handled here. Any other exception goes to
`on_bug`: if it concerns one partition that partition fails, else the task ends and counts as dead.
"""

from collections.abc import Callable, Iterable, Mapping

import attrs
import trio

from replication.errors import (
    NO_ANSWER,
    ErrorCode,
    OnBug,
    UnderstudyError,
)
from replication.events import EventSink, ignore
from replication.follower.followed_replicas import AppendInfo, FollowedReplicas
from replication.follower.leader_endpoint import LeaderEndpoint
from replication.follower.log_truncation import (
    fetch_offset_and_truncate,
    maybe_truncate,
    truncate_to_epoch_ends,
)
from replication.follower.partitions import FetcherStats, FollowedPartitions
from replication.follower.rules.fetch_session_handler import (
    FetchRequestData,
    FetchRequestParams,
    FetchSessionHandler,
    WantedPartition,
)
from replication.follower.rules.fetch_state import PartitionFetchState
from replication.net.seams import NodeClock
from replication.wire.fetch import FIRST_VERSION_WITH_TOPIC_IDS, PartitionData, ReplicaState
from storage.attributes import define, frozen
from storage.errors import (
    CorruptRecordError,
    InvalidRecordError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    StorageError,
)
from storage.types import NO_BROKER_EPOCH, NO_LEADER_EPOCH, Offset, OffsetAndEpoch, TopicPartition


@frozen(kw_only=True)
class FetcherConfig:
    """Kafka's replica.fetch.* settings, and who fetches."""

    replica_id: int
    """Broker id of the follower. Negative for a reader that can never join an ISR; the leader
    answers it as a consumer."""
    isolation_level: int = 0
    """1 (READ_COMMITTED) lets a consumer read no records of transactions that are still open."""
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 10 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    backoff_ms: int = 1000


def never_throttled(_: TopicPartition) -> bool:
    return False


def no_broker_epoch() -> int:
    return NO_BROKER_EPOCH


@define
class FollowUp:
    """The work that a fetch response leaves once its records are appended."""

    diverging: dict[TopicPartition, OffsetAndEpoch] = attrs.field(factory=dict)
    out_of_range: dict[TopicPartition, PartitionFetchState] = attrs.field(factory=dict)
    errors: list[TopicPartition] = attrs.field(factory=list)


@define(kw_only=True)
class ReplicaFetcher:
    """The task that follows one leader (see the head of this module)."""

    name: str
    leader: LeaderEndpoint
    replicas: FollowedReplicas
    config: FetcherConfig
    clock: NodeClock
    failed: set[TopicPartition]
    """The partitions given up; all fetchers of a manager share it."""
    stats: FetcherStats
    on_bug: OnBug
    sink: EventSink = ignore
    broker_epoch: Callable[[], int] = no_broker_epoch
    is_throttled: Callable[[TopicPartition], bool] = never_throttled
    """Called for partitions that are not in sync; the others are never throttled."""
    is_dead: bool = attrs.field(init=False, default=False)
    """Whether a bug ended the task while it still had partitions (DeadThreadCount)."""
    session: FetchSessionHandler = attrs.field(init=False)
    partitions: FollowedPartitions = attrs.field(init=False)
    _rejections: int = attrs.field(init=False, default=0)
    _made_params: FetchRequestParams | None = attrs.field(init=False, default=None)
    _stopping: bool = attrs.field(init=False, default=False)
    _close_begun: bool = attrs.field(init=False, default=False)
    _stopped: trio.Event | None = attrs.field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        self.session = FetchSessionHandler(self.leader.broker.id)
        self.partitions = FollowedPartitions(
            leader=self.leader,
            replicas=self.replicas,
            clock=self.clock,
            backoff=self.config.backoff_ms / 1000,
            failed=self.failed,
            stats=self.stats,
            on_bug=self.on_bug,
            sink=self.sink,
            as_consumer=self.config.replica_id < 0,
        )

    # -- the task -------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Work until `initiate_shutdown` is called, or until a bug."""
        self._stopped = trio.Event()
        task_status.started()
        try:
            while not self._stopping:
                try:
                    await self.do_work()
                except NO_ANSWER as error:
                    self.partitions.report_unusable(error)
                    self.partitions.delay(self.partitions.states.partitions())
        except Exception as bug:  # noqa: BLE001 - the boundary at which a fetcher's bug stops
            self.is_dead = True
            self.on_bug(bug)
        finally:
            self.stats.unregister()
            self._initiate_close()
            self._stopped.set()

    def initiate_shutdown(self) -> None:
        """Stop soon; responses that arrive from now on change nothing."""
        self._stopping = True
        self._initiate_close()
        self.partitions.wake()

    async def shutdown(self) -> None:
        """Stop, and wait until the task has ended."""
        self.initiate_shutdown()
        if self._stopped is not None:
            await self._stopped.wait()
        self.stats.unregister()
        try:
            await self.leader.close()
        except Exception as error:  # noqa: BLE001 - nothing may keep a broker from stopping
            self._on_close_error(error)

    def _initiate_close(self) -> None:
        if self._close_begun:
            return
        self._close_begun = True
        try:
            self.leader.initiate_close()
        except Exception as error:  # noqa: BLE001 - nothing may keep a broker from stopping
            self._on_close_error(error)

    def _on_close_error(self, error: Exception) -> None:
        if not isinstance(error, (UnderstudyError, OSError)):
            self.on_bug(error)

    async def do_work(self) -> None:
        """Do one round: truncate, fetch, and wake the consumers that may read more now.

        Without a partition that is ready, wait until one may be. Raises ProtocolError if the leader
        answers for a partition that was not in the request.
        """
        if self.partitions.states.any_truncating:
            await maybe_truncate(self.partitions)
        if self._stopping:
            return
        data = self._build_fetch()
        if data.is_empty:
            await self._wait_for_work()
        else:
            await self.process_fetch_request(data)
        self.replicas.complete_delayed_fetches()

    # -- the request ----------------------------------------------------------

    def _build_fetch(self) -> FetchRequestData:
        """Return the next request; in an open session only changed partitions are looked at."""
        now = self.clock.now()
        changed = self.partitions.states.take_changed(now)
        if self.session.next_metadata.is_full:
            wanted = self._wanted_now(self.partitions.states.partitions(), now)
            return self.session.build({tp: each for tp, each in wanted.items() if each is not None})
        return self.session.build_changes(self._wanted_now(changed, now))

    def _wanted_now(
        self, partitions: Iterable[TopicPartition], now: float
    ) -> dict[TopicPartition, WantedPartition | None]:
        """Return what to request of each partition; None for one that is not to be fetched now."""
        wanted: dict[TopicPartition, WantedPartition | None] = {}
        errors: list[TopicPartition] = []
        for tp in partitions:
            wanted[tp] = None
            state = self.partitions.states.get(tp)
            if state is None or not state.is_ready_for_fetch(now):
                continue
            if not state.is_replica_in_sync and self.is_throttled(tp):
                continue
            try:
                wanted[tp] = self._wanted(tp, state)
            except (StorageError, UnderstudyError):
                errors.append(tp)
        if errors:
            self.partitions.delay(errors)
        return wanted

    def _wanted(self, tp: TopicPartition, state: PartitionFetchState) -> WantedPartition:
        last_fetched = state.last_fetched_epoch
        if last_fetched is None or not self.leader.supports_truncation_on_fetch:
            last_fetched = NO_LEADER_EPOCH
        return WantedPartition(
            topic_id=state.topic_id,
            fetch_offset=state.fetch_offset,
            log_start_offset=self.replicas.log_start_offset(tp),
            max_bytes=self.config.partition_max_bytes,
            current_leader_epoch=state.current_leader_epoch,
            last_fetched_epoch=last_fetched,
        )

    async def _wait_for_work(self) -> None:
        """Wait until partitions change, the first delay ends, or one backoff has passed."""
        now = self.clock.now()
        if not self.partitions.states:
            await self.partitions.wait_for_changes()
        elif self.partitions.states.truncating(now):
            await trio.lowlevel.checkpoint()  # a truncation is not completed: go on at once
        else:
            deadline = self.partitions.states.next_deadline(now)
            await self._pause(
                self.partitions.backoff
                if deadline is None
                else min(self.partitions.backoff, deadline - now)
            )

    async def _pause(self, seconds: float) -> None:
        """Wait so many seconds, or less if partitions change."""
        with self.clock.move_on_after(seconds):
            await self.partitions.wait_for_changes()

    async def process_fetch_request(self, data: FetchRequestData) -> None:
        """Send one request and act on the response."""
        ids_usable = data.can_use_topic_ids
        highest = self.leader.fetch_version
        version = highest if ids_usable else min(highest, FIRST_VERSION_WITH_TOPIC_IDS - 1)
        self.stats.requests.mark()
        try:
            response = await self.leader.fetch(
                data.to_wire(self._params(), version=version), version=version
            )
        except NO_ANSWER as error:
            self.session.handle_error()
            if not self._stopping:
                self.partitions.report_unusable(error)
                self.partitions.delay(self.partitions.states.partitions())
            return
        if self._stopping:
            return
        responses = self.session.handle_response(response, version=version)
        if responses is None:
            await self._on_rejected(ErrorCode.of(response.error_code))
            return
        self._rejections = 0
        follow_up = self._process_responses(data.session_partitions, responses)
        if follow_up.diverging:
            truncate_to_epoch_ends(self.partitions, follow_up.diverging, cause="diverging epoch")
        if follow_up.errors:
            self.partitions.delay(follow_up.errors)
        for tp, state in follow_up.out_of_range.items():
            if self.partitions.states.get(tp) is state:
                await fetch_offset_and_truncate(self.partitions, tp, state)

    def _params(self) -> FetchRequestParams:
        """Return the parameters of every request, made anew when the broker has another epoch."""
        epoch, made = self.broker_epoch(), self._made_params
        if made is None or made.replica.replica_epoch != epoch:
            made = self._made_params = self._make_params(epoch)
        return made

    def _make_params(self, replica_epoch: int) -> FetchRequestParams:
        config = self.config
        return FetchRequestParams(
            replica=ReplicaState(replica_id=config.replica_id, replica_epoch=replica_epoch),
            max_wait_ms=config.max_wait_ms,
            min_bytes=config.min_bytes,
            max_bytes=config.max_bytes,
            isolation_level=config.isolation_level,
        )

    async def _on_rejected(self, error: ErrorCode) -> None:
        """Fetch again at once in a new session; pause if the leader rejects that as well.

        Kafka sends its requests as fast as such a leader answers.
        """
        if error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR:
            self.partitions.delay(self.partitions.states.partitions())
            return
        self._rejections += 1
        if self._rejections > 1:
            await self._pause(self.partitions.backoff)

    # -- the response: nothing is awaited here (Rule 3) -----------------------

    def _process_responses(
        self,
        requested: Mapping[TopicPartition, WantedPartition],
        responses: Mapping[TopicPartition, PartitionData],
    ) -> FollowUp:
        """Append the records, and return what else has to be done.

        Skip a partition that is not where the request said: removed, added again, truncated or
        delayed meanwhile, or followed at another leader epoch, about which neither the records
        nor the divergence of an earlier one say anything (KAFKA-18991).
        """
        follow_up = FollowUp()
        now = self.clock.now()
        for tp, data in responses.items():
            state, asked = self.partitions.states.get(tp), requested.get(tp)
            if (
                state is not None
                and asked is not None
                and state.fetch_offset == asked.fetch_offset
                and state.current_leader_epoch == asked.current_leader_epoch
                and state.is_ready_for_fetch(now)
            ):
                self._process_response(tp, state, data, follow_up)
        return follow_up

    def _process_response(
        self,
        tp: TopicPartition,
        state: PartitionFetchState,
        data: PartitionData,
        follow_up: FollowUp,
    ) -> None:
        if data.error_code == ErrorCode.NONE:
            diverging = data.diverging_epoch
            if diverging.epoch >= 0 and self.leader.supports_truncation_on_fetch:
                follow_up.diverging[tp] = OffsetAndEpoch(diverging.end_offset, diverging.epoch)
            elif not self._append(tp, state, data):
                follow_up.errors.append(tp)
            return
        match ErrorCode.of(data.error_code):
            case ErrorCode.OFFSET_OUT_OF_RANGE:
                follow_up.out_of_range[tp] = state
            case ErrorCode.FENCED_LEADER_EPOCH:
                self.partitions.on_fenced(tp, state.current_leader_epoch)
            case _:
                # A leader that does not know of us or of its own role yet, one that is no longer
                # the leader, a broken disk there: any of it may be over after a while.
                self.partitions.report_refused(tp, state.current_leader_epoch, data.error_code)
                follow_up.errors.append(tp)

    def _append(self, tp: TopicPartition, state: PartitionFetchState, data: PartitionData) -> bool:
        """Append the records; return False if they must be fetched again.

        Any other error fails the partition.
        """
        try:
            self.partitions.states.touch(tp)  # its log may start elsewhere now
            appended = self.replicas.process_partition_data(
                tp, state.fetch_offset, state.current_leader_epoch, data
            )
        except (RecordTooLargeError, RecordBatchTooLargeError) as error:
            self.partitions.on_log_error(tp, error)
        except (CorruptRecordError, InvalidRecordError):
            self.partitions.report_refused(
                tp, state.current_leader_epoch, ErrorCode.CORRUPT_MESSAGE
            )
            return False
        except Exception as error:  # noqa: BLE001 - an error of one partition is its own
            self.partitions.on_log_error(tp, error)
        else:
            if appended is not None and tp in self.partitions.states:
                self._advance(tp, state, appended, leader_high_watermark=data.high_watermark)
        return True

    def _advance(
        self,
        tp: TopicPartition,
        state: PartitionFetchState,
        appended: AppendInfo,
        *,
        leader_high_watermark: Offset,
    ) -> None:
        """Fetch the next offset from now on; a partition that brought records moves to the end."""
        any_bytes = appended.valid_bytes > 0
        next_offset = appended.last_offset + 1 if any_bytes else state.fetch_offset
        lag = max(0, leader_high_watermark - next_offset)
        self.stats.set_lag(tp, lag)
        if any_bytes:
            self.stats.appended_bytes.mark(appended.valid_bytes)
        elif state.lag is not None:
            return
        self.partitions.states.update_and_move_to_end(
            tp,
            state.advanced(
                next_offset,
                lag=lag,
                last_fetched_epoch=(
                    appended.last_leader_epoch if any_bytes else state.last_fetched_epoch
                ),
            ),
        )
