"""One task that keeps this broker's copies of one leader's partitions alike to the leader's.

(AbstractFetcherThread and ReplicaFetcherThread in Kafka.)

    do_work, for ever
      maybe_truncate   cut the logs that must be cut before they may be fetched
      maybe_fetch      one request for every partition that is ready, in round-robin order
        process_fetch_request
          records          append, move the high watermark, go on behind them
          a divergence     cut to where it may be, and fetch again from there
          out of range     ask the leader for its ends, cut or start over
          another error    leave that partition alone for a while
      then wake the consumers who wait for a high watermark here

Rule 1: the fetcher owns its partitions' states. Nothing is awaited between reading one and
writing it back; after an answer has been awaited, a partition counts only if it is still
there and still where the request said it was. So partitions may be added and removed at
any time, by plain calls.

Rule 2: one partition's trouble is its own. It is delayed, or failed and given up until
somebody adds it again at a newer epoch; the others go on.

Rule 3: records are appended before anything else is awaited: they lie in the connection's
receive buffer. Partitions out of range, about which the leader must be asked more, wait
until every append of that answer is done.

Rule 4: what the leader or the disk does is handled here. An exception that is nobody's but
ours goes to `on_bug`: where it concerns one partition that one fails, else the task ends,
and counts as dead.

Where a fetch can tell a divergence (v12 and later), partitions need no truncation first and
`maybe_truncate` finds nothing to do; older versions ask for the ends of epochs there.
"""

from collections.abc import Callable, Iterable, Mapping

import attrs
import trio

from replication.errors import ErrorCode, PeerUnavailableError, ProtocolError, UnderstudyError
from replication.events import EventSink, ignore
from replication.follower.fetch_responses import Aftermath, AnswerProcessor
from replication.follower.fetcher_stats import FetcherStats
from replication.follower.followed_partitions import FollowedPartitions, OnBug
from replication.follower.followed_replicas import FollowedReplicas
from replication.follower.leader_endpoint import LeaderEndpoint
from replication.follower.rules.fetch_session_handler import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    FetchRequestData,
    FetchRequestParams,
    FetchSessionHandler,
    WantedPartition,
)
from replication.follower.rules.fetch_state import (
    FailedPartitions,
    InitialFetchState,
    PartitionFetchState,
    PartitionStates,
)
from replication.follower.truncator import Truncator
from replication.net.seams import NodeClock
from storage.errors import StorageError
from storage.types import NO_LEADER_EPOCH, TopicId, TopicPartition

_NO_ANSWER = (PeerUnavailableError, ProtocolError)


@attrs.frozen(kw_only=True)
class FetcherConfig:
    """Kafka's replica.fetch.* settings, and who fetches."""

    replica_id: int
    """Negative: of nobody who could be in an ISR. Such a one is answered as a consumer is."""
    isolation_level: int = 0
    """For a consumer, 1: nothing of a transaction that is still open (READ_COMMITTED)."""
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 10 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    backoff_ms: int = 1000


def never_throttled(_: TopicPartition) -> bool:
    return False


def no_broker_epoch() -> int:
    return -1


@attrs.define(kw_only=True)
class ReplicaFetcher:
    """Follows one leader; see the head of this module."""

    name: str
    leader: LeaderEndpoint
    replicas: FollowedReplicas
    config: FetcherConfig
    clock: NodeClock
    failed: FailedPartitions
    stats: FetcherStats
    on_bug: OnBug
    sink: EventSink = ignore
    broker_epoch: Callable[[], int] = no_broker_epoch
    is_throttled: Callable[[TopicPartition], bool] = never_throttled
    """Asked about partitions that are not in sync; those in sync are never held back."""
    is_dead: bool = attrs.field(init=False, default=False)
    """Ended by a mistake of ours, its partitions unfetched (DeadThreadCount)."""
    session: FetchSessionHandler = attrs.field(init=False)
    _partitions: FollowedPartitions = attrs.field(init=False)
    _truncator: Truncator = attrs.field(init=False)
    _answers: AnswerProcessor = attrs.field(init=False)
    _rejections: int = attrs.field(init=False, default=0)
    _wakeup: trio.Event = attrs.field(init=False, factory=trio.Event)
    _stopping: bool = attrs.field(init=False, default=False)
    _close_begun: bool = attrs.field(init=False, default=False)
    _stopped: trio.Event | None = attrs.field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        self.session = FetchSessionHandler(self.leader.broker.id)
        self._partitions = FollowedPartitions(
            leader=self.leader.broker,
            replicas=self.replicas,
            truncation_on_fetch=self.leader.supports_truncation_on_fetch,
            clock=self.clock,
            backoff=self._backoff,
            failed=self.failed,
            stats=self.stats,
            on_bug=self.on_bug,
            sink=self.sink,
        )
        self._truncator = Truncator(
            self._partitions, self.leader, as_consumer=self.config.replica_id < 0
        )
        self._answers = AnswerProcessor(self._partitions)

    @property
    def _backoff(self) -> float:
        return self.config.backoff_ms / 1000

    # -- which partitions -----------------------------------------------------

    def add_partitions(
        self, initial_states: Mapping[TopicPartition, InitialFetchState]
    ) -> set[TopicPartition]:
        """Follow these too, or from here on at a new epoch; failed ones get another chance."""
        self._partitions.add(initial_states)
        self._wakeup.set()
        return set(initial_states)

    def remove_partitions(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionFetchState]:
        """Follow these no more; the states of those that were followed."""
        return self._partitions.remove(partitions)

    def remove_all_partitions(self) -> dict[TopicPartition, PartitionFetchState]:
        return self._partitions.remove(self.states.partitions())

    def maybe_update_topic_ids(self, topic_ids: Mapping[TopicPartition, TopicId]) -> None:
        """Ids that were not known when the partitions were added; unknown partitions are let be."""
        self._partitions.update_topic_ids(topic_ids)
        self._wakeup.set()

    def log_start_moved(self, partition: TopicPartition) -> None:
        """Elsewhere than by an answer: the leader is to hear of it with the next request."""
        if partition in self.states:
            self.states.touch(partition)

    @property
    def states(self) -> PartitionStates:
        """Where each partition stands; for looking at."""
        return self._partitions.states

    def fetch_state(self, partition: TopicPartition) -> PartitionFetchState | None:
        return self.states.get(partition)

    @property
    def partition_count(self) -> int:
        return len(self.states)

    # -- the task -------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Work until `initiate_shutdown`, or until a mistake of ours."""
        self._stopped = trio.Event()
        task_status.started()
        try:
            while not self._stopping:
                await self._work_on()
        except Exception as bug:  # noqa: BLE001 - the boundary where a fetcher's mistake stops
            self.is_dead = True
            self.on_bug(bug)
        finally:
            self.stats.unregister()
            self._initiate_close()
            self._stopped.set()

    async def _work_on(self) -> None:
        try:
            await self.do_work()
        except _NO_ANSWER:
            self._partitions.delay(self.states.partitions())

    def initiate_shutdown(self) -> None:
        """Stop soon; nothing that is answered from now on is acted upon."""
        self._stopping = True
        self._initiate_close()
        self._wakeup.set()

    async def shutdown(self) -> None:
        """Stop, and wait until the task has."""
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
        """One round. ProtocolError where the leader answers for what it was not asked."""
        await self.maybe_truncate()
        await self.maybe_fetch()
        if moved := self._answers.take_high_watermarks_moved():
            self.replicas.complete_delayed_fetches(moved)

    async def maybe_truncate(self) -> None:
        """Cut what must be cut before it may be fetched; most often nothing."""
        await self._truncator.maybe_truncate()

    # -- fetching -------------------------------------------------------------

    async def maybe_fetch(self) -> None:
        """Fetch what is ready, or wait until something may be."""
        if self._stopping:
            return
        data = self._build_fetch()
        if data.is_empty:
            await self._wait_for_work()
        else:
            await self.process_fetch_request(data)

    def _build_fetch(self) -> FetchRequestData:
        """In an open session only what may have changed is looked at."""
        now = self.clock.now()
        changed = self.states.take_changed(now)
        if self.session.next_metadata.is_full:
            wanted = self._wanted_now(self.states.partitions(), now)
            return self.session.build({tp: each for tp, each in wanted.items() if each is not None})
        return self.session.build_changes(self._wanted_now(changed, now))

    def _wanted_now(
        self, partitions: Iterable[TopicPartition], now: float
    ) -> dict[TopicPartition, WantedPartition | None]:
        """What is to be asked of each; None: nothing."""
        wanted: dict[TopicPartition, WantedPartition | None] = {}
        errors: list[TopicPartition] = []
        for tp in partitions:
            wanted[tp] = None
            state = self.states.get(tp)
            if state is None or not state.is_ready_for_fetch(now) or self._holds_back(tp, state):
                continue
            try:
                wanted[tp] = self._wanted(tp, state)
            except (StorageError, UnderstudyError):
                errors.append(tp)
        self._partitions.delay(errors)
        return wanted

    def _holds_back(self, tp: TopicPartition, state: PartitionFetchState) -> bool:
        return not state.is_replica_in_sync and self.is_throttled(tp)

    def _wanted(self, tp: TopicPartition, state: PartitionFetchState) -> WantedPartition:
        last_fetched = state.last_fetched_epoch
        tells_divergence = self.leader.supports_truncation_on_fetch
        return WantedPartition(
            topic_id=state.topic_id,
            fetch_offset=state.fetch_offset,
            log_start_offset=self.replicas.log_start_offset(tp),
            max_bytes=self.config.partition_max_bytes,
            current_leader_epoch=state.current_leader_epoch,
            last_fetched_epoch=(
                last_fetched if tells_divergence and last_fetched is not None else NO_LEADER_EPOCH
            ),
        )

    async def _wait_for_work(self) -> None:
        """Until somebody has news, the first delay ends, or one backoff has passed."""
        now = self.clock.now()
        if not self.states:
            await self._news()
        elif self.states.truncating(now):
            await trio.lowlevel.checkpoint()  # half truncated: go on at once
        else:
            deadline = self.states.next_deadline(now)
            await self._pause(
                self._backoff if deadline is None else min(self._backoff, deadline - now)
            )

    async def _pause(self, seconds: float) -> None:
        """That long, or until somebody has news."""
        with self.clock.move_on_after(seconds):
            await self._news()

    async def _news(self) -> None:
        """A partition added, a topic id told, or the end. Whoever waits has awaited nothing since
        it looked, so that no news is older than this event.
        """
        self._wakeup = trio.Event()
        await self._wakeup.wait()

    async def process_fetch_request(self, data: FetchRequestData) -> None:
        """Send one request and act on what comes back."""
        ids_usable = data.can_use_topic_ids
        highest = self.leader.fetch_version
        version = highest if ids_usable else min(highest, FIRST_VERSION_WITH_TOPIC_IDS - 1)
        self.stats.requests.mark()
        try:
            response = await self.leader.fetch(
                data.to_wire(self._params(), version=version), version=version
            )
        except _NO_ANSWER:
            self.session.handle_error()
            if not self._stopping:
                self._partitions.delay(self.states.partitions())
            return
        if self._stopping:
            return
        answers = self.session.handle_response(response, version=version)
        if answers is None:
            await self._on_rejected(ErrorCode.of(response.error_code))
            return
        self._rejections = 0
        await self._clear_up(self._answers.process(data.session_partitions, answers))

    def _params(self) -> FetchRequestParams:
        config = self.config
        return FetchRequestParams(
            replica_id=config.replica_id,
            replica_epoch=self.broker_epoch(),
            max_wait_ms=config.max_wait_ms,
            min_bytes=config.min_bytes,
            max_bytes=config.max_bytes,
            isolation_level=config.isolation_level,
        )

    async def _on_rejected(self, error: ErrorCode) -> None:
        """No answer to use. Ask anew at once, with a new session; only a leader that does it
        again is given a pause (Kafka asks it as fast as it answers).
        """
        if error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR:
            self._partitions.delay(self.states.partitions())
            return
        self._rejections += 1
        if self._rejections > 1:
            await self._pause(self._backoff)

    async def _clear_up(self, aftermath: Aftermath) -> None:
        self._truncator.truncate_to_ends(aftermath.diverging, cause="diverging epoch")
        self._partitions.delay(aftermath.errors)
        for tp, state in aftermath.out_of_range.items():
            if self.states.get(tp) is state:
                await self._truncator.find_offset(tp, state)
