"""A leader takes only records that every reader can take apart (LogValidator, DefaultRecord)."""

import pytest
from hypothesis import given, strategies as st

from storage.batch.allowance import Allowance
from storage.batch.compression import Codec, compress
from storage.batch.record_batch import BatchHeader, read_header
from storage.batch.records import Record, decode_batch, decode_each, encode_batch
from storage.batch.sound_records import check_records
from storage.batch.varint import varint
from storage.config import LogConfig
from storage.errors import CorruptRecordError, InvalidRecordError, LongCheckError
from tests.storage.logs import claiming, new_disk, open_log

NULL, EMPTY = varint(-1), varint(0)


def record(
    delta: int,
    *,
    key: bytes = NULL,
    value: bytes = varint(1) + b"v",
    headers: bytes = EMPTY,
    since: int = 0,
    longer: int = 0,
    more: bytes = b"",
) -> bytes:
    """Return one record, encoded, whose length says `longer` than it is."""
    body = b"\0" + varint(since) + varint(delta) + key + value + headers + more
    return varint(len(body) + longer) + body


def header_of(count: int) -> BatchHeader:
    sound = read_header(encode_batch([Record(timestamp=0)]))
    return sound._replace(record_count=count, last_offset_delta=count - 1)


def is_sound(data: bytes, count: int, *, counted: bool) -> bool:
    try:
        check_records(header_of(count), memoryview(data), counted=counted)
    except CorruptRecordError:
        return False
    return True


def can_be_read(data: bytes, count: int, *, counted: bool) -> bool:
    """The naive twin: take all records apart."""
    try:
        found = list(decode_each(header_of(count), data))
    except CorruptRecordError:
        return False
    return not counted or [each.offset for each in found] == list(range(count))


UNSOUND = {
    "a header without a name": {"headers": varint(1) + NULL + varint(1) + b"x"},
    "-1 headers": {"headers": NULL},
    "two headers where one is": {"headers": varint(2) + varint(1) + b"h" + NULL},
    "100,000 headers": {"headers": varint(100_000)},
    "a header name that is too long": {"headers": varint(1) + varint(100) + b"h" + NULL},
    "a header value that is too long": {"headers": varint(1) + varint(1) + b"h" + varint(9)},
    "a key that is too long": {"key": varint(50)},
    "a value that is too long": {"value": varint(50)},
    "a value that is too short": {"value": varint(2) + b"abcdef"},
    "a record that is too short": {"longer": -2},
    "a record that is too long": {"longer": 2},
    "a record of no bytes": {"longer": -100},
    "bytes behind a record": {"more": b"zz"},
    "a number without an end": {"key": b"\xff" * 6},
}
SOUND = {
    "a header of no bytes": {"headers": varint(1) + EMPTY + EMPTY},
    "a header value of null": {"headers": varint(1) + varint(1) + b"h" + NULL},
    "a header value of length -5": {"headers": varint(1) + varint(1) + b"h" + varint(-5)},
    "a header name that is not UTF-8": {"headers": varint(1) + varint(1) + b"\xff" + NULL},
    "a key of length -2": {"key": varint(-2)},
    "a value of length -2": {"value": varint(-2)},
    "a tombstone": {"key": varint(1) + b"k", "value": NULL},
    "a time that is far off": {"since": 2**30},
}
PLACES = [
    pytest.param([], [], id="alone"),
    pytest.param([record(each) for each in range(40)], [], id="behind alike ones"),
    pytest.param([], [record(each) for each in range(1, 41)], id="before alike ones"),
    pytest.param(
        [record(each, value=varint(each % 3) + bytes(each % 3)) for each in range(30)],
        [record(each) for each in range(31, 60)],
        id="among others",
    ),
]


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize(("before", "behind"), PLACES)
@pytest.mark.parametrize("name", [*UNSOUND, *SOUND])
def test_one_unsound_record_makes_a_batch_unsound(
    name: str, before: list[bytes], behind: list[bytes], *, counted: bool
) -> None:
    odd = record(len(before), **(UNSOUND | SOUND)[name])  # type: ignore[arg-type] # a part of it
    data = b"".join((*before, odd, *behind))
    count = len(before) + 1 + len(behind)
    assert is_sound(data, count, counted=counted) is (name in SOUND)
    assert can_be_read(data, count, counted=counted) is (name in SOUND)


@pytest.mark.parametrize(
    "deltas",
    [
        pytest.param([*range(50), 49], id="the last one twice"),
        pytest.param([1, *range(1, 50)], id="the first is another"),
        pytest.param(range(1, 51), id="all are one more"),
        pytest.param([0] * 50, id="all are 0"),
        pytest.param([*range(20), 30, *range(21, 50)], id="one is another"),
        pytest.param([-each for each in range(50)], id="downwards"),
    ],
)
def test_offset_deltas_that_do_not_count_up_are_unsound_where_they_are_looked_at(
    deltas: list[int],
) -> None:
    data = b"".join(map(record, deltas))
    assert is_sound(data, len(deltas), counted=False)
    assert not is_sound(data, len(deltas), counted=True)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 40),
            st.sampled_from([b"", b"k", b"key" * 30]),
            st.sampled_from([None, b"", b"v" * 60, b"v" * 9000]),
            st.sampled_from([(), (("h", None),), (("a", b"x"), ("b", b""))]),
        ),
        min_size=1,
        max_size=5,
    ),
    st.none() | st.tuples(st.integers(0, 100_000), st.integers(0, 255)),
    st.integers(-2, 2),
    st.integers(0, 3),
    st.booleans(),
)
def test_only_sound_records_can_be_decoded(
    runs: list[tuple[int, bytes, bytes | None, tuple[tuple[str, bytes | None], ...]]],
    broken: tuple[int, int] | None,
    miscounted: int,
    cut: int,
    counted: bool,
) -> None:
    """Runs of records that are alike, with a byte changed, some cut off, or a wrong count."""
    records = [
        Record(timestamp=each % 3, key=key or None, value=value, headers=headers)
        for count, key, value, headers in runs
        for each in range(count)
    ]
    data = bytearray(encode_batch(records)[61:])
    if broken is not None:
        data[broken[0] % len(data)] = broken[1]
    sent = bytes(data[: len(data) - cut])
    count = max(1, len(records) + miscounted)
    assert is_sound(sent, count, counted=counted) is can_be_read(sent, count, counted=counted)


def test_a_time_of_more_than_64_bits_is_unsound() -> None:
    data = b"".join(record(each, since=1) for each in range(40))
    header = header_of(40)._replace(base_timestamp=2**63 - 1)
    with pytest.raises(CorruptRecordError, match="64 bits"):
        check_records(header, data, counted=True)
    check_records(header._replace(base_timestamp=2**63 - 2), data, counted=True)


def test_many_headers_are_paid_for() -> None:
    """A record is one of few, and its headers may be all bytes of a large batch."""
    count = 100_000
    data = record(0, headers=varint(count) + (EMPTY + NULL) * count)
    check_records(header_of(1), data, counted=True)
    with pytest.raises(LongCheckError):
        check_records(header_of(1), data, counted=True, allowance=Allowance())


# Through a log.

WRONG = record(0) + record(0)
LOGS = {
    "producer": (Codec.LZ4, "producer", False),
    "of the topic's own codec": (Codec.GZIP, "gzip", False),
    "compressed here": (Codec.NONE, "gzip", False),
    "uncompressed here": (Codec.ZSTD, "uncompressed", False),
    "uncompressed": (Codec.NONE, "producer", True),
    "uncompressed, as the topic has it": (Codec.NONE, "uncompressed", True),
}


@pytest.mark.parametrize("cleanup", ["delete", "compact"])
@pytest.mark.parametrize("name", LOGS)
def test_compressed_records_whose_offsets_contradict_their_batch_are_refused(
    name: str, cleanup: str
) -> None:
    codec, own, taken = LOGS[name]
    keyed = record(0, key=varint(1) + b"k") + record(0, key=varint(1) + b"k")
    config = LogConfig(compression_type=own, cleanup_policy=frozenset({cleanup}))
    log = open_log(new_disk(), config)
    sent = claiming(2, compress(codec, keyed) if codec is not Codec.NONE else keyed, codec)
    if taken:
        log.append_as_leader(sent, leader_epoch=0, wall_ms=0)
    else:
        with pytest.raises(InvalidRecordError, match="offset"):
            log.append_as_leader(sent, leader_epoch=0, wall_ms=0)
    assert log.log_end_offset == (2 if taken else 0)


def test_a_batch_with_a_header_without_a_name_is_refused() -> None:
    log = open_log(new_disk())
    nameless = record(0, headers=varint(1) + NULL + NULL)
    with pytest.raises(InvalidRecordError, match="header without a name"):
        log.append_as_leader(claiming(1, nameless, Codec.NONE), leader_epoch=0, wall_ms=0)
    odd = record(0, key=varint(-2), headers=varint(1) + varint(1) + b"\xff" + varint(-3))
    sent = claiming(1, odd, Codec.NONE)
    log.append_as_leader(sent, leader_epoch=0, wall_ms=0)
    (read,) = decode_batch(sent)
    assert (read.key, read.headers) == (None, (("\ufffd", None),)), "as Java reads them"
