"""The four codecs of a record batch, framed as Kafka's clients frame them.

    gzip     one gzip member
    snappy   xerial framing: a 16-byte header, then (length, raw snappy block) of 32 KiB
             each. Plain raw snappy is read as well, since some producers send it
    lz4      an LZ4 frame of independent blocks: Kafka's Lz4BlockInputStream refuses linked ones
    zstd     a zstd frame

Rule: what a sender claims is never allocated. Output goes into anonymous memory that the
kernel commits page by page as it is written, or is checked against what its input could
possibly expand to; past `max_size` it is refused.
"""

import enum
import mmap
import struct
import zlib
from collections.abc import Callable
from typing import Final

import cramjam

from storage.errors import CorruptRecordError, ExpansionError, UnsupportedCompressionTypeError
from storage.types import Buffer


class Codec(enum.IntEnum):
    """Bits 0-2 of a batch's attributes (CompressionType in Kafka)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def named(cls, name: str) -> "Codec":
        """Return the codec that `compression.type` calls `name`."""
        try:
            return cls[name.upper()]
        except KeyError:
            raise UnsupportedCompressionTypeError(f"no compression codec called {name!r}") from None


# Kafka's default levels (KIP-390). gzip's says that zlib chooses. lz4's 9 means the fast
# compressor, and every other one the slow compressor at that level (Lz4BlockOutputStream).
GZIP_LEVEL: Final = -1
LZ4_LEVEL: Final = 9
ZSTD_LEVEL: Final = 3

_GZIP_WBITS: Final = 31
_LZ4_FAST: Final = 1

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK: Final = 32 * 1024
_BLOCK_LENGTH: Final = struct.Struct(">i")

# What Rust's standard library says of a write for which there is no room (ErrorKind::WriteZero).
_NO_ROOM: Final = "failed to write whole buffer"

# A snappy copy element turns 3 bytes into at most 64, so no sound block grows more than this.
_SNAPPY_MAX_RATIO: Final = 22


def compress(codec: Codec, data: Buffer, level: int | None = None) -> Buffer:
    """Return `data` as `codec` writes it, at `level` where the codec has levels; None is Kafka's
    default.
    """
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            compressor = zlib.compressobj(GZIP_LEVEL if level is None else level, wbits=_GZIP_WBITS)
            return compressor.compress(data) + compressor.flush()
        case Codec.SNAPPY:
            return _xerial_compress(memoryview(data))
        case Codec.LZ4:
            slow = level is not None and level != LZ4_LEVEL
            frame = cramjam.lz4.Compressor(
                level if slow else _LZ4_FAST, content_checksum=False, block_linked=False
            )
            frame.compress(data if isinstance(data, bytes) else bytes(data))
            return bytes(frame.finish())
        case Codec.ZSTD:  # pragma: no branch - there is no other, as mypy knows
            return bytes(cramjam.zstd.compress(data, ZSTD_LEVEL if level is None else level))


def decompress(codec: Codec, data: Buffer, *, max_size: int) -> Buffer:
    """Return the bytes that `data` was compressed from.

    Raise CorruptRecordError where it is not `codec`, and ExpansionError where it is larger than
    `max_size`.
    """
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return _gunzip(data, max_size)
        case Codec.SNAPPY:
            return _snappy_decompress(memoryview(data), max_size)
        case Codec.LZ4:
            return _decompress_frame(cramjam.lz4.decompress_into, codec, data, max_size)
        case Codec.ZSTD:  # pragma: no branch - as above
            return _decompress_frame(cramjam.zstd.decompress_into, codec, data, max_size)


def _gunzip(data: Buffer, max_size: int) -> bytes:
    inflate = zlib.decompressobj(wbits=_GZIP_WBITS)
    try:
        plain = inflate.decompress(data, max_size + 1)
    except zlib.error as error:
        raise CorruptRecordError(f"not gzip: {error}") from error
    if len(plain) > max_size:
        raise _too_large(Codec.GZIP, max_size)
    if not inflate.eof or inflate.unused_data:
        raise CorruptRecordError("not one whole gzip member")
    return plain


def _xerial_compress(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _snappy_decompress(data: memoryview, max_size: int) -> bytearray:
    plain = bytearray()
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        _append_snappy_block(plain, data, max_size)
        return plain
    position = len(_XERIAL_HEADER)
    while position < len(data):
        start = position + _BLOCK_LENGTH.size
        if start > len(data):
            raise CorruptRecordError("a xerial snappy block's length is cut off")
        (length,) = _BLOCK_LENGTH.unpack_from(data, position)
        position = start + length
        if length < 0 or position > len(data):
            raise CorruptRecordError(f"a xerial snappy block of {length} bytes is cut off")
        _append_snappy_block(plain, data[start:position], max_size)
    return plain


def _append_snappy_block(plain: bytearray, block: memoryview, max_size: int) -> None:
    try:
        claimed = cramjam.snappy.decompress_raw_len(block)
        if claimed > len(block) * _SNAPPY_MAX_RATIO:
            raise CorruptRecordError(f"{len(block)} bytes of snappy cannot hold {claimed}")
        if len(plain) + claimed > max_size:
            raise _too_large(Codec.SNAPPY, max_size)
        plain += memoryview(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptRecordError(f"not snappy: {error}") from error


def _decompress_frame(
    into: Callable[[Buffer, memoryview], int], codec: Codec, data: Buffer, max_size: int
) -> memoryview:
    # Untouched pages of an anonymous map are never committed: this costs what is written.
    output = memoryview(mmap.mmap(-1, max_size))
    try:
        size = into(data, output)
    except cramjam.DecompressionError as error:
        if str(error) == _NO_ROOM:
            raise _too_large(codec, max_size) from error
        raise CorruptRecordError(f"not {codec.name.lower()}: {error}") from error
    return output[:size]


def _too_large(codec: Codec, max_size: int) -> ExpansionError:
    return ExpansionError(f"{codec.name.lower()} data grows past {max_size} bytes")
