"""The codecs: framed as Kafka's clients frame them, bounded whatever the sender claims."""

import contextlib
import gzip
import resource
import struct

import cramjam
import pytest
from hypothesis import given, strategies as st

from storage.batch.compression import Codec, compress, decompress
from storage.errors import CorruptRecordError, UnsupportedCompressionTypeError

LIMIT = 1 << 20
COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]


@pytest.mark.parametrize("codec", Codec)
@given(data=st.binary(max_size=500), repeats=st.integers(0, 300))
def test_compressed_bytes_come_back(codec: Codec, data: bytes, repeats: int) -> None:
    plain = data * repeats
    compressed = memoryview(compress(codec, plain))
    assert bytes(decompress(codec, compressed, max_size=LIMIT)) == plain


@pytest.mark.parametrize("codec", COMPRESSING)
def test_exactly_the_limit_fits_and_one_byte_more_does_not(codec: Codec) -> None:
    plain = bytes(range(256)) * 400
    compressed = compress(codec, plain)
    assert bytes(decompress(codec, compressed, max_size=len(plain))) == plain
    with pytest.raises(CorruptRecordError):
        decompress(codec, compressed, max_size=len(plain) - 1)


@pytest.mark.parametrize("codec", COMPRESSING)
@given(garbage=st.binary(max_size=300))
def test_garbage_is_corrupt_and_nothing_worse(codec: Codec, garbage: bytes) -> None:
    with contextlib.suppress(CorruptRecordError):
        assert len(decompress(codec, garbage, max_size=LIMIT)) <= LIMIT


@pytest.mark.parametrize("codec", COMPRESSING)
@given(st.data())
def test_a_flipped_or_cut_stream_is_corrupt_or_bounded(codec: Codec, data: st.DataObject) -> None:
    damaged = bytearray(compress(codec, bytes(range(256)) * 20))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    del damaged[data.draw(st.integers(1, len(damaged))) :]
    with contextlib.suppress(CorruptRecordError):
        assert len(decompress(codec, damaged, max_size=LIMIT)) <= LIMIT


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_stream_cut_short_is_corrupt(codec: Codec) -> None:
    compressed = compress(codec, bytes(range(256)) * 20)
    with pytest.raises(CorruptRecordError):
        decompress(codec, compressed[:-1], max_size=LIMIT)


def test_snappy_is_in_xerial_framing() -> None:
    plain = bytes(range(256)) * 256  # 64 KiB: two blocks
    framed = bytes(compress(Codec.SNAPPY, plain))

    assert framed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    blocks, position = [], 16
    while position < len(framed):
        (length,) = struct.unpack_from(">i", framed, position)
        blocks.append(bytes(cramjam.snappy.decompress_raw(framed[position + 4 :][:length])))
        position += 4 + length
    assert [len(block) for block in blocks] == [32768, 32768]
    assert b"".join(blocks) == plain


def test_raw_snappy_is_read_too() -> None:
    raw = bytes(cramjam.snappy.compress_raw(b"some bytes" * 50))
    assert bytes(decompress(Codec.SNAPPY, raw, max_size=LIMIT)) == b"some bytes" * 50


def test_lz4_is_a_frame_of_independent_blocks() -> None:
    frame = bytes(compress(Codec.LZ4, b"some bytes" * 50_000))
    assert frame[:4] == b"\x04\x22\x4d\x18"
    flags = frame[4]
    assert flags >> 6 == 1, "the version Kafka's Lz4BlockInputStream knows"
    assert flags & 0x20, "it refuses linked blocks"


def test_gzip_is_one_member_that_anyone_reads() -> None:
    assert gzip.decompress(bytes(compress(Codec.GZIP, b"some bytes"))) == b"some bytes"
    with pytest.raises(CorruptRecordError):
        decompress(Codec.GZIP, gzip.compress(b"a") + b"trailing", max_size=LIMIT)


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(b"\xff\xff\xff\xff\x0f" + b"\x00" * 40, id="four gigabytes in 45 bytes"),
        pytest.param(b"\x80\x80\x40" + b"\x00" * 40, id="a megabyte in 43 bytes"),
    ],
)
def test_a_snappy_length_that_cannot_be_is_refused_before_it_is_allocated(block: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="cannot hold"):
        decompress(Codec.SNAPPY, block, max_size=2**33)


@pytest.mark.parametrize("length", [-1, 2**31 - 1, 100])
def test_a_xerial_block_longer_than_its_stream_is_corrupt(length: int) -> None:
    framed = bytes(compress(Codec.SNAPPY, b""))[:16] + struct.pack(">i", length) + b"abc"
    with pytest.raises(CorruptRecordError):
        decompress(Codec.SNAPPY, framed, max_size=LIMIT)


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_a_generous_limit_costs_nothing_until_it_is_used(codec: Codec) -> None:
    compressed = compress(codec, b"small")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(20):
        assert bytes(decompress(codec, compressed, max_size=1 << 28)) == b"small"
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 64 * 1024, "kilobytes, for 5 GiB of limits"


@pytest.mark.parametrize(
    ("name", "codec"),
    [("none", Codec.NONE), ("gzip", Codec.GZIP), ("zstd", Codec.ZSTD), ("LZ4", Codec.LZ4)],
)
def test_codecs_are_called_what_compression_type_calls_them(name: str, codec: Codec) -> None:
    assert Codec.named(name) is codec


def test_an_unknown_codec_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedCompressionTypeError, match="brotli"):
        Codec.named("brotli")


def test_a_xerial_stream_that_ends_in_a_length_is_refused() -> None:
    whole = bytes(compress(Codec.SNAPPY, b"abc"))
    with pytest.raises(CorruptRecordError, match="length is cut off"):
        decompress(Codec.SNAPPY, whole + b"\0\0", max_size=1 << 20)
