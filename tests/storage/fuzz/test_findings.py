"""What fuzzing has found, each by name, so that it stays found."""

import struct

import crc32c
import pyarrow as pa
import pytest

from storage.batch.batch_stream import DamagedLogError
from storage.batch.columns import columnar
from storage.batch.compression import Codec, compress, decompress
from storage.batch.record_batch import HEADER_SIZE
from storage.batch.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    decode_batch,
    encode_batch,
    encode_control_batch,
)
from storage.checkpoint import OffsetCheckpoint, read_clean_shutdown, read_meta_properties
from storage.errors import CheckpointError, CorruptRecordError
from storage.log.segment_file import open_segment
from storage.testing import FaultyFileSystem
from storage.tools.dump.arrow import arrow_batches, arrow_records
from storage.tools.dump.entries import Damage
from tests.storage.fuzz.bounds import bounded
from tests.storage.fuzz.corpus import put
from tests.storage.logs import (
    WALL_MS,
    batch,
    contents,
    joined,
    lead,
    new_disk,
    offsets,
    open_log,
    outlined,
)

LOG = "/d/t-0/00000000000000000000.log"
LARGEST = 2**63 - 1


def changed(data: bytes, at: int, layout: str, value: int) -> bytes:
    """A batch with one field of its header set, and the checksum right."""
    found = bytearray(data)
    struct.pack_into(layout, found, at, value)
    struct.pack_into(">I", found, 17, crc32c.crc32c(bytes(found[21:])))
    return bytes(found)


def with_records(body: bytes, count: int = 1) -> bytes:
    """A batch that holds just `body`, and the checksum right."""
    empty = changed(encode_batch([]), 57, ">i", count)
    return changed(empty + body, 8, ">i", HEADER_SIZE - 12 + len(body))


def on_disk(data: bytes) -> FaultyFileSystem:
    disk = new_disk()
    put(disk, LOG, data)
    return disk


@pytest.mark.parametrize("length", [b"\x8c\x80\x80\x80\x80\x00", b"\x8c\x80\x80\x80\x10"])
def test_a_length_of_more_than_32_bits_is_none(length: bytes) -> None:
    """Kafka's clients refuse a sixth byte: a leader that took the batch would stall them."""
    for read in (decode_batch, lambda data: list(outlined(data))):
        with pytest.raises(CorruptRecordError, match="more than 32 bits"):
            read(with_records(length + b"\0\0\0\1\1\0"))
    with pytest.raises(CorruptRecordError, match="more than 32 bits"):
        list(columnar.decode(with_records(length + b"\0\0\0\1\1\0")))


@pytest.mark.parametrize(("at", "what"), [(27, "timestamp"), (0, "offset")])
def test_offsets_and_times_over_64_bits_are_refused(at: int, what: str) -> None:
    good = encode_batch([Record(timestamp=1000 + n) for n in range(2)], base_offset=5)
    broken = changed(good, at, ">q", LARGEST)
    for read in (decode_batch, lambda data: list(outlined(data))):
        with pytest.raises(CorruptRecordError, match="64 bits"):
            read(broken)
    with pytest.raises(CorruptRecordError, match="64 bits"):
        list(columnar.decode(broken))


def test_the_largest_timestamp_of_all_is_one() -> None:
    largest = encode_batch([Record(timestamp=LARGEST), Record(timestamp=0)], base_offset=5)
    assert [record.timestamp for record in decode_batch(largest)] == [LARGEST, 0]
    assert sum(found.num_rows for found in columnar.decode(largest)) == 2


def test_a_batch_that_says_it_is_a_control_batch_is_checked_all_the_same() -> None:
    """A flipped bit must not hide records from who wants none of those."""
    good = encode_batch([Record(timestamp=WALL_MS, value=b"v")])
    flipped = bytearray(good)
    flipped[22] |= 0x20
    segment = open_segment(LOG, on_disk(good + flipped))
    with pytest.raises(DamagedLogError, match=rf"byte {len(good)}: its CRC"):
        list(segment.records())


def test_records_of_an_unknown_codec_are_damage_with_a_place() -> None:
    good = encode_batch([Record(timestamp=WALL_MS, value=b"v")])
    unknown = changed(good, 21, ">h", 7)
    segment = open_segment(LOG, on_disk(good + unknown))
    with pytest.raises(DamagedLogError, match=rf"byte {len(good)}: no codec") as caught:
        list(segment.records())
    assert caught.value.position == len(good)


def test_arrow_goes_on_after_records_that_do_not_parse() -> None:
    good, broken, after = (
        encode_batch([Record(timestamp=WALL_MS, value=b"v")], base_offset=at) for at in range(3)
    )
    found = list(arrow_records(on_disk(good + changed(broken, 57, ">i", 9) + after), [LOG]))
    assert [each.num_rows for each in found if isinstance(each, pa.RecordBatch)] == [1, 1]
    (damage,) = (each for each in found if isinstance(each, Damage))
    assert damage.position == len(good)


def test_a_batch_whose_last_offset_is_none_is_still_a_row() -> None:
    huge = struct.pack(">q", LARGEST) + bytes(batch(3))[8:]
    (rows,) = arrow_batches(on_disk(huge), [LOG])
    assert isinstance(rows, pa.RecordBatch)
    assert rows.column("last_offset").to_pylist() == [None]


@pytest.mark.parametrize("offset", [str(2**63), "9" * 19, "-1"])
def test_a_checkpoint_holds_offsets_and_nothing_else(offset: str) -> None:
    disk = new_disk()
    put(disk, "/d/c", f"0\n1\nt 0 {offset}\n".encode())
    with pytest.raises(CheckpointError, match="/d/c: malformed line"):
        OffsetCheckpoint(disk, "/d/c").read()


@pytest.mark.parametrize("node", ["-1", str(2**31)])
def test_a_node_is_numbered_from_0_on(node: str) -> None:
    disk = new_disk()
    put(disk, "/d/meta.properties", f"version=1\nnode.id={node}\n".encode())
    with pytest.raises(CheckpointError, match=r"/d/meta\.properties: malformed line"):
        read_meta_properties(disk, "/d")


@pytest.mark.parametrize("epoch", ["true", str(2**63), "-2", "1.5"])
def test_a_negative_broker_epoch_in_the_marker_is_illegible(epoch: str) -> None:
    disk = new_disk()
    put(disk, "/d/.kafka_cleanshutdown", f'{{"version":0,"brokerEpoch":{epoch}}}'.encode())
    marker = read_clean_shutdown(disk, "/d")
    assert marker is not None
    assert marker.broker_epoch is None


def illegible_marker(at: int) -> memoryview:
    """A control batch with the right checksum, whose record has -1 headers."""
    marker = EndTransactionMarker(ControlRecordType.COMMIT, 0)
    good = encode_control_batch(
        marker, timestamp=WALL_MS, producer_id=1, producer_epoch=0, base_offset=at, leader_epoch=0
    )
    return memoryview(bytearray(changed(good[:-1] + b"\1", 0, ">q", at)))


def test_a_follower_takes_no_marker_that_it_could_not_apply() -> None:
    """It used to be written first: the log then ended behind a batch that nobody had noted."""
    log = open_log(new_disk())
    good = batch(at=0, epoch=0)
    with pytest.raises(CorruptRecordError):
        log.append_as_follower(joined(good, illegible_marker(1)))
    assert (log.log_end_offset, contents(log)) == (0, b"")
    log.append_as_follower(good)
    assert log.log_end_offset == 1


def test_recovery_ends_before_a_marker_that_says_nothing() -> None:
    disk = on_disk(bytes(joined(batch(at=0, epoch=0), illegible_marker(1), batch(at=2, epoch=0))))
    log = open_log(disk)
    assert offsets(contents(log)) == [0]
    assert lead(log) == 1


def test_a_damaged_header_is_named_by_its_file() -> None:
    disk = new_disk()
    log = open_log(disk)
    for _ in range(3):
        lead(log, size=200)
    log.close()
    disk.disk.corrupt(LOG, log.size // 3 + 16, b"\7")
    log = open_log(disk, clean=True, recovery_point=3)
    with pytest.raises(CorruptRecordError, match=rf"{LOG}, byte {log.size // 3}: magic 7"):
        log.read(1, 1000, max_offset_exclusive=3, min_one=True)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_bomb_costs_what_was_allowed_and_no_more(codec: Codec) -> None:
    """64 MiB of zeroes in a few kilobytes; a reader that allows one takes little more than one."""
    bomb = bytes(compress(codec, bytes(64 << 20)))
    with bounded(len(bomb)), pytest.raises(CorruptRecordError):
        decompress(codec, bomb, max_size=1 << 20)


def test_a_lookup_by_time_names_the_batch_that_it_cannot_read() -> None:
    log = open_log(new_disk())
    lead(log)
    second = log.size
    broken = changed(changed(with_records(b"\xff" * 6), 0, ">q", 1), 35, ">q", WALL_MS + 5)
    log.append_as_follower(memoryview(bytearray(broken)))
    with pytest.raises(CorruptRecordError, match=rf"{LOG}, byte {second}: a varint of more"):
        log.offset_for_timestamp(WALL_MS + 5)
