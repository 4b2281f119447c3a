r"""Records in a file, each with its length and checksum, so that a reader needs no trust.

    "\xc1UJ1" [length u32 | CRC-32C u32 | record] [length | CRC-32C | record] ...

Rule 1: a file begins with `FILE_HEADER`, whose first byte begins nothing in msgpack: journals
that were written before there were frames are told apart by it.

Rule 2: a reader stops at the first frame that is not whole or not sound. In the last file of a
journal that is what a crash left; anywhere else it is damage, and the rest of that file is lost.
"""

import struct
from collections.abc import Iterator
from typing import Final

import crc32c

from storage.types import Buffer

FILE_HEADER: Final = b"\xc1UJ1"

_FRAME: Final = struct.Struct(">II")


def frame(record: Buffer) -> bytes:
    """`record` as it stands in a file."""
    return b"".join((_FRAME.pack(len(record), crc32c.crc32c(record)), record))


def is_framed(data: Buffer) -> bool:
    return bytes(memoryview(data)[: len(FILE_HEADER)]) == FILE_HEADER


def frames(data: Buffer) -> Iterator[tuple[memoryview, int]]:
    """Each whole and sound record of a file, and where it ends."""
    view, position = memoryview(data), len(FILE_HEADER)
    while len(view) - position >= _FRAME.size:
        length, crc = _FRAME.unpack_from(view, position)
        record = view[position + _FRAME.size : position + _FRAME.size + length]
        if len(record) < length or crc32c.crc32c(record) != crc:
            return
        position += _FRAME.size + length
        yield record, position
