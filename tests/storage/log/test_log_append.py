"""Appending: what a leader takes, what a follower takes, and what it costs.

The file is long because every check of an append has its cases here.
"""

import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import attrs
import pytest

from storage.batch.compression import Codec
from storage.batch.record_batch import TimestampType, check_crc, computed_crc, read_header
from storage.batch.records import Record, encode_batch
from storage.config import LogConfig
from storage.errors import (
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaStorageError,
    OffsetsOutOfOrderError,
    OutOfOrderSequenceError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    StorageError,
    UnexpectedAppendOffsetError,
    UnsupportedCompressionTypeError,
    UnsupportedFormatError,
)
from storage.filesystem import OsFile, OsFileSystem
from storage.log.local_log import LogHooks
from storage.log.log import Log
from storage.testing import Fault
from storage.types import Buffer
from tests.storage.logs import (
    TP,
    WALL_MS,
    bases,
    batch,
    contents,
    fill,
    headers,
    joined,
    lead,
    new_disk,
    open_log,
    small_config,
)

LARGE = LogConfig()


@attrs.define(eq=False)
class RecordingFile:
    """Passes everything on, and remembers what it was given to write."""

    inner: OsFile
    written: list[Buffer]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def write(self, position: int, buffer: Buffer) -> None:
        self.written.append(buffer)
        self.inner.write(position, buffer)


class RecordingFileSystem(OsFileSystem):
    def __init__(self) -> None:
        self.written: list[Buffer] = []

    def open(self, path: str, *, create: bool = False) -> OsFile:
        file = super().open(path, create=create)
        if path.endswith(".log"):
            return RecordingFile(file, self.written)  # type: ignore[return-value]
        return file


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_the_file_is_given_a_view_of_the_receive_buffer(tmp_path: Path, role: str) -> None:
    system = RecordingFileSystem()
    log = Log.open(system, str(tmp_path / "t-0"), TP)
    frame = bytearray(b"frame header" + bytes(batch(3, size=1000)) + b"and more")
    records = memoryview(frame)[12:-8]
    if role == "leader":
        log.append_as_leader(records, leader_epoch=2, wall_ms=WALL_MS)
    else:
        log.append_as_follower(records)
    [written] = system.written
    assert isinstance(written, memoryview)
    assert written.obj is frame
    log.close()


def test_a_followers_batches_are_one_write_of_one_view(tmp_path: Path) -> None:
    system = RecordingFileSystem()
    log = Log.open(system, str(tmp_path / "t-0"), TP)
    records = joined(*(batch(2, at=2 * n, epoch=n // 10) for n in range(100)))
    partial = joined(records, batch(5, at=200)[:70])
    info = log.append_as_follower(partial)
    [written] = system.written
    assert isinstance(written, memoryview)
    assert written.obj is partial.obj
    assert written == records
    assert (info.first_offset, info.last_offset, info.record_count) == (0, 199, 200)
    assert info.valid_bytes == len(records)
    log.close()


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_peak_memory_does_not_grow_with_the_batch(tmp_path: Path, role: str) -> None:
    log = Log.open(
        OsFileSystem(), str(tmp_path / "t-0"), TP, config=LogConfig(max_message_bytes=1 << 30)
    )

    def peak(size: int) -> int:
        records = batch(1, at=log.log_end_offset if role == "follower" else 0, size=size)
        tracemalloc.start()
        try:
            if role == "leader":
                log.append_as_leader(records, leader_epoch=0, wall_ms=WALL_MS)
            else:
                log.append_as_follower(records)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1000)
    assert peak(32 << 20) < peak(1000) + 16_384
    log.close()


def test_a_leader_stamps_offset_and_epoch_and_nothing_else() -> None:
    log = open_log(new_disk())
    fill(log, 3)
    sent = batch(4, producer_id=7, producer_epoch=0, base_sequence=0)
    original = bytes(sent)
    info = log.append_as_leader(sent, leader_epoch=5, wall_ms=WALL_MS)
    stamped = read_header(sent)
    assert (stamped.base_offset, stamped.leader_epoch) == (3, 5)
    assert bytes(sent[16:]) == original[16:]
    assert check_crc(sent)
    assert (info.first_offset, info.last_offset, info.last_leader_epoch) == (3, 6, 5)
    assert log.log_end_offset == 7
    assert contents(log).endswith(bytes(sent))


def test_log_append_time_is_the_leaders_clock() -> None:
    log = open_log(new_disk(), small_config(message_timestamp_type="LogAppendTime"))
    sent = batch(2, timestamp=5)
    info = log.append_as_leader(sent, leader_epoch=0, wall_ms=WALL_MS)
    header = read_header(sent)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == info.log_append_time == info.max_timestamp == WALL_MS
    assert check_crc(sent)


def corrupted(records: memoryview) -> memoryview:
    records[-1] ^= 1
    return records


def recounted(records: memoryview, count: int) -> memoryview:
    """The batch, claiming `count` records, with a CRC that says so."""
    records[57:61] = count.to_bytes(4, "big")
    records[23:27] = (count - 1).to_bytes(4, "big")
    records[17:21] = computed_crc(records).to_bytes(4, "big")
    return records


def encoded_as(records: memoryview, codec: int) -> memoryview:
    """The batch, claiming a codec that it was not compressed with, with a CRC that says so."""
    records[22] = codec
    records[17:21] = computed_crc(records).to_bytes(4, "big")
    return records


REFUSED_BY_A_LEADER: list[tuple[str, Callable[[], memoryview], type[StorageError]]] = [
    ("a CRC that does not match", lambda: corrupted(batch()), CorruptRecordError),
    ("no batch at all", lambda: batch()[:40], InvalidRecordError),
    ("two batches", lambda: joined(batch(), batch()), InvalidRecordError),
    ("a base offset other than 0", lambda: batch(at=1), InvalidRecordError),
    ("over max.message.bytes", lambda: batch(size=600), RecordTooLargeError),
    ("a control batch", lambda: batch(control=True), InvalidRecordError),
    ("more records counted than sent", lambda: recounted(batch(2), 3), InvalidRecordError),
    ("fewer records counted than sent", lambda: recounted(batch(3), 2), InvalidRecordError),
    ("records that are no gzip", lambda: encoded_as(batch(), Codec.GZIP), InvalidRecordError),
    ("a codec without a number", lambda: encoded_as(batch(), 5), UnsupportedCompressionTypeError),
    ("a range that is not its count", lambda: batch(2, last_offset_delta=5), InvalidRecordError),
    (
        "a producer without a sequence",
        lambda: batch(producer_id=1, producer_epoch=0),
        InvalidRecordError,
    ),
    (
        "log append time set by the client",
        lambda: batch(timestamp_type=TimestampType.LOG_APPEND_TIME),
        InvalidTimestampError,
    ),
    ("too far ahead", lambda: batch(timestamp=WALL_MS + 5001), InvalidTimestampError),
    ("too old", lambda: batch(timestamp=WALL_MS - 7001), InvalidTimestampError),
    ("an older magic", lambda: memoryview(bytearray(16) + b"\1" + bytes(60)), InvalidRecordError),
    ("garbage", lambda: memoryview(bytearray(b"\2" * 100)), StorageError),
]


@pytest.mark.parametrize(
    ("make", "error"),
    [case[1:] for case in REFUSED_BY_A_LEADER],
    ids=[c[0] for c in REFUSED_BY_A_LEADER],
)
def test_a_refused_append_changes_nothing(
    make: Callable[[], memoryview], error: type[StorageError]
) -> None:
    system = new_disk()
    config = small_config(
        max_message_bytes=500,
        message_timestamp_after_max_ms=5000,
        message_timestamp_before_max_ms=7000,
    )
    log = open_log(system, config)
    fill(log, 5)
    before = contents(log), log.log_end_offset, headers(log), log.producers.producers.copy()
    sent = make()
    original = bytes(sent)
    with pytest.raises(error):
        log.append_as_leader(sent, leader_epoch=1, wall_ms=WALL_MS)
    assert bytes(sent) == original
    assert (contents(log), log.log_end_offset, headers(log), log.producers.producers) == before
    assert log.latest_epoch == 0
    assert lead(log) == 5


def test_every_record_too_far_ahead_is_named() -> None:
    log = open_log(new_disk(), small_config(message_timestamp_after_max_ms=5000))
    records = [
        Record(offset=index, timestamp=WALL_MS + ahead, key=None, value=b"v")
        for index, ahead in enumerate([0, 5001, 5000, 9000])
    ]
    with pytest.raises(InvalidTimestampError) as refused:
        log.append_as_leader(
            memoryview(bytearray(encode_batch(records))), leader_epoch=0, wall_ms=WALL_MS
        )
    assert list(refused.value.record_errors) == [1, 3]


@pytest.mark.conformance("UL-46")
def test_a_batch_over_segment_bytes_is_refused() -> None:
    log = open_log(new_disk())
    with pytest.raises(RecordBatchTooLargeError):
        lead(log, size=1000)
    assert log.log_end_offset == 0


def test_a_follower_takes_what_its_leader_took_while_segments_were_larger() -> None:
    disk = new_disk()
    log = open_log(disk)
    for offset, size in enumerate((100, 1000, 100)):
        log.append_as_follower(batch(at=offset, size=size))
    assert [each.base_offset for each in log.segments] == [0, 1, 2]
    log.close()
    assert open_log(disk).log_end_offset == 3


@pytest.mark.conformance("UL-46b")
@pytest.mark.conformance("UL-46c")
def test_max_message_bytes_binds_the_leader_and_not_the_follower() -> None:
    log = open_log(new_disk(), small_config(max_message_bytes=100))
    with pytest.raises(RecordTooLargeError):
        lead(log, size=200)
    log.append_as_follower(batch(size=200))
    assert log.log_end_offset == 1


@pytest.mark.parametrize("codec", list(Codec))
def test_a_compressed_record_has_at_most_the_bytes_that_its_topic_allows(codec: Codec) -> None:
    log = open_log(new_disk(), small_config(max_decompressed_message_bytes=100))
    for size, taken in ((90, True), (200, codec is Codec.NONE)):
        records = [Record(timestamp=1, value=b"v"), Record(timestamp=1, value=bytes(size))]
        sent = memoryview(bytearray(encode_batch(records, codec=codec)))
        refusal = pytest.raises(InvalidRecordError, match="over 100")
        with nullcontext() if taken else refusal:
            log.append_as_leader(sent, leader_epoch=0, wall_ms=WALL_MS)


@pytest.mark.conformance("UL-47")
@pytest.mark.parametrize("codec", list(Codec))
def test_a_compacted_topic_takes_no_record_without_a_key(codec: Codec) -> None:
    from storage.batch.records import Record, encode_batch

    log = open_log(new_disk(), small_config(cleanup_policy=frozenset({"compact"})))
    keyless, keyed = Record(timestamp=1, value=b"v"), Record(timestamp=1, key=b"k", value=b"v")
    for records, bad in [([keyless], [0]), ([keyless, keyed], [0]), ([keyed, keyless], [1])]:
        sent = memoryview(bytearray(encode_batch(records, codec=codec)))
        with pytest.raises(InvalidRecordError) as refused:
            log.append_as_leader(sent, leader_epoch=0, wall_ms=WALL_MS)
        assert list(refused.value.record_errors) == bad
    sent = memoryview(bytearray(encode_batch([keyed, keyed], codec=codec)))
    log.append_as_leader(sent, leader_epoch=0, wall_ms=WALL_MS)
    assert log.log_end_offset == 2


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_an_epoch_that_is_assigned_again_starts_at_its_first_batch(role: str) -> None:
    """LeaderEpochFileCache.assign lowers the start offset of the latest epoch."""
    log = open_log(new_disk(), LARGE)
    log.leader_epoch_cache.assign(5, 10)
    if role == "leader":
        lead(log, 3, epoch=5)
    else:
        log.append_as_follower(batch(3, epoch=5))
    assert [(each.epoch, each.start_offset) for each in log.leader_epoch_cache.entries] == [(5, 0)]
    assert log.end_offset_for_epoch(5).offset == 3


def idempotent(sequence: int, count: int = 1, *, epoch: int = 0) -> memoryview:
    return batch(count, producer_id=9, producer_epoch=epoch, base_sequence=sequence)


def test_a_producers_retry_succeeds_with_the_first_offsets_and_writes_nothing() -> None:
    log = open_log(new_disk())
    lead(log)
    first = log.append_as_leader(idempotent(0, 3), leader_epoch=0, wall_ms=WALL_MS)
    fill(log, 2)
    size = log.size
    again = log.append_as_leader(idempotent(0, 3), leader_epoch=0, wall_ms=WALL_MS)
    assert again.duplicate
    assert (
        (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset) == (1, 3)
    )
    assert (log.size, log.log_end_offset) == (size, 6)


@pytest.mark.conformance("UL-18")
@pytest.mark.conformance("UL-18b")
def test_a_producer_may_not_skip_or_go_back() -> None:
    log = open_log(new_disk())
    log.append_as_leader(idempotent(0, epoch=1), leader_epoch=0, wall_ms=WALL_MS)
    with pytest.raises(OutOfOrderSequenceError):
        log.append_as_leader(idempotent(2, epoch=1), leader_epoch=0, wall_ms=WALL_MS)
    with pytest.raises(InvalidProducerEpochError):
        log.append_as_leader(idempotent(1, epoch=0), leader_epoch=0, wall_ms=WALL_MS)
    assert log.log_end_offset == 1


@pytest.mark.conformance("UL-117")
def test_an_unknown_producer_may_start_anywhere() -> None:
    log = open_log(new_disk())
    log.append_as_leader(idempotent(40, epoch=3), leader_epoch=0, wall_ms=WALL_MS)
    assert log.log_end_offset == 1


@pytest.mark.conformance("UL-37")
@pytest.mark.conformance("UL-37b")
@pytest.mark.conformance("UL-37c")
def test_a_follower_takes_what_its_leader_took_duplicates_too() -> None:
    log = open_log(new_disk())
    one = joined(
        *(
            batch(at=at, epoch=0, producer_id=pid, producer_epoch=0, base_sequence=sequence)
            for at, pid, sequence in [(0, 1, 0), (1, 2, 0), (2, 1, 0), (3, 2, 0), (4, 1, 1)]
        )
    )
    log.append_as_follower(one)
    assert log.log_end_offset == 5
    assert contents(log) == bytes(one)


@pytest.mark.conformance("UL-59")
def test_a_follower_refuses_offsets_that_go_back() -> None:
    log = open_log(new_disk())
    with pytest.raises(OffsetsOutOfOrderError):
        log.append_as_follower(joined(*(batch(at=at) for at in (0, 1, 3, 2, 4))))
    assert log.log_end_offset == 0


@pytest.mark.conformance("UL-60")
@pytest.mark.parametrize("codec", list(Codec))
def test_a_follower_refuses_what_begins_below_its_end(codec: Codec) -> None:
    log = open_log(new_disk())
    log.append_as_follower(batch(2, at=0, codec=codec))
    for at in (0, 1):
        with pytest.raises(UnexpectedAppendOffsetError) as refused:
            log.append_as_follower(batch(4, at=at, codec=codec))
        assert (refused.value.first_offset, refused.value.last_offset) == (at, at + 3)
    assert log.log_end_offset == 2


@pytest.mark.parametrize(
    ("epoch", "end", "last"),
    [
        pytest.param(None, 5, 4, id="nobody says"),
        pytest.param(4, 5, 4, id="the latest"),
        pytest.param(3, 2, 1, id="what comes later is left out"),
        pytest.param(2, 2, 1, id="between two"),
        pytest.param(1, 2, 1, id="also what is older behind it"),
        pytest.param(0, 1, 0, id="the first of two"),
    ],
)
def test_a_follower_takes_no_batch_of_a_later_epoch_than_it_follows_in(
    epoch: int | None, end: int, last: int
) -> None:
    """UnifiedLog.analyzeAndValidateRecords, KAFKA-18723."""
    log = open_log(new_disk())
    epochs = (0, 1, 4, 1, 4)
    sent = joined(*(batch(at=at, epoch=each) for at, each in enumerate(epochs)))
    info = log.append_as_follower(sent, leader_epoch=epoch)
    assert (log.log_end_offset, info.last_offset) == (end, last)
    assert info.last_leader_epoch == epochs[last]
    assert [each.leader_epoch for each in headers(log)] == list(epochs[:end])


def test_a_follower_takes_batches_without_an_epoch_and_nothing_of_later_ones_alone() -> None:
    log = open_log(new_disk())
    log.append_as_follower(batch(at=0, epoch=-1), leader_epoch=0)
    info = log.append_as_follower(batch(at=1, epoch=7), leader_epoch=6)
    assert (log.log_end_offset, info.valid_bytes) == (1, 0)


def of_magic(magic: int, *, at: int = 0) -> memoryview:
    """A message of an older format, with the CRC-32 of its time."""
    body = bytes([magic, 0]) + bytes(8 if magic else 0) + b"\xff\xff\xff\xff\0\0\0\1v"
    sound = zlib.crc32(body).to_bytes(4, "big") + body
    return memoryview(bytearray(at.to_bytes(8, "big") + len(sound).to_bytes(4, "big") + sound))


@pytest.mark.parametrize("magic", [0, 1])
def test_a_follower_of_a_log_in_an_older_format_says_so(magic: int) -> None:
    log = open_log(new_disk())
    for sent in (of_magic(magic, at=5), joined(batch(at=0), of_magic(magic, at=5))):
        with pytest.raises(
            UnsupportedFormatError, match=f"magic {magic} at offset 5: only magic 2"
        ):
            log.append_as_follower(sent)
    damaged = of_magic(magic)
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        log.append_as_follower(damaged)
    assert log.log_end_offset == 0


def test_a_follower_refuses_the_whole_append_for_one_bad_crc() -> None:
    log = open_log(new_disk())
    with pytest.raises(CorruptRecordError):
        log.append_as_follower(joined(batch(at=0), corrupted(batch(at=1)), batch(at=2)))
    assert (log.log_end_offset, log.size) == (0, 0)


@pytest.mark.conformance("UL-84")
def test_a_follower_takes_its_epochs_from_the_batches() -> None:
    log = open_log(new_disk())
    log.append_as_follower(joined(batch(at=0, epoch=2), batch(at=1, epoch=2), batch(at=2, epoch=7)))
    assert [str(entry) for entry in log.leader_epoch_cache.entries] == ["2@0", "7@2"]


@pytest.mark.conformance("LL-19")
@pytest.mark.conformance("LL-19b")
@pytest.mark.parametrize("count", [1, 3])
def test_a_gap_wider_than_an_index_can_say_rolls_the_segment(count: int) -> None:
    log = open_log(new_disk())
    far = 2**31 + 10
    log.append_as_follower(batch(count, at=0))
    log.append_as_follower(batch(count, at=far))
    assert list(bases(log)) == [0, far]
    assert log.producers.snapshots == [far]
    # The same inside one append: two writes, nothing refused.
    log.append_as_follower(joined(batch(count, at=far + 10), batch(count, at=3 * far)))
    assert list(bases(log)) == [0, far, 3 * far]


def test_a_failed_write_closes_the_log_and_reports_its_directory() -> None:
    failures: list[OSError] = []
    system = new_disk()
    log = open_log(system, hooks=LogHooks(failed=failures.append))
    fill(log, 3)
    system.inject(Fault(operation="write", names="*.log", partial=True))
    with pytest.raises(KafkaStorageError, match="t-0"):
        lead(log)
    assert log.failed
    assert failures == [log.failure]
    assert log.log_end_offset == 3
    with pytest.raises(KafkaStorageError):
        lead(log)
    with pytest.raises(KafkaStorageError):
        log.append_as_follower(batch(at=3))
    assert len(failures) == 1
    # The half that was written is cut away when the log is opened again.
    system.detach()
    log = open_log(system.reopen())
    assert (log.log_end_offset, len(headers(log))) == (3, 3)


@pytest.mark.conformance("UL-63")
def test_a_failed_sync_closes_the_log_to_reads_as_well() -> None:
    system = new_disk()
    log = open_log(system)
    fill(log, 3)
    system.inject(Fault(operation="sync", names="*.log"))
    with pytest.raises(KafkaStorageError):
        log.flush()
    assert log.recovery_point == 0
    with pytest.raises(KafkaStorageError):
        log.read(0, 100, max_offset_exclusive=3, min_one=True)
    with pytest.raises(KafkaStorageError):
        lead(log)


def test_flush_messages_syncs_as_it_appends() -> None:
    system = new_disk()
    log = open_log(system, small_config(flush_messages=3))
    fill(log, 2)
    assert log.recovery_point == 0
    lead(log)
    assert log.recovery_point == 3
    system.crash()
    assert open_log(system.reopen()).log_end_offset == 3
