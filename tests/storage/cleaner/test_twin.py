"""Compaction against a twin that keeps whole records in lists and knows nothing of bytes."""

from typing import Any

import attrs
from hypothesis import given, strategies as st

from storage.batch.compression import Codec
from storage.batch.record_batch import check_crc, walk
from storage.batch.records import decode_batch
from storage.cleaner.columns import ByColumn
from storage.cleaner.record_walk import MakeWalk, OneByOne
from storage.log.log import Log
from storage.types import Offset
from tests.storage.cleaning import Pair, clean, compacted, end_transaction, pairs, put, roll
from tests.storage.logs import TP, WALL_MS, contents, headers, new_disk

RETENTION_MS = 1000
PRODUCERS = (7, 8)
TRANSACTIONAL = (17, 18)

some_pairs = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b", b"c", b"d", None]),
        st.sampled_from([b"", b"value", bytes(90), None]),
    ),
    min_size=1,
    max_size=5,
).map(tuple)
steps = st.one_of(
    st.tuples(st.just("put"), some_pairs, st.sampled_from(Codec), st.none()),
    st.tuples(st.just("put"), some_pairs, st.sampled_from(Codec), st.sampled_from(PRODUCERS)),
    st.tuples(st.just("put"), some_pairs, st.sampled_from(Codec), st.sampled_from(TRANSACTIONAL)),
    st.tuples(st.just("end"), st.sampled_from(TRANSACTIONAL), st.booleans()),
    st.tuples(st.just("roll")),
    st.tuples(st.just("clean"), st.integers(0, 2000)),
)
# Hypothesis prefers short lists, in which there is little to compact.
scripts = st.lists(steps, min_size=20, max_size=40).map(
    lambda script: [*script, ("roll",), ("clean", 0)]
)


@attrs.define
class TwinBatch:
    records: list[tuple[Offset, bytes | None, bytes | None]]
    producer: int | None
    base: Offset
    last: Offset
    aborted: bool = False
    open: bool = False
    horizon: int | None = None


@attrs.define
class Twin:
    batches: list[TwinBatch] = attrs.field(factory=list)
    # The last offset of each producer's last batch.
    last: dict[int, Offset] = attrs.field(factory=dict)

    def headers(self) -> list[tuple[Offset, Offset, int]]:
        return [(each.base, each.last, len(each.records)) for each in self.batches]

    def pairs(self) -> dict[Offset, Pair]:
        return {offset: (k, v) for each in self.batches for offset, k, v in each.records}

    def end(self, producer: int, *, commit: bool) -> None:
        for each in self.batches:
            if each.producer == producer and each.open:
                each.open, each.aborted = False, not commit

    def clean(
        self, dirty: Offset, end: Offset, copied: Offset, round_end: Offset, wall_ms: int
    ) -> None:
        """Mapped are the keys from `dirty` to `end`; the segments up to `copied` are copied."""
        last = {
            key: offset
            for each in self.batches
            if not each.aborted
            for offset, key, _ in each.records
            if dirty <= offset < end and key is not None
        }
        for each in self.batches:
            if each.base >= copied:
                continue
            past = each.horizon is not None and each.horizon <= wall_ms
            each.records = [
                (offset, key, value)
                for offset, key, value in each.records
                if not each.aborted
                and (offset >= end or key is not None)
                and (offset >= end or (key is not None and offset >= last.get(key, -1)))
                and (offset >= end or value is not None or not past)
            ]
            if each.horizon is None and any(value is None for _, _, value in each.records):
                each.horizon = wall_ms + RETENTION_MS
        self.batches = [
            each
            for each in self.batches
            if each.records
            or each.base >= copied
            or each.last + 1 == round_end
            or (each.producer is not None and each.last == self.last[each.producer])
        ]


@given(
    script=scripts,
    memory=st.sampled_from([1 << 12, 24 * 4]),
    walk=st.sampled_from([OneByOne, ByColumn]),
)
def test_compaction_leaves_what_the_naive_twin_leaves(
    script: list[tuple],  # type: ignore[type-arg]  # steps of several shapes
    memory: int,
    walk: MakeWalk,
) -> None:
    log, twin = begin_log(), Twin()
    checkpoint, wall_ms = 0, WALL_MS
    sequences = dict.fromkeys((*PRODUCERS, *TRANSACTIONAL), 0)
    for step in script:
        match step:
            case ("put", given_pairs, codec, producer):
                options: dict[str, Any] = (
                    {} if producer is None else producer_options(producer, sequences)
                )
                # As from a leader that has known worse: keyless records are let in.
                first = put(log, *given_pairs, at=log.log_end_offset, codec=codec, **options)
                records = [(first + n, key, value) for n, (key, value) in enumerate(given_pairs)]
                last, is_open = records[-1][0], producer in TRANSACTIONAL
                twin.batches.append(TwinBatch(records, producer, first, last, open=is_open))
                if producer is not None:
                    twin.last[producer] = last
                    sequences[producer] += len(given_pairs)
            case ("end", producer, commit):
                end_transaction(log, producer, commit=commit)
                twin.end(producer, commit=commit)
            case ("clean", later):
                wall_ms += later
                starts = log.segments.base_offsets
                round_ = clean(
                    log, checkpoint=checkpoint, wall_ms=wall_ms, memory=memory, walk=walk
                )
                end = round_.end_offset
                if end:
                    copied = next((each for each in starts if each >= end), end)
                    round_end = round_.plan.dirty.first_uncleanable_offset
                    twin.clean(checkpoint, end, copied, round_end, wall_ms)
                    checkpoint = end
                assert pairs(log) == twin.pairs()
                look_at(log, twin)
            case _:
                roll(log)
    before = pairs(log)
    look_at(log, twin)
    reopen_and_compare(log, before)


def begin_log() -> Log:
    config = compacted(segment_bytes=800, delete_retention_ms=RETENTION_MS)
    return Log.open(new_disk(), "/d/t-0", TP, config=config)


def producer_options(producer: int, sequences: dict[int, int]) -> dict[str, Any]:
    return {
        "producer_id": producer,
        "producer_epoch": 0,
        "base_sequence": sequences[producer],
        "transactional": producer in TRANSACTIONAL,
    }


def look_at(log: Log, twin: Twin) -> None:
    """Kafka's rules for a log: CRCs, rising offsets, counts; and what readers are given."""
    data = contents(log)
    end = -1
    for position, header in walk(data):
        batch = memoryview(data)[position : position + header.size]
        assert check_crc(batch)
        assert header.base_offset > end
        assert header.record_count == len(decode_batch(batch))
        end = header.last_offset
    assert end < log.log_end_offset
    assert log.segments.base_offsets == sorted(set(log.segments.base_offsets))
    assert [
        (each.base_offset, each.last_offset, each.record_count)
        for each in headers(log)
        if not each.is_control
    ] == twin.headers()
    assert [each.records[0][0] for each in twin.batches if each.records and each.aborted] == [
        each.records[0][0]
        for each in twin.batches
        if each.records and each.producer is not None and is_told_of(log, each)
    ]


def is_told_of(log: Log, batch: TwinBatch) -> bool:
    """Return whether a reader of what is committed skips `batch`."""
    return any(
        entry.producer_id == batch.producer
        and entry.first_offset <= batch.records[0][0] < entry.last_offset
        for segment in log.segments
        for entry in segment.transaction_index.entries()
    )


def reopen_and_compare(log: Log, before: dict[Offset, Pair]) -> None:
    """After a crash that left no snapshot: the producers, from what compaction has left.

    As in Kafka (ProducerAppendInfo.append), a marker that was emptied brings no producer back.
    """
    found = headers(log)
    left = {each.producer_id for each in found if each.record_count or not each.is_control}
    producers = {
        each.producer_id: (each.producer_epoch, each.last_sequence, each.transaction_first_offset)
        for each in log.producers.producers.values()
        if each.producer_id in left
    }
    log.close_uncleanly()
    for name in log.local.file_system.list_directory(log.directory):
        if name.endswith(".snapshot"):
            log.local.file_system.remove(f"{log.directory}/{name}")
    again = Log.open(log.local.file_system, log.directory, TP, config=log.config)
    assert not again.recovery.repairs
    assert pairs(again) == before
    assert headers(again) == found
    assert producers == {
        each.producer_id: (each.producer_epoch, each.last_sequence, each.transaction_first_offset)
        for each in again.producers.producers.values()
    }
