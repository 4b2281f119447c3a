"""The judgement of one partition by the header rows of its replicas: alike, or where they diverge.

    rows of every replica ──> HeaderStream ──┐
    rows of every replica ──> HeaderStream ──┴─ LockStep ──> Same, Different or Alone
                                                 of all, and of each pair

Rule 1: the answer is that of `understudy verify` on the same directories: the walk is the
same code, over rows instead of files.

Rule 2: what rows cannot say, whose CRC-32C is wrong where two batches differ, is read from
the files: only those batches, and only where the files can be reached (`check_on`).

Rule 3: where a cleaner has been at work, replicas may differ in batches and agree in the last
record of each key. Only records can show that; where they cannot be read, batches have to be
equal, as they do with `Rules.exact`. With `Rules.compacted`, keys are compared everywhere.

Rule 4: beyond the first divergence, the findings name for each replica the ranges of offsets
that it lacks or that differ, and every damage with its place.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Final, TypeAlias

import attrs
import crc32c

from pipeline.audit.folding import EVERY_OFFSET
from pipeline.audit.header_stream import FINGERPRINT, HeaderStream, ReplicaHeaders, equal_rows
from pipeline.audit.headers import OVERLAP
from replication.verify.comparing import Comparing, PartitionCopy, Rules
from replication.verify.directories import closing
from replication.verify.lock_step import LockStep
from replication.verify.results import (
    Alone,
    Compared,
    CopyAt,
    Difference,
    Different,
    PartitionResult,
    Same,
)
from storage.batch.batch_stream import BatchStream
from storage.batch.record_batch import CRC_COVERS_FROM, BatchHeader
from storage.filesystem import FileSystem
from storage.types import Offset, TopicPartition

EVERYTHING: Final = Rules()

CheckBatch: TypeAlias = Callable[[str, int, int], bool | None]
"""Returns whether the batch of `size` bytes at `position` of a file matches its CRC-32C."""
CompareRecords: TypeAlias = Callable[
    [TopicPartition, Sequence[ReplicaHeaders], Rules], PartitionResult | None
]
"""Returns the result of `understudy verify` for these replicas, by its rules."""


@attrs.frozen(kw_only=True)
class Finding:
    """Offsets [first_offset, end_offset) of one replica, and what is wrong with them."""

    replica: str
    kind: str  # "gap", "missing tail", "differs", "lost key" or "corrupt"
    first_offset: Offset
    end_offset: Offset
    segment: str | None = None
    position: int | None = None
    reason: str | None = None

    def __str__(self) -> str:
        if self.reason is None:
            return f"{self.replica}: {self.kind} [{self.first_offset}, {self.end_offset})"
        where = f"{self.segment} at byte {self.position}, offset {self.first_offset}"
        return f"{self.replica}: {self.kind} in {where}: {self.reason}"


@attrs.frozen(kw_only=True)
class Pair:
    """Two replicas, and the offset at which they diverge; None if they are alike."""

    first: str
    second: str
    difference: str | None = None
    offset: Offset | None = None
    first_epoch: int | None = None
    second_epoch: int | None = None

    def __str__(self) -> str:
        who = f"{self.first} and {self.second}"
        if self.offset is None:
            return f"{who}: the same"
        epochs = f"epochs {_shown(self.first_epoch)} and {_shown(self.second_epoch)}"
        return f"{who}: part at offset {self.offset} ({self.difference}), {epochs}"


@attrs.frozen
class Judgement:
    """The result of one partition, with its pairs and findings."""

    result: PartitionResult
    pairs: tuple[Pair, ...] = ()
    findings: tuple[Finding, ...] = ()


def judge(
    partition: TopicPartition,
    copies: Sequence[ReplicaHeaders],
    *,
    rules: Rules = EVERYTHING,
    check_batch: CheckBatch = lambda _path, _position, _size: None,
    compare_records: CompareRecords = lambda _partition, _copies, _rules: None,
) -> Judgement:
    """Compare the copies of one partition, all at once and in pairs."""

    def by_records(some: Sequence[ReplicaHeaders], rules: Rules) -> PartitionResult | None:
        is_cleaned = _cleaned_before(some) > max(copy.start_offset for copy in some)
        by_keys = rules.compacted or (is_cleaned and not rules.exact)
        return compare_records(partition, some, rules) if by_keys else None

    def of_two(two: Sequence[ReplicaHeaders]) -> PartitionResult:
        any_two = attrs.evolve(rules, copies=None)
        return by_records(two, any_two) or compare(partition, two, None, check_batch)

    read = by_records(copies, rules)
    result = read or compare(partition, copies, rules.copies, check_batch)
    if not isinstance(result, Different):
        return Judgement(result)
    pairs = tuple(_pair(of_two(two), two) for two in combinations(copies, 2))
    start = result.compared.start_offset
    if read is not None:  # offsets that are missing below may have been cleaned
        start = max(start, EVERY_OFFSET if rules.compacted else _cleaned_before(copies))
    return Judgement(result, pairs, tuple(find(copies, result, start)))


def _cleaned_before(copies: Sequence[ReplicaHeaders]) -> Offset:
    return max(copy.past.cleaned_before for copy in copies)


def compare(
    partition: TopicPartition,
    copies: Sequence[ReplicaHeaders],
    expected_copies: int | None,
    check_batch: CheckBatch,
) -> PartitionResult:
    """Compare copies as `replication.verify.directories` does, over rows."""
    names = tuple(copy.replica for copy in copies)
    streams = [copy.stream() for copy in copies]
    start = max(copy.start_offset for copy in copies)
    compare_heads = partial(_compare_heads, streams, check_batch)
    pasts = [copy.past for copy in copies]
    walk = _Walk(names, streams, start, compare_heads, pasts=pasts, rows=streams)

    def different(difference: Difference, offset: Offset, views: Sequence[CopyAt]) -> Different:
        return Different(
            partition=partition,
            directories=names,
            difference=difference,
            offset=offset,
            copies=tuple(views),
            compared=walk.compared,
        )

    if expected_copies is not None and len(copies) < expected_copies:
        views = [CopyAt(directory=name) for name in names]
        return different(Difference.MISSING_COPY, start, views)
    if len(copies) == 1:
        return Alone(partition=partition, directories=names)
    if len({copy.topic_id for copy in copies} - {None}) > 1:
        views = [CopyAt(directory=copy.replica, topic_id=copy.topic_id) for copy in copies]
        return different(Difference.TOPIC_ID, start, views)
    divergence = walk.run()
    if divergence is None:
        return Same(partition=partition, directories=names, compared=walk.compared)
    return different(divergence.difference, divergence.offset, divergence.copies)


@attrs.define(eq=False)
class _Walk(LockStep):
    """A walk that passes all equal batches in one vector operation."""

    rows: Sequence[HeaderStream] = attrs.field(kw_only=True)  # the streams, by their own type

    def advance(self, headers: Sequence[BatchHeader]) -> None:  # noqa: ARG002 - LockStep's
        count, first = equal_rows(self.rows), self.rows[0]
        assert count, "what the heads say alike, the rows say alike"
        at = slice(first.row, first.row + count)
        self.compared = Compared(
            start_offset=self.start_offset,
            end_offset=int(first.rows["last_offset"][at][-1]) + 1,
            batches=self.compared.batches + count,
            records=self.compared.records + int(first.rows["record_count"][at].sum()),
            size=self.compared.size + int(first.rows["size"][at].sum()),
            last_epoch=int(first.rows["leader_epoch"][at][-1]),
        )
        for stream in self.rows:
            stream.skip(count)


def find(copies: Sequence[ReplicaHeaders], result: Different, start: Offset) -> Iterator[Finding]:
    """Yield what each copy lacks, where it differs and where it is damaged, from `start` on."""
    if result.difference is Difference.LOST_KEY:
        yield from _lost(result)
    held = {copy.replica: _held(copy, start) for copy in copies}
    everything = merged([span for spans in held.values() for span in spans])
    damages = [finding for copy in copies for finding in _damages(copy)]
    for copy in copies:
        spans = held[copy.replica]
        end = spans[-1][1] if spans else copy.start_offset
        for first, last in without(everything, spans):
            kind = "missing tail" if first >= end else "gap"
            yield Finding(replica=copy.replica, kind=kind, first_offset=first, end_offset=last)
    yield from _differing(copies, start)
    yield from damages
    yield from _read_in_depth(result, damages)


def _lost(result: Different) -> Iterator[Finding]:
    first, end = result.offset, result.offset + 1
    for copy in result.copies:
        if copy.base_offset is None:
            yield Finding(
                replica=copy.directory, kind="lost key", first_offset=first, end_offset=end
            )


Span: TypeAlias = tuple[Offset, Offset]


def merged(spans: Sequence[Span]) -> list[Span]:
    """Return the union of [first, end) spans, in order and as few as possible."""
    union: list[Span] = []
    for first, end in sorted(spans):
        if union and first <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((first, end))
    return union


def without(spans: Sequence[Span], taken: Sequence[Span]) -> Iterator[Span]:
    """Yield the parts of `spans` that are not in `taken`; both are merged."""
    others = iter(taken)
    other = next(others, None)
    for span_first, end in spans:
        first = span_first
        while other is not None and other[1] <= first:
            other = next(others, None)
        while other is not None and other[0] < end:
            if other[0] > first:
                yield first, other[0]
            first = other[1]
            if first >= end:
                break
            other = next(others, None)
        if first < end:
            yield first, end


def _held(copy: ReplicaHeaders, start: Offset) -> list[Span]:
    rows = copy.rows
    spans = [
        (max(int(base), start), int(last) + 1)
        for base, last, damage in zip(
            rows["base_offset"], rows["last_offset"], rows["damage"], strict=True
        )
        if damage is None and last >= start
    ]
    return merged(spans)


def _damages(copy: ReplicaHeaders) -> Iterator[Finding]:
    """Yield the places that hold no batch, and batches whose CRC-32C was checked and is wrong."""
    rows = copy.rows
    for row, (damage, sound) in enumerate(zip(rows["damage"], rows["is_sound"], strict=True)):
        if damage == OVERLAP or (damage is None and sound in (None, True)):
            continue
        first = int(rows["base_offset"][row])
        yield Finding(
            replica=copy.replica,
            kind="corrupt",
            first_offset=first,
            end_offset=first if damage else int(rows["last_offset"][row]) + 1,
            segment=f"{int(rows['segment'][row]):020d}.log",
            position=int(rows["position"][row]),
            reason=str(damage) if damage else "its CRC-32C does not match",
        )


def _read_in_depth(result: Different, known: Sequence[Finding]) -> Iterator[Finding]:
    """Yield the damage that only the reading in depth has found."""
    places = {(found.replica, found.segment, found.position) for found in known}
    for copy in result.copies:
        if copy.damage is None or (copy.directory, copy.file, copy.position) in places:
            continue
        first = result.offset if copy.base_offset is None else copy.base_offset
        yield Finding(
            replica=copy.directory,
            kind="corrupt",
            first_offset=first,
            end_offset=first if copy.last_offset is None else copy.last_offset + 1,
            segment=copy.file,
            position=copy.position,
            reason=copy.damage,
        )


def _differing(copies: Sequence[ReplicaHeaders], start: Offset) -> Iterator[Finding]:
    """Yield batches that several copies hold and that are not all alike, for the fewer copies."""
    by_base: dict[int, dict[tuple[int, ...], list[tuple[str, int]]]] = {}
    for copy in copies:
        columns = [copy.rows[name].tolist() for name in FINGERPRINT]
        for *fingerprint, damage in zip(*columns, copy.rows["damage"], strict=True):
            if damage is None and fingerprint[1] >= start:
                kinds = by_base.setdefault(fingerprint[0], {})
                kinds.setdefault(tuple(fingerprint), []).append((copy.replica, fingerprint[1] + 1))
    spans: dict[str, list[Span]] = {}
    for base, kinds in by_base.items():
        most = max(len(holders) for holders in kinds.values())
        alike = [holders for holders in kinds.values() if len(holders) == most]
        for holders in kinds.values() if len(kinds) > 1 else ():
            if len(holders) < most or len(alike) > 1:
                for replica, end in holders:
                    spans.setdefault(replica, []).append((max(base, start), end))
    for replica, found in spans.items():
        for first, end in merged(found):
            yield Finding(replica=replica, kind="differs", first_offset=first, end_offset=end)


def _compare_heads(
    streams: Sequence[HeaderStream], check_batch: CheckBatch, heads: Sequence[BatchHeader]
) -> tuple[bool, list[bool]]:
    equal = len({_fingerprint(header) for header in heads}) == 1
    sound = [stream.is_sound() for stream in streams]
    if not equal:
        for i, (stream, header) in enumerate(zip(streams, heads, strict=True)):
            if sound[i] is None and stream.directory is not None:
                path = f"{stream.directory}/{stream.file_name}"
                sound[i] = check_batch(path, stream.position, header.size)
    return equal, [each is not False for each in sound]


def _fingerprint(header: BatchHeader) -> tuple[int, ...]:
    return header.base_offset, header.last_offset, header.leader_epoch, header.crc, header.size


def _pair(result: PartitionResult, copies: Sequence[ReplicaHeaders]) -> Pair:
    first, second = copies
    if not isinstance(result, Different):
        return Pair(first=first.replica, second=second.replica)
    return Pair(
        first=first.replica,
        second=second.replica,
        difference=result.difference.value,
        offset=result.offset,
        first_epoch=result.copies[0].leader_epoch,
        second_epoch=result.copies[1].leader_epoch,
    )


def _shown(epoch: int | None) -> str:
    return "none" if epoch is None else str(epoch)


# Reading in depth: what header rows cannot say, where the files can be reached.


def check_on(files: FileSystem) -> CheckBatch:
    """Return a check that reads a batch again, and answers None if its file cannot be read here."""

    def check(path: str, position: int, size: int) -> bool | None:
        try:
            file = files.open_for_reading(path)
        except OSError:
            return None
        try:
            data = file.read(position, size)
        finally:
            file.close()
        if len(data) < size:
            return None  # cut off meanwhile, as retention and truncation do to a live log
        stored = int.from_bytes(data[CRC_COVERS_FROM - 4 : CRC_COVERS_FROM], "big")
        return int(crc32c.crc32c(memoryview(data)[CRC_COVERS_FROM:])) == stored

    return check


def compare_on(files: FileSystem) -> CompareRecords:
    """Return a comparison that reads whole replicas, and answers None if one cannot be read here."""

    def compare(
        partition: TopicPartition, copies: Sequence[ReplicaHeaders], rules: Rules
    ) -> PartitionResult | None:
        directories = [copy.directory for copy in copies if copy.directory is not None]
        if len(directories) < len(copies) or not all(map(files.is_directory, directories)):
            return None
        streams = [BatchStream(files, directory) for directory in directories]
        held = [
            PartitionCopy(
                name=copy.replica,
                stream=stream,
                start_offset=copy.start_offset,
                topic_id=copy.topic_id,
                past=copy.past,
            )
            for copy, stream in zip(copies, streams, strict=True)
        ]
        with closing(held):
            walk = Comparing(partition, held, rules)
            try:
                return walk.run()
            finally:
                walk.close()

    return compare
