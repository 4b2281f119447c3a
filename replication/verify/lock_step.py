"""Walking copies of a log batch by batch, for as long as they say the same.

    A  [e0: 0-4][e0: 5-9][e1: 10-12]
    B  [e0: 0-4][e0: 5-9][e2: 10-11]
                         ^ their heads differ: they part at offset 10

Rule 1: the walk asks for heads only. Where they come from, and how two batches of equal
place are told apart, is its caller's: files read to their last byte (`directories.py`), or
rows of headers that were read elsewhere (`pipeline.audit`). Both give the same answer.

Rule 2: what ends the walk is one value, which says how the copies part and what each holds.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import attrs

from replication.verify.results import Compared, CopyAt, Difference
from storage.batch_stream import DamagedLogError
from storage.record_batch import BatchHeader
from storage.types import Offset


class Batches(Protocol):
    """A copy's batches in order; `storage.batch_stream.BatchStream` is one."""

    @property
    def next_offset(self) -> Offset: ...

    @property
    def file_name(self) -> str | None: ...

    @property
    def position(self) -> int: ...

    def seek(self, offset: Offset) -> None: ...

    def head(self) -> BatchHeader | None: ...

    def passed(self, header: BatchHeader) -> None: ...


# Whether the batches at the heads are equal, and whose CRC-32C matches.
CompareBatches: TypeAlias = Callable[[Sequence[BatchHeader]], tuple[bool, list[bool]]]


@attrs.frozen
class Parting:
    """Where copies part, and what each of them holds there."""

    difference: Difference
    offset: Offset
    copies: list[CopyAt]


@attrs.define(eq=False)
class LockStep:
    """See the module's docstring; `compared` says how far the copies are equal."""

    directories: Sequence[str]
    streams: Sequence[Batches]
    start_offset: Offset
    compare_batches: CompareBatches
    compared: Compared = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.compared = Compared(start_offset=self.start_offset, end_offset=self.start_offset)

    def run(self) -> Parting | None:
        """Where they part; None where they never do."""
        try:
            for stream in self.streams:
                stream.seek(self.start_offset)
        except DamagedLogError:
            return self._damaged()
        while True:
            try:
                heads = [stream.head() for stream in self.streams]
            except DamagedLogError:
                return self._damaged()
            if parting := self._part_by_offset(heads):
                return parting
            headers = [header for header in heads if header is not None]
            if not headers:
                return None
            if parting := self._part_by_bytes(headers):
                return parting

    def _part_by_offset(self, heads: Sequence[BatchHeader | None]) -> Parting | None:
        held = [header.base_offset for header in heads if header is not None]
        if len(held) == len(heads) and len(set(held)) == 1:
            return None
        if not held:
            # Nothing to compare from here on; but a copy may end before the others begin.
            ends = [stream.next_offset for stream in self.streams]
            if min(ends) >= self.start_offset:
                return None
            views = [self._view(i, None) for i in range(len(heads))]
            return Parting(Difference.MISSING_TAIL, min(ends), views)
        difference = Difference.GAP if len(held) == len(heads) else Difference.MISSING_TAIL
        views = [self._view(i, header) for i, header in enumerate(heads)]
        return Parting(difference, max(min(held), self.start_offset), views)

    def _part_by_bytes(self, headers: Sequence[BatchHeader]) -> Parting | None:
        views = [self._view(i, header) for i, header in enumerate(headers)]
        equal, sound = self.compare_batches(headers)
        if equal and all(sound):
            self.advance(headers)
            return None
        offset = max(headers[0].base_offset, self.start_offset)
        if not all(sound):
            views = [
                view if is_sound else attrs.evolve(view, damage="its CRC-32C does not match")
                for view, is_sound in zip(views, sound, strict=True)
            ]
            return Parting(Difference.CORRUPT, offset, views)
        epochs = {header.leader_epoch for header in headers}
        return Parting(Difference.EPOCH if len(epochs) > 1 else Difference.BYTES, offset, views)

    def advance(self, headers: Sequence[BatchHeader]) -> None:
        """Pass what is equal at the heads, and perhaps more that is known to be."""
        for stream, header in zip(self.streams, headers, strict=True):
            stream.passed(header)
        header = headers[0]
        self.compared = Compared(
            start_offset=self.start_offset,
            end_offset=header.next_offset,
            batches=self.compared.batches + 1,
            records=self.compared.records + header.record_count,
            size=self.compared.size + header.size,
            last_epoch=header.leader_epoch,
        )

    def _damaged(self) -> Parting:
        views, offsets = [], []
        for i, stream in enumerate(self.streams):
            try:
                views.append(self._view(i, stream.head()))
            except DamagedLogError as damage:
                views.append(attrs.evolve(self._view(i, None), damage=damage.reason))
                offsets.append(stream.next_offset)
        return Parting(Difference.CORRUPT, max(min(offsets), self.compared.end_offset), views)

    def _view(self, index: int, header: BatchHeader | None) -> CopyAt:
        stream = self.streams[index]
        return CopyAt(
            directory=self.directories[index],
            leader_epoch=None if header is None else header.leader_epoch,
            base_offset=None if header is None else header.base_offset,
            last_offset=None if header is None else header.last_offset,
            file=stream.file_name,
            position=stream.position,
        )
