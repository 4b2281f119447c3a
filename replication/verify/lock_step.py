"""The walk over copies of a log, batch by batch, as long as they are equal.

    A  [e0: 0-4][e0: 5-9][e1: 10-12]
    B  [e0: 0-4][e0: 5-9][e2: 10-11]
                         ^ their heads differ: they diverge at offset 10

Rule 1: the walk asks for heads only. The caller provides them, and compares batches of the same
offset: from files read to their last byte (`directories.py`), or from rows of headers that were
read elsewhere (`pipeline.audit`). Both give the same result.

Rule 2: the walk ends with one value, which says how the copies diverge and what each holds.

Rule 3: a step takes one batch of each copy, so that a caller can wait for bytes in between
(`clusters.py`).
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import attrs

from replication.verify.results import Compared, CopyAt, Difference
from storage.attributes import define, frozen
from storage.batch.batch_stream import DamagedLogError
from storage.batch.record_batch import BatchHeader
from storage.types import Offset


class Batches(Protocol):
    """The batches of a copy, in order."""

    @property
    def next_offset(self) -> Offset: ...

    @property
    def file_name(self) -> str | None: ...

    @property
    def position(self) -> int | None: ...

    def seek(self, offset: Offset) -> None: ...

    def head(self) -> BatchHeader | None: ...

    def passed(self, header: BatchHeader) -> None: ...


# Returns whether the batches at the heads are equal, and whose CRC-32C matches.
CompareBatches: TypeAlias = Callable[[Sequence[BatchHeader]], tuple[bool, list[bool]]]


@frozen(kw_only=True)
class Past:
    """The facts known about a copy beside its batches."""

    cleaned_before: Offset = 0
    reached: Offset = 0
    """The highest end that its checkpoints name."""


@frozen
class Divergence:
    """The offset at which copies diverge, and what each of them holds there."""

    difference: Difference
    offset: Offset
    copies: list[CopyAt]


@define(eq=False)
class LockStep:
    """The walk over copies; `compared` is the range in which they are equal."""

    directories: Sequence[str]
    streams: Sequence[Batches]
    start_offset: Offset
    compare_batches: CompareBatches
    pasts: Sequence[Past] = attrs.field(factory=tuple, kw_only=True)
    compared: Compared = attrs.field(init=False)
    divergence: Divergence | None = attrs.field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        self.compared = Compared(start_offset=self.start_offset, end_offset=self.start_offset)

    def run(self) -> Divergence | None:
        """Return where the copies diverge; None if they never do."""
        more = self.begin()
        while more:
            more = self.step()
        return self.divergence

    def begin(self) -> bool:
        """Go to the start; return False if the walk ends there."""
        try:
            for stream in self.streams:
                stream.seek(self.start_offset)
        except DamagedLogError:
            return self.end(self._damaged())
        return True

    def step(self) -> bool:
        """Take the next batch of each copy; return False if the walk ends."""
        try:
            heads = [stream.head() for stream in self.streams]
        except DamagedLogError:
            return self.end(self._damaged())
        if divergence := self._diverge_by_offset(heads):
            return self.end(divergence)
        headers = [header for header in heads if header is not None]
        if not headers:
            return self.end(None)
        divergence = self._diverge_by_bytes(headers)
        return True if divergence is None else self.end(divergence)

    def end(self, divergence: Divergence | None) -> bool:
        """End the walk with this result."""
        self.divergence = divergence
        return False

    def _diverge_by_offset(self, heads: Sequence[BatchHeader | None]) -> Divergence | None:
        held = [header.base_offset for header in heads if header is not None]
        if len(held) == len(heads) and len(set(held)) == 1:
            return None
        if not held:
            # Nothing is left to compare; but a copy may end before the others begin.
            ends = [stream.next_offset for stream in self.streams]
            if min(ends) >= self.start_offset:
                return None
            views = [self._view(i, None) for i in range(len(heads))]
            return Divergence(Difference.MISSING_TAIL, min(ends), views)
        difference = Difference.GAP if len(held) == len(heads) else Difference.MISSING_TAIL
        views = [self._view(i, header) for i, header in enumerate(heads)]
        return Divergence(difference, max(min(held), self.start_offset), views)

    def _diverge_by_bytes(self, headers: Sequence[BatchHeader]) -> Divergence | None:
        views = [self._view(i, header) for i, header in enumerate(headers)]
        equal, sound = self.compare_batches(headers)
        if equal and all(sound):
            self.advance(headers)
            return None
        offset = max(headers[0].base_offset, self.start_offset)
        if not all(sound):
            return unsound(offset, views, sound)
        epochs = {header.leader_epoch for header in headers}
        return Divergence(Difference.EPOCH if len(epochs) > 1 else Difference.BYTES, offset, views)

    def advance(self, headers: Sequence[BatchHeader]) -> None:
        """Move past equal batches at the heads."""
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

    def _damaged(self) -> Divergence:
        views, offsets = [], []
        for i, stream in enumerate(self.streams):
            try:
                views.append(self._view(i, stream.head()))
            except DamagedLogError as damage:
                view = self._view(i, None)
                views.append(attrs.evolve(view, damage=damage.reason, reached=None))
                offsets.append(stream.next_offset)
        return Divergence(Difference.CORRUPT, max(min(offsets), self.compared.end_offset), views)

    def _view(self, index: int, header: BatchHeader | None) -> CopyAt:
        stream = self.streams[index]
        past = self.pasts[index] if self.pasts else Past()
        cut = header is None and past.reached > stream.next_offset
        return CopyAt(
            directory=self.directories[index],
            leader_epoch=None if header is None else header.leader_epoch,
            base_offset=None if header is None else header.base_offset,
            last_offset=None if header is None else header.last_offset,
            file=stream.file_name,
            position=stream.position,
            crc=None if header is None else header.crc,
            reached=past.reached if cut else None,
            cleaned_before=past.cleaned_before or None,
        )


def unsound(offset: Offset, views: Sequence[CopyAt], sound: Sequence[bool]) -> Divergence:
    """Return a divergence at copies whose CRC-32C does not match: those that are not `sound`."""
    damaged = [
        view if is_sound else attrs.evolve(view, damage="its CRC-32C does not match")
        for view, is_sound in zip(views, sound, strict=True)
    ]
    return Divergence(Difference.CORRUPT, offset, damaged)
