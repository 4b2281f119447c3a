"""The walk over copies of a compacted log, each of which was compacted by itself.

    A  [0: k1 k2 k1][3: k3 k1 k2][6: k4 -k3 k1]     never compacted
    B  [0: ......k1][3:       k2][6: k4 -k3 k1]     compacted below offset 6, or soon after
                  └ A has records that B lacks, and B has a later record of each of their keys

Rule 1: what two copies both have must be equal: a batch's epoch, its producer and its control
records, a record's key, value, timestamp and headers. Compaction changes none of it, nor any
offset, and never joins two batches into one (`storage.cleaner.filter`).

Rule 2: a copy may lack records only below the highest end of any cleaner's work
(`Past.cleaned_before`: a replica that was fetched from a cleaned one has its gaps, and no
checkpoint of its own), and only if the ledger excuses it. Records without a key, markers, and
records of aborted transactions are not the last of any key: a cleaner may drop them.

Rule 3: beyond all cleaners the batches must be equal byte for byte.

Rule 4: a record before the offset where copies diverge may still be replaced by a later one. So
the rest is read for its keys, if any are in doubt: the result is the first divergence of all.

Other readers of logs can use, without the walk: `records_divergence`, for the records of two or more
forms of one batch, and `KeyLedger`, whose notes may be made anywhere and merged.

The ledger holds the last record of each key in every copy, in memory of a bounded size:

    copy 0   k1@3 k2@4 k1@9 -k3@12            ledger      copy 0   copy 1
    copy 1        k2@4 k1@9        k4@15         k1          9        9
                                                 k2          4        4
                                                 k3        -12             a tombstone may go
                                                 k4                  15    lost: k4@15

Rule 5: a key is the same in all copies if its last record is at one offset. A copy that lacks that
record is excused if it has a later one (at an offset that is not compared: `later`), or if the
record is a tombstone and the copy has no older record of the key. Otherwise the record is lost.

Rule 6: notes may come in any order: the highest offset counts for each key and copy. So notes can
be held back until their transaction has ended, and made by several tasks.

Rule 7: a key is represented by its 128-bit hash, as in the cleaner's map. Beyond `most` keys the
ledger is written to a temporary file, in order of the hashes; all files are merged at the end.
"""

import heapq
import struct
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby, tee
from operator import itemgetter
from typing import IO, Final, NamedTuple, Protocol, TypeAlias

import attrs

from replication.verify.lock_step import Batches, Divergence, LockStep, unsound
from replication.verify.results import CopyAt, Difference
from storage.attributes import define, frozen
from storage.batch.batch_stream import DamagedLogError
from storage.batch.record_batch import BatchHeader, check_crc
from storage.batch.records import ControlRecordType, Record, decode_batch, read_marker
from storage.errors import StorageError
from storage.types import Offset


class Readable(Batches, Protocol):
    """Batches with their bytes, such as `storage.batch.batch_stream.BatchStream`."""

    @property
    def available(self) -> int: ...

    def take(self, size: int) -> bytes: ...

    def close(self) -> None: ...


MOST_KEYS: Final = 200_000
DIGEST_SIZE: Final = 16

# For each copy twice the offset, plus one for a tombstone, -1 for no record; and last a bit for
# each copy that has a later record.
Noted: TypeAlias = list[int]
_ABSENT: Final = -1


# A key's digest, an offset, whether it is a tombstone, whether it is beyond what is compared.
Note: TypeAlias = tuple[bytes, Offset, bool, bool]

_OPEN_END: Final = 2**63 - 1

# The attributes in a batch's header that compaction never changes.
_ATTRIBUTES: Final = 0x38  # timestamp type, transactional, control


def taken(stream: Readable, size: int) -> bytes:
    """Return the next `size` bytes, joined from as many pieces as they come in."""
    parts = []
    while size:
        part = stream.take(min(stream.available, size))
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def identity(header: BatchHeader) -> tuple[int, ...]:
    """Return the fields of a batch that compaction never changes, without the epoch."""
    return (
        header.last_offset,
        header.attributes & _ATTRIBUTES,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )


def records_divergence(
    forms: Mapping[int, Sequence[Record]], cleaned_before: Offset, start_offset: Offset
) -> tuple[Difference, Offset] | None:
    """Return where the copies' forms of one batch diverge, except for cleaned records."""
    by_offset: dict[Offset, dict[int, Record]] = {}
    for copy, records in forms.items():
        for record in records:
            by_offset.setdefault(record.offset, {})[copy] = record
    for offset, held in sorted(by_offset.items()):
        if offset < start_offset:
            continue
        first, *others = held.values()
        if any(record != first for record in others):
            return Difference.BYTES, offset
        if offset >= cleaned_before and len(held) < len(forms):
            return Difference.GAP, offset
    return None


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


@define(eq=False)
class CompactedLockStep(LockStep):
    """The walk of `LockStep` over compacted copies, whose streams are `Readable`."""

    readable: Sequence[Readable] = attrs.field(kw_only=True)  # the streams, by their own type
    ledger: KeyLedger = attrs.field(kw_only=True)
    _cleaned: Offset = attrs.field(init=False)
    # The records of open transactions, by copy and producer.
    _open: dict[tuple[int, int], list[Note]] = attrs.field(init=False, factory=dict)
    _found: Divergence | None = attrs.field(init=False, default=None)
    _left: list[int] = attrs.field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._cleaned = max(past.cleaned_before for past in self.pasts)

    def step(self) -> bool:
        if self._found is not None:
            return self._drain()
        try:
            heads = [stream.head() for stream in self.streams]
        except DamagedLogError:
            return self.end(self._damaged())
        bases = [header.base_offset for header in heads if header is not None]
        if not bases:
            return self.end(self._diverge_by_offset(heads))
        base = min(bases)
        held = {
            copy: header
            for copy, header in enumerate(heads)
            if header is not None and header.base_offset == base
        }
        if difference := self._lacking(held, heads, base):
            views = [self._view(copy, header) for copy, header in enumerate(heads)]
            return self.end(Divergence(difference, max(base, self.start_offset), views))
        divergence = self._compare(held, heads)
        for copy, header in held.items():
            self.streams[copy].passed(header)
        return True if divergence is None else self.end(divergence)

    def end(self, divergence: Divergence | None) -> bool:
        """End the walk, unless a key may be lost before: then the rest is read first."""
        if divergence is not None and (self._open or self.ledger.lost() is not None):
            self._found = divergence
            self._left = list(range(len(self.streams)))
            return True
        return self._judge(divergence)

    def _judge(self, divergence: Divergence | None) -> bool:
        for (copy, _), notes in self._open.items():
            self.ledger.note([copy], notes)  # an open transaction is not aborted
        return super().end(self._lost(divergence))

    def _lost(self, divergence: Divergence | None) -> Divergence | None:
        lost = self.ledger.lost()
        if lost is None or (divergence is not None and divergence.offset <= lost.offset):
            return divergence
        views = [
            CopyAt(
                directory=name,
                base_offset=None if copy in lost.lacking else lost.offset,
                last_offset=None if copy in lost.lacking else lost.offset,
                cleaned_before=self.pasts[copy].cleaned_before or None,
            )
            for copy, name in enumerate(self.directories)
        ]
        return Divergence(Difference.LOST_KEY, lost.offset, views)

    def _lacking(
        self,
        held: Mapping[int, BatchHeader],
        heads: Sequence[BatchHeader | None],
        base: Offset,
    ) -> Difference | None:
        """Return how copies without the batch at `base` differ, if no cleaner removed it."""
        without = [copy for copy in range(len(heads)) if copy not in held]
        if any(
            heads[copy] is None and self.streams[copy].next_offset <= max(base, self.start_offset)
            for copy in without
        ):
            return Difference.MISSING_TAIL
        return Difference.GAP if without and base >= self._cleaned else None

    def _compare(
        self, held: Mapping[int, BatchHeader], heads: Sequence[BatchHeader | None]
    ) -> Divergence | None:
        """Take the batch from the copies that hold it, and note its keys."""
        views = [self._view(copy, header) for copy, header in enumerate(heads)]
        batches = {copy: taken(self.readable[copy], header.size) for copy, header in held.items()}
        sound = [copy not in batches or check_crc(batches[copy]) for copy in range(len(heads))]
        base_offset = next(iter(held.values())).base_offset
        if not all(sound):
            return unsound(max(base_offset, self.start_offset), views, sound)
        try:
            group = HeldBatch(held, batches, decoded(batches))
        except StorageError as error:
            damaged = [attrs.evolve(view, damage=str(error)) for view in views]
            return Divergence(Difference.CORRUPT, max(base_offset, self.start_offset), damaged)
        found = group.divergence(self._cleaned, self.start_offset)
        for copies in [[*held]] if group.is_alike else [[copy] for copy in held]:
            self._note(copies, group, _OPEN_END if found is None else found[1])
        if found is not None:
            return Divergence(*found, views)
        self._count(group)
        return None

    def _count(self, group: "HeldBatch") -> None:
        header = next(iter(group.headers.values()))
        everywhere = len(group.headers) == len(self.streams)
        self.compared = attrs.evolve(
            self.compared,
            end_offset=header.next_offset,
            batches=self.compared.batches + everywhere,
            records=self.compared.records + (group.shared if everywhere else 0),
            size=self.compared.size + (header.size if everywhere else 0),
            last_epoch=header.leader_epoch,
        )

    def _note(self, copies: Sequence[int], group: "HeldBatch", beyond: Offset) -> None:
        """Note the keys of a batch that all of `copies` hold in the same form."""
        header, records = group.headers[copies[0]], group.forms[copies[0]]
        if header.is_control:
            self._end_transaction(copies, header, group.batches[copies[0]])
            return
        notes = notes_of(records, self.start_offset, beyond)
        if not header.is_transactional:
            self.ledger.note(copies, notes)
            return
        for copy, each in zip(copies, tee(notes, len(copies)), strict=True):
            self._open.setdefault((copy, header.producer_id), []).extend(each)

    def _end_transaction(self, copies: Sequence[int], header: BatchHeader, batch: bytes) -> None:
        marker = read_marker(batch)
        for copy in copies:
            notes = self._open.pop((copy, header.producer_id), [])
            if marker is None or marker.type is not ControlRecordType.ABORT:
                self.ledger.note([copy], notes)

    def _drain(self) -> bool:
        """Read the next batch of the copies that are left, for its keys only."""
        copy = self._left[0]
        stream = self.readable[copy]
        try:
            header = stream.head()
            if header is not None:
                batch = taken(stream, header.size)
                stream.passed(header)
                if check_crc(batch):
                    group = HeldBatch({copy: header}, {copy: batch}, decoded({copy: batch}))
                    self._note([copy], group, self.start_offset)
                return True
        except StorageError:
            pass  # records behind damage replace nothing
        self._left.pop(0)
        return True if self._left else self._judge(self._found)


@frozen
class HeldBatch:
    """The copies that hold the batch at one offset: header, bytes and records, by number."""

    headers: Mapping[int, BatchHeader]
    batches: Mapping[int, bytes]
    forms: Mapping[int, Sequence[Record]]

    @property
    def is_alike(self) -> bool:
        """Whether all copies have the same bytes."""
        return len(set(self.batches.values())) == 1

    @property
    def shared(self) -> int:
        """The number of records that all copies have."""
        first, *others = self.forms.values()
        if self.is_alike:
            return len(first)
        offsets = [{record.offset for record in form} for form in others]
        return sum(all(record.offset in each for each in offsets) for record in first)

    def divergence(
        self, cleaned_before: Offset, start_offset: Offset
    ) -> tuple[Difference, Offset] | None:
        """Return where the copies diverge, except for cleaned records."""
        headers = list(self.headers.values())
        offset = max(headers[0].base_offset, start_offset)
        if len({header.leader_epoch for header in headers}) > 1:
            return Difference.EPOCH, offset
        if self.is_alike:
            return None
        same_batch = len(set(map(identity, headers))) == 1
        if not same_batch or offset >= cleaned_before:
            return Difference.BYTES, offset
        return records_divergence(self.forms, cleaned_before, start_offset)


def decoded(batches: Mapping[int, bytes]) -> dict[int, list[Record]]:
    """Decode the batches; equal ones only once."""
    known: dict[bytes, list[Record]] = {}
    for batch in batches.values():
        if batch not in known:
            known[batch] = decode_batch(batch)
    return {copy: known[batch] for copy, batch in batches.items()}


def notes_of(records: Sequence[Record], start: Offset, beyond: Offset) -> Iterator[Note]:
    """Yield a note of every record with a key, from `start` on."""
    for record in records:
        if record.key is not None and record.offset >= start:
            yield digest(record.key), record.offset, record.value is None, record.offset >= beyond
