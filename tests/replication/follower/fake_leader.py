"""A leader and a follower's logs that behave, without a network or a disk.

`FakeLeader` answers as a broker would, by Kafka's rules for fencing, divergence, ranges and
sessions, from `ModelLog`s that a test writes to. Its answers lie in one buffer that the
next answer overwrites, as on a real connection that reuses its own.
"""

from collections.abc import Callable, Mapping

import attrs

from replication.errors import ErrorCode, KafkaError, PeerUnavailableError
from replication.follower.leader_endpoint import EpochEnd, EpochWanted
from replication.follower.rules.fetch_state import BrokerEndPoint
from replication.leader.rules.fetch_session import FINAL_EPOCH, INITIAL_EPOCH
from replication.leader.rules.log_reader import diverging_end
from replication.net.clock import TrioClock
from replication.net.seams import NodeClock
from replication.wire.fetch import (
    DivergingEpoch,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from storage.errors import StorageError
from storage.types import (
    NO_LEADER_EPOCH,
    NO_TOPIC_ID,
    LeaderEpoch,
    Offset,
    OffsetAndEpoch,
    TopicId,
    TopicPartition,
)
from tests.replication.follower.model_log import Appended, ModelLog, encode

LEADER = BrokerEndPoint(1, "leader", 9092)
_POISON = 0xEE


@attrs.define
class Led:
    """One partition that the leader leads."""

    log: ModelLog
    epoch: LeaderEpoch = 0


@attrs.define(kw_only=True)
class FakeLeader:
    broker: BrokerEndPoint = LEADER
    fetch_version: int = 12
    sessions: bool = False
    latency: float = 0.0
    records_per_fetch: int = 2
    topic_ids: dict[str, TopicId] = attrs.field(factory=dict)
    led: dict[TopicPartition, Led] = attrs.field(factory=dict)
    fetches: list[FetchRequest] = attrs.field(factory=list)
    fetch_versions: list[int] = attrs.field(factory=list)
    list_offsets: list[str] = attrs.field(factory=list)
    epoch_requests: list[dict[TopicPartition, EpochWanted]] = attrs.field(factory=list)
    clock: NodeClock = attrs.field(factory=TrioClock)
    closed: int = 0

    # What a test may make go wrong.
    on_fetch: Callable[[], None] = lambda: None
    """Called while the request is on its way."""
    on_epochs: Callable[[], None] = lambda: None
    on_list_offsets: Callable[[], None] = lambda: None
    change_data: Callable[[TopicPartition, PartitionData], None] = lambda _tp, _data: None
    change_response: Callable[[FetchResponse], None] = lambda _response: None
    epoch_answers: dict[TopicPartition, EpochEnd] = attrs.field(factory=dict)
    """Instead of what the logs say."""

    _buffer: bytearray = attrs.field(init=False, factory=lambda: bytearray(1 << 16))
    _used: int = attrs.field(init=False, default=0)
    _session: dict[TopicPartition, FetchPartition] = attrs.field(init=False, factory=dict)
    _session_id: int = attrs.field(init=False, default=0)
    _session_epoch: int = attrs.field(init=False, default=0)
    _last_sent: dict[TopicPartition, tuple[Offset, Offset]] = attrs.field(init=False, factory=dict)

    @property
    def supports_truncation_on_fetch(self) -> bool:
        return self.fetch_version >= 12

    def lead(self, partition: TopicPartition, log: ModelLog, *, epoch: LeaderEpoch = 0) -> Led:
        self.led[partition] = Led(log, epoch)
        return self.led[partition]

    # -- fetch ----------------------------------------------------------------

    async def fetch(self, request: FetchRequest, *, version: int) -> FetchResponse:
        self.fetches.append(request)
        self.fetch_versions.append(version)
        await self._answering()
        self.on_fetch()
        wanted = self._named(request, version)
        if self.sessions:
            response = self._in_session(request, wanted, version)
        else:
            response = self._respond(wanted, version)
        self.change_response(response)
        return response

    def _named(self, request: FetchRequest, version: int) -> dict[TopicPartition, FetchPartition]:
        names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        return {
            TopicPartition(
                names[topic.topic_id] if version >= 13 else topic.topic, asked.partition
            ): asked
            for topic in request.topics
            for asked in topic.partitions
        }

    def _in_session(
        self, request: FetchRequest, wanted: dict[TopicPartition, FetchPartition], version: int
    ) -> FetchResponse:
        """One session at most, remembered as plainly as can be."""
        if request.session_epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
            self._session, self._last_sent = dict(wanted), {}
            self._session_id, self._session_epoch = len(self.fetches), 1
            response = self._respond(self._session, version)
        elif (request.session_id, request.session_epoch) != (
            self._session_id,
            self._session_epoch,
        ):
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        else:
            for topic in request.forgotten_topics_data:
                for partition in topic.partitions:
                    self._session.pop(TopicPartition(topic.topic, partition))
            self._session |= wanted
            self._session_epoch += 1
            response = self._respond(self._session, version, changed_only=True)
        response.session_id = self._session_id if self._session else 0
        return response

    def _respond(
        self,
        wanted: Mapping[TopicPartition, FetchPartition],
        version: int,
        *,
        changed_only: bool = False,
    ) -> FetchResponse:
        topics: dict[str, FetchableTopicResponse] = {}
        for tp, asked in wanted.items():
            data = self._read(tp, asked, version)
            self.change_data(tp, data)
            news = (data.high_watermark, data.log_start_offset)
            quiet = not data.records and not data.error_code and data.diverging_epoch.epoch < 0
            if changed_only and quiet and self._last_sent.get(tp) == news:
                continue
            self._last_sent[tp] = news
            topic = topics.setdefault(
                tp.topic,
                FetchableTopicResponse(
                    topic=tp.topic, topic_id=self.topic_ids.get(tp.topic, NO_TOPIC_ID)
                ),
            )
            topic.partitions.append(data)
        return FetchResponse(responses=list(topics.values()))

    def _read(self, tp: TopicPartition, asked: FetchPartition, version: int) -> PartitionData:
        error = self._fence(tp, asked.current_leader_epoch)
        if error is not ErrorCode.NONE:
            return PartitionData(partition_index=tp.partition, error_code=error, high_watermark=-1)
        log = self.led[tp].log
        data = PartitionData(
            partition_index=tp.partition,
            high_watermark=log.high_watermark,
            log_start_offset=log.log_start_offset,
        )
        out_of_range = not log.log_start_offset <= asked.fetch_offset <= log.log_end_offset
        if version >= 12 and asked.last_fetched_epoch >= 0:
            try:
                diverging = diverging_end(
                    log,
                    fetch_offset=asked.fetch_offset,
                    last_fetched_epoch=asked.last_fetched_epoch,
                )
            except KafkaError as refused:
                data.error_code = refused.code
                return data
            if diverging is not None:
                data.diverging_epoch = DivergingEpoch(
                    epoch=diverging.leader_epoch, end_offset=diverging.offset
                )
                return data
            out_of_range = False
        if out_of_range:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return data
        data.records = self._in_buffer(encode(log.read(asked.fetch_offset, self.records_per_fetch)))
        return data

    def _in_buffer(self, data: bytes) -> memoryview:
        start, self._used = self._used, self._used + len(data)
        self._buffer[start : self._used] = data
        return memoryview(self._buffer)[start : self._used]

    def _fence(self, tp: TopicPartition, epoch: LeaderEpoch) -> ErrorCode:
        led = self.led.get(tp)
        if led is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if epoch in {led.epoch, NO_LEADER_EPOCH}:
            return ErrorCode.NONE  # or a version that does not say
        older = epoch < led.epoch
        return ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH

    # -- the other questions --------------------------------------------------

    async def fetch_earliest_offset(
        self, partition: TopicPartition, current_leader_epoch: LeaderEpoch
    ) -> OffsetAndEpoch:
        return await self._list("earliest", partition, current_leader_epoch)

    async def fetch_latest_offset(
        self, partition: TopicPartition, current_leader_epoch: LeaderEpoch
    ) -> OffsetAndEpoch:
        return await self._list("latest", partition, current_leader_epoch)

    async def _list(
        self, which: str, tp: TopicPartition, current_leader_epoch: LeaderEpoch
    ) -> OffsetAndEpoch:
        self.list_offsets.append(which)
        await self._answering()
        self.on_list_offsets()
        error = self._fence(tp, current_leader_epoch)
        if error is not ErrorCode.NONE:
            raise KafkaError(error)
        led = self.led[tp]
        log = led.log
        offset = log.log_start_offset if which == "earliest" else log.log_end_offset
        return OffsetAndEpoch(offset, led.epoch)

    async def fetch_epoch_end_offsets(
        self, wanted: Mapping[TopicPartition, EpochWanted]
    ) -> dict[TopicPartition, EpochEnd]:
        self.epoch_requests.append(dict(wanted))
        await self._answering()
        self.on_epochs()
        answers = {}
        for tp, (current_leader_epoch, epoch) in wanted.items():
            error = self._fence(tp, current_leader_epoch)
            if error is ErrorCode.NONE:
                answers[tp] = EpochEnd(error, self.led[tp].log.end_offset_for_epoch(epoch))
            else:
                answers[tp] = EpochEnd(error)
        return answers | self.epoch_answers

    async def _answering(self) -> None:
        """The answer will come into the buffer that the last one was in."""
        self._buffer[: self._used] = bytes([_POISON]) * self._used
        self._used = 0
        await self.clock.sleep(self.latency)
        if self.closed:
            raise PeerUnavailableError("closed by ourselves")

    def initiate_close(self) -> None:
        self.closed += 1

    async def close(self) -> None:
        await self.clock.sleep(0)


@attrs.define
class FakeReplicas:
    """A follower's logs in memory (FollowedReplicas)."""

    logs: dict[TopicPartition, ModelLog] = attrs.field(factory=dict)
    truncations: list[tuple[TopicPartition, Offset, bool]] = attrs.field(factory=list)
    completed_fetches: list[list[TopicPartition]] = attrs.field(factory=list)
    high_watermarks_moved: list[TopicPartition] = attrs.field(factory=list)
    processed: list[TopicPartition] = attrs.field(factory=list)
    followed_in: list[LeaderEpoch] = attrs.field(factory=list)
    on_append: Callable[[TopicPartition], None] = lambda _tp: None
    on_truncate: Callable[[TopicPartition], None] = lambda _tp: None
    offline: set[TopicPartition] = attrs.field(factory=set)

    def _log(self, partition: TopicPartition) -> ModelLog:
        if partition in self.offline:
            raise StorageError(f"{partition} is offline")
        return self.logs[partition]

    def latest_epoch(self, partition: TopicPartition) -> LeaderEpoch | None:
        return self._log(partition).latest_epoch

    def log_start_offset(self, partition: TopicPartition) -> Offset:
        return self._log(partition).log_start_offset

    def log_end_offset(self, partition: TopicPartition) -> Offset:
        return self._log(partition).log_end_offset

    def high_watermark(self, partition: TopicPartition) -> Offset:
        return self._log(partition).high_watermark

    def end_offset_for_epoch(self, partition: TopicPartition, epoch: LeaderEpoch) -> OffsetAndEpoch:
        return self._log(partition).end_offset_for_epoch(epoch)

    def truncate_to(self, partition: TopicPartition, offset: Offset, *, completed: bool) -> None:
        self.truncations.append((partition, offset, completed))
        self.on_truncate(partition)
        self._log(partition).truncate_to(offset)

    def truncate_fully_and_start_at(self, partition: TopicPartition, offset: Offset) -> None:
        self.truncations.append((partition, offset, True))
        self.on_truncate(partition)
        self._log(partition).start_over_at(offset)

    def process_partition_data(
        self,
        partition: TopicPartition,
        fetch_offset: Offset,
        leader_epoch: LeaderEpoch,
        data: PartitionData,
    ) -> Appended:
        self.on_append(partition)
        log = self._log(partition)
        assert fetch_offset == log.log_end_offset, "a fetch continues the log it was made for"
        assert isinstance(data.records, memoryview), "an answer has its records in memory"
        self.followed_in.append(leader_epoch)
        appended = log.append_as_follower(data.records)
        self.processed.append(partition)
        before = log.high_watermark
        log.high_watermark = max(log.log_start_offset, min(data.high_watermark, log.log_end_offset))
        if log.high_watermark != before:
            self.high_watermarks_moved.append(partition)
        if data.log_start_offset > log.log_start_offset:
            log.move_start_to(data.log_start_offset)
        return appended

    def complete_delayed_fetches(self) -> None:
        if self.high_watermarks_moved:
            self.completed_fetches.append(self.high_watermarks_moved)
            self.high_watermarks_moved = []
