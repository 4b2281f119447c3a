"""The check that the end of a copy is the source's, once for each partition before it is followed.

    copy      [e3: 0-9][e3: 10-14]          its last batch, and the source's record at offset 14

    the same bytes                     it is a copy
    the same record in other bytes     it is: the source has compacted or compressed it since
    no record at that offset           the source has deleted it: it may be a copy
    another leader epoch               a divergence, which the first fetch finds and truncates
    not committed there (yet)          checked again, unless the epochs show a divergence
    another record                     the copy was written to

Epochs cannot find the last case: a record that is written to a copy has an epoch of the source, and
the source goes on in that epoch. The copy would go on behind a record that the source never had.
"""

import enum
from typing import Final

from replication.client.cluster_view import Node
from replication.client.network_client import NetworkClient
from replication.client.requests import ask
from replication.errors import ErrorCode
from replication.leader.rules.fetch_session import FINAL_EPOCH, INVALID_SESSION_ID
from replication.wire.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from storage.attributes import frozen
from storage.batch.record_batch import BatchHeader, walk
from storage.batch.records import Record, decode_batch
from storage.errors import StorageError
from storage.log.log import Log
from storage.types import LeaderEpoch, Offset

_ROOM: Final = 1 << 16
"""The bytes to fetch beyond the size of our batch: the source's may be compressed less."""


class Tail(enum.Enum):
    """The result of the check."""

    OURS = "the source's"
    """Also if it cannot be distinguished from the source's."""
    UNKNOWN = "not known yet"
    WRITTEN = "written to"


@frozen
class TailBatch:
    """A batch with its bytes."""

    header: BatchHeader
    data: bytes

    def record_at(self, offset: Offset) -> Record | None:
        if self.header.is_control:
            return None
        return next((each for each in decode_batch(self.data) if each.offset == offset), None)


def last_batch(log: Log) -> TailBatch | None:
    """Return the last batch; None if the log is empty, or truncated inside a batch."""
    if log.log_end_offset == log.log_start_offset:
        return None
    last = log.log_end_offset - 1
    found = log.read(last, 1, max_offset_exclusive=log.log_end_offset, min_one=True)
    return None if found.records is None else _covering(memoryview(found.records.read()), last)


def _covering(data: memoryview, offset: Offset) -> TailBatch | None:
    for position, header in walk(data):
        if header.base_offset <= offset <= header.last_offset:
            return TailBatch(header, bytes(data[position : position + header.size]))
    return None


@frozen(kw_only=True)
class TailCheck:
    """The check of one partition, against its leader."""

    network: NetworkClient
    leader: Node
    log: Log

    async def run(self) -> Tail:
        """Check the end of the log; PeerUnavailableError or ProtocolError without an answer."""
        ours = last_batch(self.log)
        if ours is None:
            return Tail.OURS
        last = self.log.log_end_offset - 1
        data = await self._fetch(last, max_bytes=ours.header.size + _ROOM)
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return Tail.OURS  # retention, or a divergence: fetching finds out which
        if data.error_code != ErrorCode.NONE:
            return Tail.UNKNOWN
        records = b"" if data.records is None else bytes(_in_memory(data))
        if not records:
            return await self._check_uncommitted(ours.header.leader_epoch)
        theirs = _covering(memoryview(records), last)
        return Tail.OURS if theirs is None or _agree(ours, theirs, last) else Tail.WRITTEN

    async def _check_uncommitted(self, epoch: LeaderEpoch) -> Tail:
        data = await self._fetch(self.log.log_end_offset, max_bytes=1, last_fetched_epoch=epoch)
        diverges = data.diverging_epoch.epoch >= 0
        is_known = diverges or data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        return Tail.OURS if is_known else Tail.UNKNOWN

    async def _fetch(
        self, offset: Offset, *, max_bytes: int, last_fetched_epoch: LeaderEpoch = -1
    ) -> PartitionData:
        topic, number = self.log.topic_partition
        asked = FetchPartition(
            partition=number,
            fetch_offset=offset,
            last_fetched_epoch=last_fetched_epoch,
            partition_max_bytes=max_bytes,
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=0,
            session_id=INVALID_SESSION_ID,
            session_epoch=FINAL_EPOCH,
            topics=[FetchTopic(topic=topic, topic_id=self.log.topic_id or b"", partitions=[asked])],
        )
        response = await self.network.call(self.leader, ask(request))
        answers = [data for each in response.responses for data in each.partitions]
        refused = ErrorCode.of(response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR)
        found: PartitionData = (
            answers[0]
            if answers
            else PartitionData(partition_index=number, error_code=refused, high_watermark=-1)
        )
        return found


def _in_memory(data: PartitionData) -> memoryview:
    assert isinstance(data.records, memoryview), "a decoded answer has its records in memory"
    return data.records


def _agree(ours: TailBatch, theirs: TailBatch, offset: Offset) -> bool:
    if ours.data == theirs.data or ours.header.leader_epoch != theirs.header.leader_epoch:
        return True
    try:
        here, there = ours.record_at(offset), theirs.record_at(offset)
    except StorageError:
        return True  # bytes that fetching will refuse
    return here is None or there is None or _content(here) == _content(there)


def _content(record: Record) -> tuple[object, ...]:
    return record.key, record.value, record.timestamp, tuple(record.headers)
