"""The batch header: Kafka's bytes, in place; and its checksum."""

import crc32c as package
import pytest
from hypothesis import given, strategies as st

from storage.batch.compression import Codec
from storage.batch.record_batch import (
    HEADER_SIZE,
    MAX_SEQUENCE,
    BatchHeader,
    TimestampType,
    check_crc,
    computed_crc,
    crc32c,
    next_sequence,
    read_header,
    stamp,
    walk,
)
from storage.batch.records import Record, decode_batch, encode_batch
from storage.errors import CorruptRecordError, UnsupportedCompressionTypeError

TWO_RECORDS = [
    Record(timestamp=1000, key=b"k1", value=b"v1"),
    Record(timestamp=1001, key=None, value=b"", headers=(("h", b"x"),)),
]
VECTOR = bytes.fromhex(
    "0000000000000000 00000047 ffffffff 02 ece0668d 0000 00000001 00000000000003e8"
    "00000000000003e9 ffffffffffffffff ffff ffffffff 00000002"
    "14000000046b3104763100 1400020201000202680278"
)
PLACED = bytes.fromhex("0000000000000064 00000047 00000005") + VECTOR[16:]


def test_two_records_encode_to_kafkas_bytes() -> None:
    assert len(VECTOR) == 83
    assert encode_batch(TWO_RECORDS) == VECTOR
    assert encode_batch(TWO_RECORDS, base_offset=100, leader_epoch=5) == PLACED


def test_a_header_reads_as_kafka_wrote_it() -> None:
    header = read_header(memoryview(PLACED))

    assert header == BatchHeader(
        base_offset=100,
        length=71,
        leader_epoch=5,
        magic=2,
        crc=0xECE0668D,
        attributes=0,
        last_offset_delta=1,
        base_timestamp=1000,
        max_timestamp=1001,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=2,
    )
    assert (header.size, header.last_offset, header.next_offset) == (83, 101, 102)
    assert header.codec is Codec.NONE
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert (header.is_control, header.is_transactional, header.has_producer) == (False,) * 3
    assert header.last_sequence == -1
    assert header.delete_horizon_ms is None


def test_stamping_places_a_batch_without_touching_its_crc() -> None:
    batch = bytearray(VECTOR)

    stamp(memoryview(batch), base_offset=100, leader_epoch=5)

    assert batch == PLACED
    assert check_crc(batch)


def test_stamping_log_append_time_rewrites_the_crc_and_every_record_gets_that_time() -> None:
    batch = bytearray(VECTOR)

    stamp(memoryview(batch), base_offset=7, leader_epoch=1, max_timestamp=5000)

    header = read_header(batch)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (header.base_timestamp, header.max_timestamp) == (1000, 5000)
    assert check_crc(batch)
    assert [record.timestamp for record in decode_batch(batch)] == [5000, 5000]


@given(st.integers(21, len(VECTOR) - 1), st.integers(0, 7))
def test_any_flipped_bit_below_the_crc_is_noticed(byte: int, bit: int) -> None:
    batch = bytearray(VECTOR)
    batch[byte] ^= 1 << bit
    assert not check_crc(batch)
    assert computed_crc(batch) != computed_crc(VECTOR)


def test_walking_yields_each_batch_and_stops_before_a_partial_one() -> None:
    buffer = memoryview(VECTOR + PLACED + VECTOR)

    whole = list(walk(buffer))
    assert [position for position, _ in whole] == [0, 83, 166]
    assert [header.base_offset for _, header in whole] == [0, 100, 0]
    for cut in range(1, 84):
        assert [position for position, _ in walk(buffer[:-cut])] == [0, 83]
    assert [position for position, _ in walk(buffer, 83)] == [83, 166]


@pytest.mark.parametrize(
    ("position", "value"),
    [
        pytest.param(16, b"\x01", id="an older magic"),
        pytest.param(16, b"\x03", id="a newer magic"),
        pytest.param(8, b"\x00\x00\x00\x30", id="a length below a header's"),
        pytest.param(8, b"\xff\xff\xff\xff", id="a negative length"),
    ],
)
def test_what_is_not_a_batch_is_corrupt(position: int, value: bytes) -> None:
    batch = bytearray(VECTOR)
    batch[position : position + len(value)] = value

    with pytest.raises(CorruptRecordError):
        read_header(batch)
    with pytest.raises(CorruptRecordError):
        list(walk(batch))


def test_a_length_of_two_gigabytes_is_a_partial_batch_and_costs_nothing() -> None:
    batch = bytearray(VECTOR)
    batch[8:12] = b"\x7f\xff\xff\xff"
    assert list(walk(batch)) == []
    with pytest.raises(CorruptRecordError, match="cut off"):
        decode_batch(batch)


def test_fewer_bytes_than_a_header_are_corrupt() -> None:
    with pytest.raises(CorruptRecordError):
        read_header(VECTOR[: HEADER_SIZE - 1])


def test_a_codec_without_a_name_is_unsupported() -> None:
    header = read_header(VECTOR)._replace(attributes=5)
    with pytest.raises(UnsupportedCompressionTypeError):
        _ = header.codec


def test_sequences_wrap_to_zero() -> None:
    assert next_sequence(MAX_SEQUENCE) == 0
    header = read_header(VECTOR)._replace(base_sequence=MAX_SEQUENCE, last_offset_delta=2)
    assert header.last_sequence == 1


@given(st.binary(max_size=200))
def test_walking_garbage_never_does_worse_than_corrupt(garbage: bytes) -> None:
    try:
        for position, header in walk(memoryview(garbage)):
            assert position + header.size <= len(garbage)
    except CorruptRecordError:
        pass


def test_the_checksum_is_the_packages_own() -> None:
    for data in (b"", b"123456789", bytes(range(256)) * 300):
        assert crc32c(data) == package.crc32c(data)
    assert crc32c(memoryview(b"0123456789")[1:]) == 0xE3069283, "the check value of CRC-32C"
