"""The last record of each key in every copy of a compacted log, in memory of a bounded size.

    copy 0   k1@3 k2@4 k1@9 -k3@12            ledger      copy 0   copy 1
    copy 1        k2@4 k1@9        k4@15         k1          9        9
                                                 k2          4        4
                                                 k3        -12             a tombstone may go
                                                 k4                  15    lost: k4@15

Rule 1: a key is the same in all copies if its last record is at one offset. A copy that lacks that
record is excused if it has a later one (at an offset that is not compared: `later`), or if the
record is a tombstone and the copy has no older record of the key. Otherwise the record is lost.

Rule 2: notes may come in any order: the highest offset counts for each key and copy. So notes can
be held back until their transaction has ended, and made by several tasks.

Rule 3: a key is represented by its 128-bit hash, as in the cleaner's map. Beyond `most` keys the
ledger is written to a temporary file, in order of the hashes; all files are merged at the end.
"""

import heapq
import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from typing import IO, Final, NamedTuple, TypeAlias

from storage.types import Offset

MOST_KEYS: Final = 200_000
DIGEST_SIZE: Final = 16

# For each copy twice the offset, plus one for a tombstone, -1 for no record; and last a bit for
# each copy that has a later record.
Noted: TypeAlias = list[int]
_ABSENT: Final = -1


# A key's digest, an offset, whether it is a tombstone, whether it is beyond what is compared.
Note: TypeAlias = tuple[bytes, Offset, bool, bool]


class LostRecord(NamedTuple):
    """The first record that is the last of its key, and that some copies lack."""

    offset: Offset
    lacking: tuple[int, ...]


def digest(key: bytes) -> bytes:
    """Return the hash that represents a key."""
    return blake2b(key, digest_size=DIGEST_SIZE).digest()


class KeyLedger:
    """The last offsets of keys; copies are numbered from 0."""

    def __init__(self, copies: int, *, most: int = MOST_KEYS) -> None:
        self._copies = copies
        self._most = most
        self._noted: dict[bytes, Noted] = {}
        self._row = struct.Struct(f">{DIGEST_SIZE}s{copies + 1}q")
        self._runs: list[IO[bytes]] = []

    def note(self, copies: Sequence[int], notes: Iterable[Note]) -> None:
        """Note that each of `copies` has these records."""
        noted, most = self._noted, self._most
        for key, offset, is_tombstone, later in notes:
            entry = noted.get(key)
            if entry is None:
                if len(noted) >= most:
                    self._spill()
                    noted = self._noted
                entry = noted[key] = [_ABSENT] * self._copies + [0]
            value = offset << 1 | is_tombstone
            for copy in copies:
                if later:
                    entry[-1] |= 1 << copy
                elif value > entry[copy]:
                    entry[copy] = value

    def lost(self) -> LostRecord | None:
        """Return the lost record with the lowest offset."""
        found = (lost_record(noted) for _, noted in self._merged())
        return min((each for each in found if each is not None), default=None)

    @property
    def keys(self) -> int:
        """The number of keys that have a last record in some copy."""
        return sum(max(noted[:-1]) != _ABSENT for _, noted in self._merged())

    def close(self) -> None:
        """Drop the temporary files."""
        for run in self._runs:
            run.close()

    def _spill(self) -> None:
        run = tempfile.TemporaryFile()  # noqa: SIM115 - it is read at the end, and closed by `close`
        for key in sorted(self._noted):
            run.write(self._row.pack(key, *self._noted[key]))
        self._runs.append(run)
        self._noted = {}

    def _merged(self) -> Iterator[tuple[bytes, Noted]]:
        runs = [*map(self._read, self._runs), iter(sorted(self._noted.items()))]
        if len(runs) == 1:
            yield from runs[0]
            return
        together = heapq.merge(*runs, key=itemgetter(0))
        for key, entries in groupby(together, key=itemgetter(0)):
            yield key, merged(noted for _, noted in entries)

    def _read(self, run: IO[bytes]) -> Iterator[tuple[bytes, Noted]]:
        run.seek(0)
        while row := run.read(self._row.size):
            key, *noted = self._row.unpack(row)
            yield key, noted


def merged(entries: Iterable[Noted]) -> Noted:
    """Merge the notes of several ledgers about one key."""
    (*offsets, later), *others = entries
    for *more, more_later in others:
        offsets = list(map(max, offsets, more))
        later |= more_later
    return [*offsets, later]


def lost_record(noted: Noted) -> LostRecord | None:
    """Return the record of one key that is lost by rule 1, or None."""
    *lasts, later = noted
    last = max(lasts)
    if last == _ABSENT:
        return None
    is_tombstone = last & 1
    lacking = tuple(
        copy
        for copy, held in enumerate(lasts)
        if held != last and not later >> copy & 1 and not (is_tombstone and held == _ABSENT)
    )
    return LostRecord(last >> 1, lacking) if lacking else None
