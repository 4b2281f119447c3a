"""A topic with a codec of its own: the leader writes with it, and keeps every record as it was."""

import random
import zlib

import cramjam
import pytest
from hypothesis import given, settings, strategies as st

from storage.batch.compression import Codec, compress, decompress
from storage.batch.record_batch import HEADER_SIZE, NO_TIMESTAMP, read_header, walk
from storage.batch.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    decode_batch,
    encode_batch,
    encode_control_batch,
)
from storage.config import LogConfig
from storage.errors import CorruptRecordError, InvalidTimestampError, RecordTooLargeError
from storage.log.log import Log
from tests.storage.logs import WALL_MS, batch, contents, new_disk, open_log

WORDS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def log_of(compression_type: str, **changes: object) -> Log:
    return open_log(new_disk(), LogConfig(compression_type=compression_type, **changes))  # type: ignore[arg-type]  # any of them


def append(log: Log, sent: bytes | memoryview, *, from_client: bool = True) -> bytes:
    """Append it, and return what is in the log of it."""
    start = log.size
    log.append_as_leader(
        memoryview(bytearray(sent)), leader_epoch=4, wall_ms=WALL_MS, from_client=from_client
    )
    return contents(log)[start:]


records = st.lists(
    st.builds(
        Record,
        offset=st.just(-1),
        sequence=st.just(-1),
        timestamp=st.integers(WALL_MS - 1000, WALL_MS),
        key=st.none() | st.binary(max_size=10),
        value=st.none() | st.binary(max_size=300),
        headers=st.lists(
            st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3
        ).map(tuple),
    ),
    min_size=1,
    max_size=10,
)


@pytest.mark.parametrize("name", WORDS)
@settings(max_examples=25)
@given(sent=records, codec=st.sampled_from(Codec))
def test_every_batch_is_written_with_the_topics_codec_and_reads_the_same(
    name: str, sent: list[Record], codec: Codec
) -> None:
    log = log_of(name)
    append(log, batch())
    encoded = encode_batch(
        sent, codec=codec, producer_id=7, producer_epoch=1, base_sequence=5, base_offset=0
    )
    written = append(log, encoded)
    header, came = read_header(written), read_header(encoded)
    assert header.codec is WORDS[name]
    unchanged = header._replace(length=came.length, crc=came.crc, attributes=came.attributes)
    assert unchanged == came._replace(base_offset=1, leader_epoch=4)
    expected = [each._replace(offset=each.offset + 1) for each in decode_batch(encoded)]
    assert decode_batch(written) == expected


@pytest.mark.parametrize("codec", Codec)
def test_the_producers_codec_is_kept_where_the_topic_has_none_of_its_own(codec: Codec) -> None:
    sent = batch(5, codec=codec, size=100)
    written = append(log_of("producer"), sent)
    assert written[HEADER_SIZE:] == bytes(sent)[HEADER_SIZE:]


def test_a_batch_of_the_right_codec_keeps_its_bytes_whatever_the_level() -> None:
    sent = batch(5, codec=Codec.ZSTD, size=1000)
    written = append(log_of("zstd", compression_zstd_level=19), sent)
    assert written[HEADER_SIZE:] == bytes(sent)[HEADER_SIZE:]


def test_levels_reach_the_compressor() -> None:
    chance = random.Random(1)
    sent = batch(1, key=bytes(chance.choices(b"abcdefgh", k=20_000)))
    plain = bytes(sent)[HEADER_SIZE:]
    for name, field, levels in (
        ("gzip", "compression_gzip_level", (1, 9)),
        ("lz4", "compression_lz4_level", (9, 12)),  # 9 is the fast one
        ("zstd", "compression_zstd_level", (-50, 19)),
    ):
        low, high = (append(log_of(name, **{field: level}), sent) for level in levels)
        assert len(high) < len(low), name
        for written, level in ((low, levels[0]), (high, levels[1])):
            assert written[HEADER_SIZE:] == bytes(compress(WORDS[name], plain, level))


def test_default_levels_are_those_of_kafkas_libraries() -> None:
    plain = bytes(range(256)) * 40
    assert bytes(compress(Codec.ZSTD, plain)) == bytes(cramjam.zstd.compress(plain, 3))
    assert compress(Codec.GZIP, plain, -1) == compress(
        Codec.GZIP, plain, zlib.Z_DEFAULT_COMPRESSION
    )
    for level in (1, 3, 17):
        packed = compress(Codec.LZ4, plain, level)
        assert bytes(decompress(Codec.LZ4, packed, max_size=len(plain))) == plain


def test_append_time_is_stamped_on_what_is_written() -> None:
    log = log_of("gzip", message_timestamp_type="LogAppendTime")
    written = append(log, batch(3, timestamp=5, codec=Codec.LZ4))
    assert {each.timestamp for each in decode_batch(written)} == {WALL_MS}
    assert read_header(written).codec is Codec.GZIP


def test_the_size_limit_holds_for_what_comes_and_for_what_is_written() -> None:
    sent = batch(10, codec=Codec.GZIP, size=1000)  # zeroes: they pack well
    limit = {"max_message_bytes": len(sent) + 100}
    log = log_of("uncompressed", **limit)
    with pytest.raises(RecordTooLargeError):
        append(log, sent)
    assert (log.size, log.log_end_offset) == (0, 0)
    assert append(log_of("gzip", **limit), sent)
    with pytest.raises(RecordTooLargeError):  # although it would fit afterwards
        append(log_of("gzip", **limit), batch(10, size=1000))


def test_an_append_that_is_refused_changes_nothing() -> None:
    log = log_of("lz4")
    broken = batch(3, size=500)
    broken[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="CRC"):
        append(log, broken)
    assert (log.size, log.log_end_offset) == (0, 0)


def test_a_marker_stays_as_the_coordinator_wrote_it() -> None:
    marker = encode_control_batch(
        EndTransactionMarker(ControlRecordType.COMMIT, 1),
        timestamp=WALL_MS,
        producer_id=7,
        producer_epoch=0,
    )
    written = append(log_of("zstd"), marker, from_client=False)
    assert written[HEADER_SIZE:] == marker[HEADER_SIZE:]


def test_only_batches_of_another_codec_are_rewritten() -> None:
    log = log_of("zstd")
    sent = [batch(2, codec=codec, size=50) for codec in (Codec.ZSTD, Codec.NONE, Codec.LZ4)]
    written = append(log, b"".join(sent), from_client=False)
    headers = [header for _, header in walk(written)]
    assert [header.codec for header in headers] == [Codec.ZSTD] * 3
    assert [header.base_offset for header in headers] == [0, 2, 4]
    assert log.log_end_offset == 6


def test_a_retry_is_recognised_whatever_was_written_the_first_time() -> None:
    log = log_of("zstd")
    sent = bytes(batch(3, producer_id=7, producer_epoch=0, base_sequence=0))
    append(log, sent)
    info = log.append_as_leader(memoryview(bytearray(sent)), leader_epoch=4, wall_ms=WALL_MS)
    assert info.duplicate
    assert log.log_end_offset == 3


def test_records_as_old_as_can_be_are_too_old() -> None:
    log = log_of("producer", message_timestamp_before_max_ms=1000)
    assert append(log, batch(timestamp=NO_TIMESTAMP))
    for timestamp in (-2, WALL_MS - 1001):
        with pytest.raises(InvalidTimestampError, match="older"):
            append(log, batch(timestamp=timestamp))
    assert append(log, batch(timestamp=WALL_MS - 1000))
