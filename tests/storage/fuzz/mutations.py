"""What disks, kernels and people do to files, done to a real one on purpose.

    flip a bit      set a field to an extreme       cut        zero the tail
    drop, double or swap blocks (a batch, an index entry, a line)
    splice the tail of another file on              write a stranger's bytes
    change what stands inside a compressed batch, and compress it again

Rule: a checksum may be set right afterwards. Otherwise nothing behind it would ever be reached.
"""

import re
import struct
from collections.abc import Callable
from typing import Any, Final

import attrs
import crc32c
from hypothesis import strategies as st

from storage.batch.compression import compress
from storage.batch.varint import varint
from tests.storage.fuzz.corpus import RealFile
from tests.storage.fuzz.twins import Refused, batches_in, inflate

Draw = Callable[[st.SearchStrategy[int]], int]

# Where fixed-size entries begin, and the widths of their fields.
ENTRIES: Final = {
    ".index": (0, (4, 4)),
    ".timeindex": (0, (8, 4)),
    ".txnindex": (0, (2, 8, 8, 8, 8)),
    ".snapshot": (10, (8, 2, 4, 8, 4, 8, 4, 8)),
}
_SNAPSHOT_HEAD: Final = (2, 4, 4)
_BATCH_HEADER: Final = (8, 4, 4, 1, 4, 2, 4, 8, 8, 8, 2, 4, 4)
_STRANGE: Final = (
    b"",
    b"\0",
    b"\xff" * 8,
    b"\x02" * 20,
    b"\xed\xa0\x80",
    b"-1",
    b"9" * 40,
    b"\n\n",
)
_VARINTS: Final = (
    *(varint(n) for n in (0, 1, -1, -2, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63))),
    *(b"\x80" * n + b"\x00" for n in (1, 4, 5, 9, 10)),
    *(b"\xff" * n + b"\x01" for n in (4, 9, 12)),
)


@attrs.frozen
class Mutated:
    """A real file after something happened to it."""

    file: RealFile
    steps: tuple[str, ...]
    data: bytes = attrs.field(repr=False)

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """For Hypothesis: what a regression test needs."""
        where = f"{self.file.origin}: {self.file.directory}/{self.file.name}"
        printer.text(f"<{where}; {', '.join(self.steps)}; {self.data.hex()}>")

    @property
    def sound(self) -> bool:
        return self.data == self.file.data


def mutated(files: list[RealFile]) -> st.SearchStrategy[Mutated]:
    """One of `files`, mutated a few times over."""
    return _mutated(st.sampled_from(files), files)


@st.composite
def _mutated(
    draw: st.DrawFn, choice: st.SearchStrategy[RealFile], others: list[RealFile]
) -> Mutated:
    file = draw(choice)
    data, steps = bytearray(file.data), []
    for _ in range(draw(st.integers(1, 3))):
        steps.append(draw(st.sampled_from(_STEPS)))
        _MUTATIONS[steps[-1]](draw, data, file, others)
    if file.kind in {".log", ".snapshot"} and draw(st.booleans()):
        steps.append("checksums set right")
        _set_checksums_right(data, file.kind)
    return Mutated(file, tuple(steps), bytes(data))


# Where things stand.


def blocks(data: bytearray, kind: str) -> list[tuple[int, int]]:
    """From where to where each batch, entry or line stands."""
    if kind == ".log":
        return [(at, at + len(batch)) for at, batch in batches_in(bytes(data))[0]]
    if kind in ENTRIES:
        start, widths = ENTRIES[kind]
        size = sum(widths)
        return [(at, at + size) for at in range(start, len(data) - size + 1, size)]
    return [(found.start(), found.end()) for found in re.finditer(rb"[^\n]*\n", data)]


def fields(data: bytearray, kind: str) -> list[tuple[int, int]]:
    """Return where each number stands, and how wide it is."""
    widths = _BATCH_HEADER if kind == ".log" else ENTRIES[kind][1]
    found = []
    for start, _ in blocks(data, kind):
        found += _laid_out(start, widths)
    if kind == ".snapshot":
        found += _laid_out(0, _SNAPSHOT_HEAD)
    return [(at, width) for at, width in found if at + width <= len(data)]


def _laid_out(start: int, widths: tuple[int, ...]) -> list[tuple[int, int]]:
    places = []
    for width in widths:
        places.append((start, width))
        start += width
    return places


# What happens to them.


def _flip(draw: st.DrawFn, data: bytearray, _file: RealFile, _others: list[RealFile]) -> None:
    if data:
        bit = draw(st.integers(0, len(data) * 8 - 1))
        data[bit // 8] ^= 1 << bit % 8


def _set_field(draw: st.DrawFn, data: bytearray, file: RealFile, _others: list[RealFile]) -> None:
    if file.kind not in {".log", *ENTRIES}:
        _set_number(draw, data)
        return
    places = fields(data, file.kind)
    if places:
        at, width = draw(st.sampled_from(places))
        high = (1 << width * 8 - 1) - 1
        was = int.from_bytes(data[at : at + width], "big", signed=True)
        near = (0, 1, -1, high, -high - 1, high - 1, was + 1, was - 1, len(data), len(data) - at)
        value = draw(st.sampled_from(near) | st.integers(-high - 1, high))
        value = max(-high - 1, min(high, value))
        data[at : at + width] = value.to_bytes(width, "big", signed=True)


def _set_number(draw: st.DrawFn, data: bytearray) -> None:
    """In a text file."""
    places = [found.span() for found in re.finditer(rb"-?[0-9]+", data)]
    if places:
        start, end = draw(st.sampled_from(places))
        extremes = (0, 1, -1, 2**31 - 1, 2**31, 2**63 - 1, 2**63, -(2**63), 10**19 - 1, 10**40)
        data[start:end] = str(draw(st.sampled_from(extremes))).encode()


def _cut(draw: st.DrawFn, data: bytearray, _file: RealFile, _others: list[RealFile]) -> None:
    del data[draw(st.integers(0, len(data))) :]


def _zero_tail(draw: st.DrawFn, data: bytearray, _file: RealFile, _others: list[RealFile]) -> None:
    start = draw(st.integers(0, len(data)))
    data[start:] = bytes(len(data) - start)


def _splice(draw: st.DrawFn, data: bytearray, _file: RealFile, others: list[RealFile]) -> None:
    other = draw(st.sampled_from(others)).data
    data[draw(st.integers(0, len(data))) :] = other[draw(st.integers(0, len(other))) :]


def _write(draw: st.DrawFn, data: bytearray, _file: RealFile, _others: list[RealFile]) -> None:
    strange = draw(st.sampled_from(_STRANGE) | st.binary(max_size=20))
    at = draw(st.integers(0, len(data)))
    data[at : at + draw(st.integers(0, len(strange)))] = strange


def _drop(draw: st.DrawFn, data: bytearray, file: RealFile, _others: list[RealFile]) -> None:
    if found := blocks(data, file.kind):
        start, end = draw(st.sampled_from(found))
        del data[start:end]


def _double(draw: st.DrawFn, data: bytearray, file: RealFile, _others: list[RealFile]) -> None:
    if found := blocks(data, file.kind):
        start, end = draw(st.sampled_from(found))
        at = draw(st.sampled_from(found))[1]
        data[at:at] = data[start:end]


def _swap(draw: st.DrawFn, data: bytearray, file: RealFile, _others: list[RealFile]) -> None:
    if found := blocks(data, file.kind):
        (start, end), (from_, to) = sorted(draw(st.sampled_from(found)) for _ in range(2))
        if end <= from_:
            data[start:to] = data[from_:to] + data[end:from_] + data[start:end]


def _inside(draw: st.DrawFn, data: bytearray, file: RealFile, _others: list[RealFile]) -> None:
    """Change the records of a batch: what only its checksum and its codec let through."""
    found = batches_in(bytes(data))[0] if file.kind == ".log" else []
    if not found:
        return
    at, batch = draw(st.sampled_from(found))
    try:
        codec, plain = inflate(batch)
    except Refused:
        return
    body = bytearray(plain)
    place = draw(st.integers(0, len(body)))
    strange = draw(st.sampled_from(_VARINTS) | st.binary(max_size=3))
    body[place : place + draw(st.integers(0, len(strange)))] = strange
    if draw(st.booleans()):
        del body[draw(st.integers(0, len(body))) :]
    changed = bytearray(batch[:61] + bytes(compress(codec, bytes(body))))
    changed[8:12] = (len(changed) - 12).to_bytes(4, "big")
    _set_batch_right(changed)
    data[at : at + len(batch)] = changed


_MUTATIONS: Final = {
    "a bit flipped": _flip,
    "a field set": _set_field,
    "cut": _cut,
    "zeroes at the end": _zero_tail,
    "spliced": _splice,
    "overwritten": _write,
    "a block dropped": _drop,
    "a block doubled": _double,
    "blocks swapped": _swap,
    "records changed": _inside,
}
_STEPS: Final = tuple(_MUTATIONS)


# Checksums.


def _set_checksums_right(data: bytearray, kind: str) -> None:
    if kind == ".snapshot" and len(data) >= 6:
        struct.pack_into(">I", data, 2, crc32c.crc32c(bytes(data[6:])))
    elif kind == ".log":
        for start, end in blocks(data, kind):
            batch = data[start:end]
            _set_batch_right(batch)
            data[start:end] = batch


def _set_batch_right(batch: bytearray) -> None:
    struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
