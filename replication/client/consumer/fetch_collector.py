"""The way from fetched records to those that are handed over, and the meaning of errors.

    error of a partition                                  what follows
    NOT_LEADER_OR_FOLLOWER, REPLICA_NOT_AVAILABLE,        the metadata is stale: it is requested;
    KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH,             fetched again, from the leader
    OFFSET_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION,
    UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID
    OFFSET_OUT_OF_RANGE                                   from a follower: the leader is fetched from
                                                          from the leader: reset, or raised
    TOPIC_AUTHORIZATION_FAILED, CORRUPT_MESSAGE           raised
    UNKNOWN_LEADER_EPOCH, UNKNOWN_SERVER_ERROR            fetched again
    anything else                                         raised

Rule 1: a pass takes at most `max.poll.records`, and fewer only if there are no more, or if the
next batch is long (`CompletedFetch`).

Rule 2: the position moves when records are taken, and nothing may fail between that and
handing them over. An error is raised when nothing was taken; otherwise it waits in the buffer.

Rule 3: a partition is fetched again after `retry.backoff.ms`, or as soon as another leader is
known. (Kafka's client asks again at once, as fast as the broker refuses.)

Rule 4: records that were fetched for another position than the present one are dropped: the
program has sought elsewhere meanwhile, or lost the partition and got it back.

(Kafka: FetchCollector.)
"""

from collections.abc import Callable, Container
from typing import Any, TypeAlias

import attrs

from replication.client.consumer.completed_fetch import CompletedFetch, FetchBuffer
from replication.client.consumer.config import ConsumerConfig
from replication.client.consumer.errors import CorruptRecordsError, OffsetOutOfRangeError
from replication.client.consumer.metrics import FetchMetrics
from replication.client.consumer.position import FetchPosition
from replication.client.consumer.records import ConsumerRecords, OffsetAndMetadata
from replication.client.consumer.subscription import SubscriptionState
from replication.client.errors import TopicAuthorizationFailedError
from replication.errors import ErrorCode, KafkaError
from replication.net.seams import Offload
from storage.attributes import define
from storage.errors import StorageError
from storage.types import TopicPartition

_STALE_METADATA = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
Take: TypeAlias = Callable[[CompletedFetch, int], list[Any]]

_FETCHED_AGAIN = frozenset({ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR})


@define(eq=False)
class Collected:
    """The records of one pass; not empty also if a position moved without a record."""

    records: dict[TopicPartition, list[Any]] = attrs.field(factory=dict)
    """Records or Arrow batches, as they were taken."""
    next_offsets: dict[TopicPartition, OffsetAndMetadata] = attrs.field(factory=dict)
    position_advanced: bool = False
    count: int = 0

    @property
    def is_empty(self) -> bool:
        return not self.count and not self.position_advanced

    def add(
        self,
        tp: TopicPartition,
        records: list[Any],
        position: FetchPosition,
        *,
        advanced: bool,
    ) -> None:
        self.position_advanced |= advanced
        if records:
            self.records.setdefault(tp, []).extend(records)
            self.count += len(records)
            self.next_offsets[tp] = OffsetAndMetadata(
                position.offset, leader_epoch=position.offset_epoch
            )

    def handed_over(self) -> ConsumerRecords:
        return ConsumerRecords(self.records, self.next_offsets)


@define(eq=False, kw_only=True)
class FetchCollector:
    """Takes records from the buffer; nothing else moves the positions of `subscriptions`."""

    config: ConsumerConfig
    subscriptions: SubscriptionState
    buffer: FetchBuffer
    request_metadata: Callable[[], None]
    now_ms: Callable[[], float]
    metrics: FetchMetrics

    def collect(
        self,
        most: int | None = None,
        only: Container[TopicPartition] | None = None,
        take: Take = CompletedFetch.take,
    ) -> Collected:
        """Return up to `most` (max.poll.records) records that may be handed over now.

        With `only`, buffered records of other partitions stay. `take` takes records from a fetch.
        """
        collected = Collected()
        remaining = self.config.max_poll_records if most is None else most
        left: list[CompletedFetch] = []
        try:
            while collected.count < remaining:
                fetch = self.buffer.next_in_line
                if fetch is None or fetch.consumed:
                    if not self._line_up(collected):
                        break
                elif self.subscriptions.is_paused(fetch.partition) or not (
                    only is None or fetch.partition in only
                ):
                    left.append(fetch)
                    self.buffer.next_in_line = None
                else:
                    self._take(fetch, collected, remaining - collected.count, take)
                    if fetch.long_work is not None:
                        break
        except KafkaError:
            if collected.is_empty:
                raise
        finally:
            self.buffer.add_all(left)
        return collected

    async def read_long_batch(self, offload: Offload) -> bool:
        """Decode the next batch in a thread if it is long; return whether it was."""
        fetch = self.buffer.next_in_line
        if fetch is None or (work := fetch.long_work) is None:
            return False
        try:
            fetch.finish_long_work(await offload(work))
        except StorageError as error:
            fetch.finish_long_work(error)
        return True

    def _line_up(self, collected: Collected) -> bool:
        """Begin to read the head of the queue; return False if the queue is empty."""
        fetch = self.buffer.peek()
        if fetch is None:
            return False
        try:
            ready = fetch.initialized or self._initialize(fetch)
        except KafkaError:
            # One with records stays, so that the error comes again; one without has no more.
            if collected.is_empty and fetch.size == 0:
                self.buffer.pop()
                fetch.drain()
            raise
        if not ready:
            fetch.drain()
        self.buffer.next_in_line = fetch if ready else None
        self.buffer.pop()
        return True

    def _take(self, fetch: CompletedFetch, collected: Collected, most: int, take: Take) -> None:
        tp = fetch.partition
        position = self.subscriptions.valid_position(tp)
        current = self.subscriptions.is_fetchable(tp) and position is not None
        if not current or position is None or fetch.next_fetch_offset != position.offset:
            fetch.drain()
            return
        records = take(fetch, most)
        advanced = fetch.next_fetch_offset > position.offset
        if advanced:
            position = FetchPosition(fetch.next_fetch_offset, fetch.last_epoch, position.leader)
            self.subscriptions.advance(tp, position)
        if most > 1 or fetch.consumed:  # one by one, the last record counts for all
            lag = self.subscriptions.lag(tp, read_committed=self.config.read_committed)
            self.metrics.record_position(tp, lag=lag, lead=self.subscriptions.lead(tp))
        collected.add(tp, records, position, advanced=advanced)

    # -- the first look at a partition's response

    def _initialize(self, fetch: CompletedFetch) -> bool:
        """Return whether there is something to read in it."""
        tp = fetch.partition
        if self.subscriptions.valid_position(tp) is None:
            return False  # it has been revoked, reset or is being validated
        error = ErrorCode.of(fetch.data.error_code)
        if error is ErrorCode.NONE:
            return self._begin(fetch)
        # Partitions that fail go to the end; those of a topic stay together in requests.
        self.subscriptions.move_to_end(tp)
        self._judge(fetch, error)
        return False

    def _begin(self, fetch: CompletedFetch) -> bool:
        tp, data = fetch.partition, fetch.data
        position = self.subscriptions.valid_position(tp)
        if position is None or position.offset != fetch.fetch_offset:
            return False
        if fetch.size and not fetch.has_whole_batch():
            # Since KIP-74 a broker sends one whole batch, whatever its size.
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"no progress: {fetch.size} bytes of {tp} at {fetch.fetch_offset},"
                " and no whole batch among them",
            )
        self.subscriptions.note_offsets(
            tp,
            high_watermark=data.high_watermark,
            last_stable_offset=data.last_stable_offset,
            log_start_offset=data.log_start_offset,
        )
        if data.preferred_read_replica >= 0:
            expires_ms = self.now_ms() + self.config.metadata_max_age_ms
            self.subscriptions.prefer_read_replica(tp, data.preferred_read_replica, expires_ms)
        fetch.initialized = True
        return True

    def _judge(self, fetch: CompletedFetch, error: ErrorCode) -> None:
        tp = fetch.partition
        position = self.subscriptions.valid_position(tp)
        is_same_leader = position is None or position.leader.epoch == fetch.leader_epoch
        if is_same_leader and (error in _STALE_METADATA or error in _FETCHED_AGAIN):
            self.subscriptions.retry_at([tp], self.now_ms() + self.config.retry_backoff_ms)
        if error in _STALE_METADATA:
            self.request_metadata()
            self.subscriptions.clear_preferred_read_replica(tp)
        elif error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(fetch)
        elif error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise TopicAuthorizationFailedError([tp.topic])
        elif error is ErrorCode.CORRUPT_MESSAGE:
            raise CorruptRecordsError(tp, fetch.fetch_offset, "the broker finds it corrupt")
        elif error not in _FETCHED_AGAIN:
            raise KafkaError(error, f"fetching {tp} at {fetch.fetch_offset}")

    def _out_of_range(self, fetch: CompletedFetch) -> None:
        tp = fetch.partition
        if self.subscriptions.clear_preferred_read_replica(tp) is not None:
            return  # a follower may be behind; the leader knows the offset
        position = self.subscriptions.valid_position(tp)
        if position is None or position.offset != fetch.fetch_offset:
            return
        if self.subscriptions.default_strategy is None:
            raise OffsetOutOfRangeError({tp: position.offset})
        self.subscriptions.request_reset(tp)
