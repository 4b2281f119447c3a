"""`docs/storage.md` draws the formats; its examples are the bytes themselves."""

import re
import struct
from pathlib import Path

from storage.batch.record_batch import check_crc, read_header
from storage.batch.records import decode_batch

PAGE = (Path(__file__).parents[2] / "docs" / "storage.md").read_text()


def test_the_batch_in_the_page_is_a_batch() -> None:
    block = PAGE.partition("83 bytes:\n\n```\n")[2].partition("```")[0]
    hexadecimal = [line for line in block.splitlines() if re.fullmatch(r"[0-9a-f ]+", line)]
    batch = bytes.fromhex("".join(hexadecimal))
    assert len(batch) == 83
    assert check_crc(batch)
    header = read_header(batch)
    assert (header.size, header.base_timestamp, header.max_timestamp) == (83, 1000, 1001)
    first, second = decode_batch(memoryview(batch))
    assert (first.key, first.value) == (b"k1", b"v1")
    assert (second.key, second.value) == (None, b"")
    assert [(each[0], each[1]) for each in second.headers] == [("h", b"x")]


def test_the_index_entry_in_the_page_says_what_the_page_says() -> None:
    assert struct.pack(">ii", 109 - 100, 5000).hex(" ", 4) in PAGE


def test_every_file_that_the_page_names_is_there() -> None:
    root = Path(__file__).parents[2]
    named = re.findall(r"`((?:storage|docs)/[\w/]+(?:\.\w+)?/?)`", PAGE)
    assert named
    assert not [each for each in named if not (root / each).exists()]
