"""The same formats read in the plainest way, by other people's codecs: what a reader must agree with.

Nothing here is taken from `storage` but the value that a record is, so that a mistake there is
not repeated here. (Kafka: DefaultRecordBatch, DefaultRecord, ByteUtils, OffsetCheckpointFile.)
"""

import gzip
import re
import zlib
from typing import Any

import crc32c
import lz4.frame
import zstandard

from storage.batch.compression import Codec
from storage.batch.records import Record

HEADER_SIZE = 61
INT32, INT64 = 2**31, 2**63


class Refused(Exception):  # noqa: N818 - an answer, not a failure of the test
    """The bytes are not what they should be."""


def number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big", signed=True)


def batches_in(data: bytes) -> tuple[list[tuple[int, bytes]], int | None]:
    """The whole batches from the front on; and where what is no batch begins, if anything is."""
    found: list[tuple[int, bytes]] = []
    at = 0
    while len(data) - at >= HEADER_SIZE:
        size = number(data, at + 8, 4) + 12
        if size < HEADER_SIZE or data[at + 16] != 2:
            return found, at
        if at + size > len(data):
            break
        found.append((at, data[at : at + size]))
        at += size
    return found, None


def base_offset(batch: bytes) -> int:
    return number(batch, 0, 8)


def last_offset(batch: bytes) -> int:
    return number(batch, 0, 8) + number(batch, 23, 4)


def leader_epoch(batch: bytes) -> int:
    return number(batch, 12, 4)


def crc_matches(batch: bytes) -> bool:
    return int.from_bytes(batch[17:21], "big") == crc32c.crc32c(batch[21:])


def sound_part(data: bytes, base: int, epoch: int = -1) -> list[bytes]:
    """Return what recovery believes: all up to the first batch that is not sound, or goes back."""
    found: list[bytes] = []
    following = base
    for _, batch in batches_in(data)[0]:
        if (
            not crc_matches(batch)
            or base_offset(batch) < following
            or number(batch, 23, 4) < 0
            or last_offset(batch) - base >= INT32
            or -1 != leader_epoch(batch) < epoch
            or not _ends_something(batch)
        ):
            break
        following, epoch = last_offset(batch) + 1, max(epoch, leader_epoch(batch))
        found.append(batch)
    return found


def _ends_something(batch: bytes) -> bool:
    """Not a marker, or one that says what it ended."""
    if not batch[22] & 0x20 or number(batch, 43, 8) < 0:
        return True
    try:
        records = records_of(batch)
    except Refused:
        return False
    if not records:
        return True
    key, value = records[0].key or b"", records[0].value or b""
    if len(key) < 4 or number(key, 0, 2) < 0:
        return False
    return number(key, 2, 2) not in {0, 1} or len(value) >= 6


def inflate(batch: bytes) -> tuple[Codec, bytes]:
    kind, body = batch[22] & 7, batch[HEADER_SIZE:]
    if kind > 4:
        raise Refused("no such codec")
    try:
        return Codec(kind), _INFLATE[kind](body)
    except (OSError, EOFError, ValueError, RuntimeError, zlib.error, zstandard.ZstdError) as error:
        raise Refused(str(error)) from error


def _unsnappy(body: bytes) -> bytes:
    if not body.startswith(b"\x82SNAPPY\0"):
        return _unsnap(body)
    plain, at = b"", 16
    while at < len(body):
        size = number(body, at, 4)
        if at + 4 > len(body) or size < 0 or at + 4 + size > len(body):
            raise Refused("a block is cut off")
        plain += _unsnap(body[at + 4 : at + 4 + size])
        at += 4 + size
    return plain


def _unsnap(block: bytes) -> bytes:
    """One raw block, by the format's description: a length, then literals and copies."""
    cursor, plain, size, shift = Cursor(block), bytearray(), 0, 0
    while True:
        (byte,) = cursor.take(1)
        size, shift = size | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            break
    while cursor.left:
        (tag,) = cursor.take(1)
        if tag & 3 == 0:
            extra = max(0, (tag >> 2) - 59)
            count = int.from_bytes(cursor.take(extra), "little") if extra else tag >> 2
            plain += cursor.take(count + 1)
            continue
        if tag & 3 == 1:
            count, back = 4 + (tag >> 2 & 7), (tag >> 5) << 8 | cursor.take(1)[0]
        else:
            count, back = (
                1 + (tag >> 2),
                int.from_bytes(cursor.take(4 if tag & 3 == 3 else 2), "little"),
            )
        if not 0 < back <= len(plain):
            raise Refused("a copy from before the start")
        for _ in range(count):
            plain.append(plain[-back])
    if len(plain) != size:
        raise Refused("not as long as it says")
    return bytes(plain)


def _unlz4(body: bytes) -> bytes:
    """One frame and nothing behind it: storage takes what follows for another one."""
    frame = lz4.frame.LZ4FrameDecompressor()
    plain: bytes = frame.decompress(body)
    if not frame.eof or frame.unused_data:
        raise Refused("not one whole frame")
    return plain


def _unzstd(body: bytes) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True) as reader:
        plain: bytes = reader.read(1 << 24)
        return plain


_INFLATE: tuple[Any, ...] = (bytes, gzip.decompress, _unsnappy, _unlz4, _unzstd)


class Cursor:
    """Bytes, taken from the front."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise Refused(f"{size} bytes of {self.left}")
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self, bits: int = 32) -> int:
        value = 0
        for shift in range(0, bits, 7):
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> bits:
                    raise Refused("a varint that is too large")
                return value // 2 if value % 2 == 0 else -(value // 2) - 1
        raise Refused("a varint that is too long")

    def nullable(self) -> bytes | None:
        size = self.varint()
        return None if size == -1 else self.take(size)


def records_of(batch: bytes) -> list[Record]:
    """One batch's, or Refused."""
    _, plain = inflate(batch)
    cursor, count = Cursor(plain), number(batch, 57, 4)
    if count < 0:
        raise Refused("a count below 0")
    found = [_record(batch, Cursor(cursor.take(cursor.varint()))) for _ in range(count)]
    if cursor.left:
        raise Refused("bytes after the last record")
    return found


def _record(batch: bytes, body: Cursor) -> Record:
    body.take(1)
    time_delta, offset_delta = body.varint(64), body.varint()
    key, value = body.nullable(), body.nullable()
    count = body.varint()
    if count < 0:
        raise Refused("a count below 0")
    headers = []
    for _ in range(count):
        name = body.take(body.varint())
        headers.append((_text(name), body.nullable()))
    if body.left:
        raise Refused("bytes after the last header")
    append_time, sequence = batch[22] & 8, number(batch, 53, 4)
    timestamp = number(batch, 35, 8) if append_time else number(batch, 27, 8) + time_delta
    offset = base_offset(batch) + offset_delta
    if not -INT64 <= timestamp < INT64 or not -INT64 <= offset < INT64:
        raise Refused("outside 64 bits")
    if sequence != -1:
        sequence = (sequence + offset_delta) % INT32
    return Record(offset, timestamp, key, value, tuple(headers), sequence)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Refused("not text") from error


def checkpoint_lines(data: bytes, *widths: int) -> list[list[str]]:
    """The entries of a checkpoint file: the last fields are numbers of `widths` bits, not negative."""
    if not data:
        return []
    lines = _text(data).splitlines()
    if len(lines) < 2 or lines[0].strip() != "0":
        raise Refused("no version and count")
    if not re.fullmatch("[0-9]{1,19}", lines[1].strip()) or int(lines[1]) != len(lines) - 2:
        raise Refused("not as many as it says")
    rows = [line.split() for line in lines[2:]]
    for row in rows:
        numbers = row[-len(widths) :]
        if len(numbers) < len(widths) or not all(
            re.fullmatch("[0-9]{1,19}", each) and int(each) < 1 << width - 1
            for each, width in zip(numbers, widths, strict=True)
        ):
            raise Refused(f"{row}")
    return rows
