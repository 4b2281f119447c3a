"""Records of live brokers, and the task that fetches a range of one partition.

    task  offset 100 ── Fetch 100 ──> [98-104][105-120]     decoded while the next is fetched
                        Fetch 121 ──> [121-140][141-        a batch that is cut off comes again
                        Fetch 141 ──> ...                   until the planned end

Rule 1: brokers send whole batches (KIP-74); records below the requested offset or beyond the
end are left out when batches are decoded.

Rule 2: with `read_committed` the leader names the producers of aborted transactions and their
first offsets; the control batches have their ends (KIP-98).

Rule 3: records below the log start offset are lost; holes are no loss, as compaction and markers
leave some.

Rule 4: a task waits for a failover. Its offsets are committed, so the next leader has them.
"""

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from pipeline.source.cluster import SourceCluster, SourceTopic, cluster_of
from pipeline.source.columns import SourceReadSettings
from pipeline.source.errors import (
    BrokerError,
    CorruptBatchesError,
    DataLossError,
    UnknownTopicError,
    lost_before,
    lost_behind,
)
from pipeline.source.files import Aborted, keep_of
from pipeline.source.filters import Narrowing
from pipeline.source.options import Fetching, ReadOptions
from pipeline.source.plan import OffsetRange, split
from replication.client.requests import ask
from replication.errors import ErrorCode, PeerUnavailableError
from replication.wire.fetch import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from replication.wire.list_offsets import EARLIEST, LATEST
from replication.wire.schema import MAX_VERSION
from storage.batch.columns import columnar
from storage.batch.record_batch import walk
from storage.errors import CorruptRecordError
from storage.types import NO_TOPIC_ID, Offset, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

_OPEN_END = 2**63 - 1


@attrs.frozen
class BrokerSlice:
    """Records of `tp` from offset `start` to `end`."""

    tp: TopicPartition
    start: Offset
    end: Offset

    def read(self, settings: SourceReadSettings) -> Iterator["pa.RecordBatch"]:
        assert settings.options.fetching is not None, "reads from brokers have these options"
        return _Fetch(self, settings, settings.options.fetching).batches()


@attrs.define(eq=False)
class _Fetch:
    """The fetching of one slice."""

    part: BrokerSlice
    settings: SourceReadSettings
    fetching: Fetching
    cluster: SourceCluster = attrs.field(init=False)
    max_bytes: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.cluster = cluster_of(self.fetching.config)
        self.max_bytes = self.fetching.max_partition_bytes

    def batches(self) -> Iterator["pa.RecordBatch"]:
        part, projection = self.part, self.settings.projection
        schema, offset, sent_to = projection.schema(), part.start, None
        try:
            while offset < part.end:
                try:
                    data, offset, sent_to = self._next(offset, sent_to)
                except UnknownTopicError as error:
                    self._gone(offset, error)
                    return
                # The leader reads the next records while these are decoded.
                for found in self._decode(data):
                    yield projection.finish(found, schema, part.tp, "")
        finally:
            if sent_to is not None:
                self.cluster.connection(sent_to).close()

    def _gone(self, offset: Offset, error: UnknownTopicError) -> None:
        said = f"{error}: offsets {offset} to {self.part.end - 1} cannot be read"
        if self.settings.options.fail_on_data_loss:
            raise DataLossError(f"{said}; failOnDataLoss=false goes on without them") from error
        log.warning("%s", said)

    def _next(
        self, offset: Offset, sent_to: int | None
    ) -> tuple[PartitionData, Offset, int | None]:
        """Return a response with records, the offset behind them, and the node of the next request."""
        asked: list[int | None] = [sent_to]

        def once() -> tuple[PartitionData, Offset, int | None]:
            node, asked[0] = asked[0], None
            if node is None:
                node = self._ask(offset)
            data = self._answer(node)
            following = self._check(data, offset)
            if following is None:
                raise PeerUnavailableError(
                    f"nothing from offset {offset} of {self.part.tp} on, where"
                    f" {self.part.end} is to be reached"
                )
            behind = following < self.part.end
            return data, following, self._ask(following) if behind else None

        return self.cluster.until_done("records", once, self.fetching.poll_timeout_ms)

    def _ask(self, offset: Offset) -> int:
        """Send a fetch request to the leader, and return its node id."""
        node, topic_id = self.cluster.leader_of(self.part.tp)
        asked = FetchPartition(
            partition=self.part.tp.partition,
            fetch_offset=offset,
            partition_max_bytes=self.max_bytes,
        )
        topic = FetchTopic(topic=self.part.tp.topic, topic_id=topic_id, partitions=[asked])
        request = FetchRequest(
            max_wait_ms=self.fetching.max_wait_ms,
            min_bytes=self.fetching.min_bytes,
            max_bytes=max(self.fetching.max_bytes, self.max_bytes),
            isolation_level=int(self.settings.options.read_committed),
            session_id=0,
            session_epoch=-1,
            topics=[topic],
        )
        newest = FIRST_VERSION_WITH_TOPIC_IDS - 1 if topic_id == NO_TOPIC_ID else MAX_VERSION
        self.cluster.connection(node).send(ask(request, max_version=newest))
        return node

    def _answer(self, node: int) -> PartitionData:
        response: Any = self.cluster.connection(node).receive()
        if response.error_code != ErrorCode.NONE:
            raise PeerUnavailableError(f"fetch: {ErrorCode.of(response.error_code).name}")
        for topic in response.responses:
            for data in topic.partitions:
                if data.partition_index == self.part.tp.partition:
                    return data  # type: ignore[no-any-return] # of a response of this API
        raise PeerUnavailableError(f"an answer without {self.part.tp}")

    def _check(self, data: PartitionData, offset: Offset) -> Offset | None:
        """Return the offset behind the records, or None if there are none yet."""
        error = ErrorCode.of(data.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._out_of_range(data, offset)
        if error is not ErrorCode.NONE:
            self.cluster.forget(self.part.tp)
            if error.retriable or error is ErrorCode.UNKNOWN_TOPIC_ID:
                raise PeerUnavailableError(f"{self.part.tp}: {error.name}")
            raise BrokerError(f"{self.part.tp}: {error.name}")
        records = _records(data)
        try:
            last = deque(walk(records), maxlen=1)
        except CorruptRecordError as broken:
            raise CorruptBatchesError(
                f"{self.part.tp}, from offset {offset}: the leader sent what is no batch: {broken}"
            ) from broken
        if last:
            return max(offset, last[0][1].next_offset)
        if len(records):
            # A batch is larger than the limit, and the broker is older than KIP-74.
            self.max_bytes *= 2
        return None

    def _out_of_range(self, data: PartitionData, offset: Offset) -> Offset | None:
        tp = self.part.tp
        earliest = self.cluster.offsets({tp: EARLIEST}, read_committed=False)[tp]
        if offset >= earliest:
            # A new leader may not yet know how far it was committed.
            raise PeerUnavailableError(f"{tp} ends before offset {offset}")
        if self.settings.options.fail_on_data_loss:
            raise DataLossError(lost_before(tp, offset, earliest))
        log.warning("%s", lost_before(tp, offset, earliest))
        data.records = b""
        return min(earliest, self.part.end)

    def _decode(self, data: PartitionData) -> Iterator["pa.RecordBatch"]:
        records = _records(data)
        aborted = _aborted(data, records) if self.settings.options.read_committed else []
        keep = keep_of(aborted, self.settings.narrowing)
        position = 0
        while position < len(records):
            try:
                yield from columnar.decode(
                    records[position:],
                    columns=self.settings.projection.stored,
                    check_crcs=self.settings.options.check_crcs,
                    start_offset=self.part.start,
                    end_offset=self.part.end,
                    keep=keep,
                )
            except columnar.CorruptBatchError as error:
                position = self._behind(records, position + error.position, error.reason)
            else:
                return

    def _behind(self, records: memoryview, position: int, reason: str) -> int:
        """Return the position of the next batch; raise CorruptBatchesError unless skipping."""
        found = [header for at, header in walk(records) if at == position]
        offset = found[0].base_offset if found else self.part.start
        said = f"{self.part.tp}, from offset {offset}: the leader sent a batch with {reason}"
        if not self.settings.options.skip_corrupt or not found:
            raise CorruptBatchesError(f"{said}; onCorruptBatch=skip reads on behind it")
        log.warning("skipped: %s", said)
        return position + found[0].size


def _records(data: PartitionData) -> memoryview:
    assert not hasattr(data.records, "path"), "received records are in memory"
    return memoryview(data.records or b"")  # type: ignore[arg-type] # no file region


def _aborted(data: PartitionData, records: memoryview) -> Aborted:
    """Return aborted transactions from first record to marker, or without end if it is not here."""
    aborted = data.aborted_transactions
    if not aborted:
        return []
    markers = [header for _, header in walk(records) if header.is_control]
    found = []
    for each in aborted:
        ends = [
            header.base_offset
            for header in markers
            if header.producer_id == each.producer_id and header.base_offset >= each.first_offset
        ]
        found.append((each.producer_id, each.first_offset, min(ends, default=_OPEN_END)))
    return found


@attrs.define(eq=False)
class Brokers:
    """The logs to be read at brokers, by partition."""

    options: ReadOptions
    fetching: Fetching
    expects_all: bool = True
    _view: dict[str, SourceTopic] | None = attrs.field(init=False, default=None)

    @property
    def cluster(self) -> SourceCluster:
        return cluster_of(self.fetching.config)

    @property
    def topics(self) -> dict[str, SourceTopic]:
        if self._view is None:
            self._view = self._look()
        return self._view

    def _look(self) -> dict[str, SourceTopic]:
        selection, missing = self.options.selection, list[str]()
        for attempt in range(self.options.num_retries + 1):
            if attempt:  # brokers hear of a new topic one after the other
                time.sleep(self.options.retry_interval_ms / 1000)
            topics = self.cluster.topics(selection.named_topics)
            found = {name: each for name, each in topics.items() if selection.selects_topic(name)}
            missing = [name for name in selection.named_topics or () if name not in found]
            if not missing or not self.expects_all:
                return found
        servers = ", ".join(map(str, self.fetching.config.bootstrap_servers))
        raise UnknownTopicError(f"no topic {', '.join(missing)} at {servers}")

    def partitions(self) -> set[TopicPartition]:
        there = {
            TopicPartition(topic.name, partition)
            for topic in self.topics.values()
            for partition in topic.leaders
        }
        selection = self.options.selection
        missing = set(selection.partitions or ()) - there
        if missing and self.expects_all:
            raise UnknownTopicError(f"there is no {', '.join(map(str, sorted(missing)))}")
        return {tp for tp in there if selection.selects(tp)}

    def topic_ids(self) -> dict[str, str]:
        found = {name: topic.id_text for name, topic in self.topics.items()}
        return {name: text for name, text in found.items() if text is not None}

    def earliest(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        return self._offsets(dict.fromkeys(wanted, EARLIEST))

    def latest(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        return self._offsets(dict.fromkeys(wanted, LATEST))

    def log_ends(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        asked = dict.fromkeys(wanted, LATEST)
        return self.cluster.offsets(asked, read_committed=False) if asked else {}

    def at_time(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset | None]:
        found = self._offsets(wanted)
        return {tp: None if offset < 0 else offset for tp, offset in found.items()}

    def _offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        if not wanted:
            return {}
        return self.cluster.offsets(wanted, read_committed=self.options.read_committed)

    def tasks(
        self, ranges: Sequence[OffsetRange], narrowing: Narrowing
    ) -> list[tuple[BrokerSlice, ...]]:
        options = self.options
        narrowed = [each for each in self._narrowed(ranges, narrowing) if each.size > 0]
        parts = split(
            narrowed,
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
        )
        return [(BrokerSlice(each.tp, each.start, each.end),) for each in parts]

    def _narrowed(
        self, ranges: Sequence[OffsetRange], narrowing: Narrowing
    ) -> Iterator[OffsetRange]:
        """Yield the ranges, limited to the logs and by the filters; raise DataLossError for a loss."""
        earliest = self.earliest([each.tp for each in ranges])
        latest = self._latest_for(ranges)
        young: Mapping[TopicPartition, Offset | None] = earliest
        if narrowing.from_timestamp is not None:
            # All records before the first young one are too old.
            young = self.at_time({each.tp: narrowing.from_timestamp for each in ranges})
        for tp, start, end in ranges:
            if self.options.fail_on_data_loss and start < earliest[tp]:
                raise DataLossError(lost_before(tp, start, earliest[tp]))
            if self.options.fail_on_data_loss and end > latest[tp]:
                raise DataLossError(lost_behind(tp, end, latest[tp]))
            low, high = narrowing.clamp(max(start, earliest[tp]), min(end, latest[tp]))
            first = young[tp]
            yield OffsetRange(tp, high if first is None else max(low, first), high)

    def _latest_for(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, Offset]:
        """Return the latest offsets; ask again if a new leader may not know its high watermark yet."""
        partitions = [each.tp for each in ranges]
        latest = self.latest(partitions)
        for _ in range(self.options.num_retries):
            if all(each.end <= latest[each.tp] for each in ranges):
                break
            time.sleep(self.options.retry_interval_ms / 1000)
            latest = self.latest(partitions)
        return latest

    def refresh(self) -> None:
        self._view = None
