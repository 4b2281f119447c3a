"""The batches of a partition as a broker sends them, up to a given end.

    fill   ── Fetch 100 ──> [98-104][105-120][121-1     a batch that is cut off comes again
    head, take, skip: over received batches, without waiting
    fill   ── Fetch 121 ──> [121-140]                   sent when the last response has come

Rule 1: it fetches as a consumer does: replica id -1, so up to the high watermark of the broker
that is asked, a leader or, from version 11 on, a follower (KIP-392); no session, no isolation.

Rule 2: the walk calls `fill` while `wants_bytes`. Then there is a whole batch at the head, or the
end: `end_offset`, or the last record that the broker has, after it was asked for a while.

Rule 3: a leader that moves or dies is waited for. If retention has deleted the next records, that
is a `StartMovedError`: the comparison begins again behind them.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import attrs

from replication.client.cluster_view import Node
from replication.client.errors import raise_for
from replication.client.network_client import NetworkClient
from replication.client.requests import PendingResponse, ask
from replication.errors import ErrorCode, KafkaError
from replication.verify.results import CannotCompareError
from replication.wire.fetch import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from replication.wire.schema import MAX_VERSION
from storage.batch.batch_stream import DamagedLogError, out_of_order
from storage.batch.record_batch import HEADER_SIZE, BatchHeader, read_header, walk
from storage.errors import CorruptRecordError
from storage.types import NO_TOPIC_ID, Offset, TopicId, TopicPartition

# The number of empty responses after which a broker has no more records.
PATIENCE = 10


class StartMovedError(CannotCompareError):
    """A log that begins later than before."""

    def __init__(self, partition: TopicPartition, offset: Offset) -> None:
        super().__init__(f"{partition}: the records below offset {offset} were deleted meanwhile")
        self.offset = offset


class FindNode(Protocol):
    """The search for the node to fetch from; `anew` if the last one failed or refused."""

    def __call__(self, *, anew: bool) -> Awaitable[Node]: ...


@attrs.frozen(kw_only=True)
class FetchOptions:
    """The options of fetches, under the names of kafka-replica-verification."""

    fetch_size: int = 1 << 20
    max_wait_ms: int = 1000


@attrs.define(eq=False, kw_only=True)
class FetchedBatches:
    """The fetched batches of one partition; a `compacted.Readable`."""

    partition: TopicPartition
    topic_id: TopicId
    start_offset: Offset
    end_offset: Offset
    options: FetchOptions
    network: NetworkClient
    find_node: FindNode
    find_start: Callable[[], Awaitable[Offset]]
    next_offset: Offset = attrs.field(init=False)
    file_name: None = attrs.field(init=False, default=None)
    position: None = attrs.field(init=False, default=None)
    _records: memoryview = attrs.field(init=False, factory=lambda: memoryview(b""))
    _at: int = attrs.field(init=False, default=0)
    _sent: PendingResponse | None = attrs.field(init=False, default=None)
    _patience: int = attrs.field(init=False, default=PATIENCE)
    _max_bytes: int = attrs.field(init=False)
    _anew: bool = attrs.field(init=False, default=False)
    _is_first: bool = attrs.field(init=False, default=True)

    def __attrs_post_init__(self) -> None:
        self.next_offset = self.start_offset
        self._max_bytes = self.options.fetch_size

    # -- waiting

    @property
    def at_end(self) -> bool:
        """Whether all batches have been read, up to the end or as far as there are any."""
        return self.next_offset >= self.end_offset or not self._patience

    @property
    def wants_bytes(self) -> bool:
        return not self.at_end and self._size_at_head() is None

    async def fill(self) -> None:
        """Fetch until there is a whole batch at the head, or the end."""
        while self.wants_bytes:
            data = await self.network.keep_asking(self._fetch, on_no_answer=self._forget)
            self._take_in(data)
            self._pass_what_is_behind()
            if (following := self._following()) is not None:
                self._sent = await self._send(following)

    def _following(self) -> Offset | None:
        """Return the offset of the next fetch; None if there is none, or it is not known."""
        last = None
        try:
            for _, header in walk(self._records, self._at):
                last = header.next_offset
        except CorruptRecordError:
            return None  # the walk ends at the damage
        return last if last is not None and last < self.end_offset else None

    def _take_in(self, data: PartitionData) -> None:
        assert not hasattr(data.records, "path"), "what was received is in memory"
        self._records = memoryview(data.records or b"")  # type: ignore[arg-type] # no file region
        self._at = 0
        if self._size_at_head() is not None:
            self._patience = PATIENCE
        elif len(self._records):
            self._max_bytes *= 2  # a broker that is older than KIP-74 cuts the first batch
        elif data.high_watermark >= self.end_offset:
            self.next_offset = self.end_offset  # the rest was compacted away
        else:
            self._patience -= 1

    async def _fetch(self) -> PartitionData:
        sent, self._sent = self._sent, None
        if sent is None:
            sent = await self._send(self.next_offset)
        data = self._answer_of(await sent.wait())
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            start = await self.find_start()
            if start > self.next_offset:
                raise StartMovedError(self.partition, start)
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE, "a new leader does not know its end yet"
            )
        self._anew = data.error_code != ErrorCode.NONE
        raise_for(data.error_code, str(self.partition))
        return data

    async def _send(self, offset: Offset) -> PendingResponse:
        where = FetchPartition(
            partition=self.partition.partition,
            fetch_offset=offset,
            partition_max_bytes=self._max_bytes,
        )
        request = FetchRequest(
            max_wait_ms=self.options.max_wait_ms,
            min_bytes=1,
            max_bytes=self._max_bytes,
            topics=[
                FetchTopic(topic=self.partition.topic, topic_id=self.topic_id, partitions=[where])
            ],
        )
        has_id = self.topic_id != NO_TOPIC_ID
        newest = MAX_VERSION if has_id else FIRST_VERSION_WITH_TOPIC_IDS - 1
        node = await self.find_node(anew=self._anew)
        self._anew = False
        return self.network.send(node, ask(request, max_version=newest))

    def _answer_of(self, response: Any) -> PartitionData:
        raise_for(response.error_code, "fetch")
        for topic in response.responses:
            for data in topic.partitions:
                if data.partition_index == self.partition.partition:
                    return data  # type: ignore[no-any-return] # of a response of this API
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"a response without {self.partition}")

    def _forget(self) -> None:
        self._anew = True

    def _pass_what_is_behind(self) -> None:
        """Skip batches before the offset: a broker may begin earlier."""
        while (size := self._size_at_head()) is not None:
            header = self._header()
            if header is None or header.last_offset >= self.next_offset:
                return
            self._at += size

    # -- a stream of batches

    def seek(self, offset: Offset) -> None:
        assert not len(self._records), "seek comes before anything is read"
        self.next_offset = max(self.next_offset, offset)

    def head(self) -> BatchHeader | None:
        if self.at_end:
            return None
        assert self._size_at_head() is not None, "fill comes before head"
        header = self._header()
        if header is None:
            raise DamagedLogError("no batch", path=None, position=0)
        if header.base_offset >= self.end_offset:
            self.next_offset = self.end_offset
            return None
        # The first batch may begin before the offset that was asked for.
        begins = 0 if self._is_first else self.next_offset
        if reason := out_of_order(header, begins):
            raise DamagedLogError(reason, path=None, position=0)
        return header

    @property
    def available(self) -> int:
        return len(self._records) - self._at

    def take(self, size: int) -> bytes:
        self._at += size
        return bytes(self._records[self._at - size : self._at])

    def passed(self, header: BatchHeader) -> None:
        self._is_first = False
        self.next_offset = header.next_offset

    def close(self) -> None:
        """Do nothing: it has no files or connections of its own."""

    def _header(self) -> BatchHeader | None:
        try:
            return read_header(self._records, self._at)
        except CorruptRecordError:
            return None

    def _size_at_head(self) -> int | None:
        """Return the size of the batch at the head, or of damage; None if it is cut off."""
        left = len(self._records) - self._at
        if left < HEADER_SIZE:
            return None
        header = self._header()
        if header is None:
            return left
        return header.size if header.size <= left else None
