"""Copies of a compacted log, each compacted by itself: the same, or what exactly is lost."""

import random
from collections.abc import Iterable, Sequence

from hypothesis import given, strategies as st

from replication.verify import Cause, Difference, Different, PartitionResult, Same
from replication.verify.compacted import KeyLedger, LostRecord, digest, records_divergence
from replication.verify.comparing import Comparing, PartitionCopy, Rules
from replication.verify.lock_step import Past
from storage.batch.batch_stream import BatchStream
from storage.batch.record_batch import computed_crc, read_header, walk
from storage.batch.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    decode_batch,
    encode_batch,
    encode_control_batch,
)
from storage.testing import FaultyFileSystem
from storage.types import Offset
from tests.storage.cleaning import begin, compacted, finish
from tests.storage.logs import TP, WALL_MS, contents, new_disk, open_log

KEYS = (b"k1", b"k2", b"k3", b"k4")

# A record: its key, and whether it has a value. A step of a log: records of no transaction, of a
# producer's, and its end.
Pairs = list[tuple[bytes, bool]]
pairs = st.lists(st.tuples(st.sampled_from(KEYS), st.booleans()), min_size=1, max_size=4)
steps = st.lists(
    st.tuples(st.sampled_from(["plain", "plain", "open", "commit", "abort"]), pairs), max_size=14
)


def data(records: Pairs, number: int, base: Offset, **options: int | bool) -> bytes:
    return encode_batch(
        [
            Record(timestamp=WALL_MS, key=key, value=b"%d" % number if has_value else None)
            for key, has_value in records
        ],
        base_offset=base,
        leader_epoch=1,
        **options,  # type: ignore[arg-type] # names of encode_batch's
    )


def history(steps: Iterable[tuple[str, Pairs]]) -> list[bytes]:
    """Batches of a leader's log; nothing is left open."""
    batches: list[bytes] = []
    sequence, is_open = 0, False

    def end() -> Offset:
        return read_header(batches[-1]).next_offset if batches else 0

    def mark(kind: ControlRecordType) -> None:
        nonlocal is_open
        is_open = False
        batches.append(
            encode_control_batch(
                EndTransactionMarker(kind, coordinator_epoch=0),
                producer_id=7,
                producer_epoch=0,
                timestamp=WALL_MS,
                base_offset=end(),
                leader_epoch=1,
            )
        )

    for number, (kind, records) in enumerate(steps):
        if kind == "plain":
            batches.append(data(records, number, end()))
        elif kind == "open":
            options = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
            batches.append(data(records, number, end(), transactional=True, **options))
            sequence += len(records)
            is_open = True
        elif is_open:
            mark(ControlRecordType.COMMIT if kind == "commit" else ControlRecordType.ABORT)
    if is_open:
        mark(ControlRecordType.ABORT)
    return batches


def compact(batches: Sequence[bytes], wall_ms: int, *, rounds: int = 1) -> tuple[list[bytes], int]:
    """Return the batches that a real cleaner leaves, and the offset that it has reached."""
    log = open_log(new_disk(), compacted(segment_bytes=300, delete_retention_ms=10))
    for each in batches:
        log.append_as_follower(memoryview(bytearray(each)))
    log.update_high_watermark(log.log_end_offset)
    end = 0
    for number in range(rounds):
        cleaning = finish(begin(log, wall_ms=wall_ms + 100 * number))
        end = cleaning.plan.dirty.first_uncleanable_offset
        cleaning.close()
    whole = contents(log)
    log.close()
    return [whole[at : at + header.size] for at, header in walk(whole)], end


def stream_of(batches: Sequence[bytes], *, start: Offset = 0) -> BatchStream:
    disk = FaultyFileSystem(random.Random(1))
    disk.make_directory("/t-0")
    file = disk.open(f"/t-0/{start:020d}.log", create=True)
    file.write(0, b"".join(batches))
    file.close()
    return BatchStream(disk, "/t-0")


def compare(
    *copies: tuple[Sequence[bytes], Offset], start: Offset = 0, exact: bool = False
) -> PartitionResult:
    held = [
        PartitionCopy(
            name="abc"[n],
            stream=stream_of(batches),
            start_offset=start,
            past=Past(cleaned_before=cleaned_before),
        )
        for n, (batches, cleaned_before) in enumerate(copies)
    ]
    comparing = Comparing(TP, held, Rules(exact=exact))
    try:
        return comparing.run()
    finally:
        comparing.close()


@given(steps=steps, rounds=st.integers(1, 3), cut=st.integers(0, 14))
def test_whatever_a_real_cleaner_does_is_the_same_log(
    steps: list[tuple[str, Pairs]], rounds: int, cut: int
) -> None:
    batches = history(steps)
    once, end = compact(batches, WALL_MS)
    again, _ = compact(batches, WALL_MS, rounds=rounds)
    for copies in (
        ((batches, 0), (once, end)),
        ((once, end), (again, end)),
        ((batches, 0), (again, end), (once, end)),
    ):
        assert isinstance(compare(*copies), Same)
    # A copy that lags is reported as that, however the other has compacted what they share.
    if cut < len(batches) and batches:
        result = compare((batches[:cut], 0), (again, end))
        offset = read_header(batches[cut]).base_offset
        there = [read_header(each).base_offset for each in again]
        if any(base >= offset for base in there):
            assert isinstance(result, Different)
            assert result.cause in (Cause.LAG, Cause.COMPACTION)


Plain = dict[Offset, tuple[bytes, bool]]


def plain(batches: Sequence[bytes]) -> Plain:
    return {
        record.offset: (record.key or b"", record.value is not None)
        for each in batches
        for record in decode_batch(each)
    }


def naive_lost(ours: Plain, theirs: Plain) -> Offset | None:
    """Over whole dictionaries: the first last record of a key that the other lacks for no reason."""
    lost = []
    for key in KEYS:
        lasts = [
            max((offset for offset, (k, _) in held.items() if k == key), default=-1)
            for held in (ours, theirs)
        ]
        last, other = max(lasts), min(lasts)
        if last != other:
            has_value = (ours if last in ours else theirs)[last][1]
            if has_value or other >= 0:
                lost.append(last)
    return min(lost, default=None)


@given(
    records=st.lists(pairs, min_size=1, max_size=8),
    ours=st.sets(st.integers(0, 30)),
    theirs=st.sets(st.integers(0, 30)),
)
def test_a_naive_twin_agrees_on_lost_records(
    records: list[Pairs], ours: set[Offset], theirs: set[Offset]
) -> None:
    batches = history(("plain", each) for each in records)
    copies = [[thinned(each, gone) for each in batches] for gone in (ours, theirs)]
    end = read_header(batches[-1]).next_offset
    result = compare((copies[0], end), (copies[1], end))
    expected = naive_lost(plain(copies[0]), plain(copies[1]))
    if expected is None:
        assert isinstance(result, Same)
        return
    assert isinstance(result, Different)
    assert (result.difference, result.cause) == (Difference.LOST_KEY, Cause.COMPACTION)
    assert result.offset == expected
    lacking = [expected not in plain(copy) for copy in copies]
    assert [copy.base_offset is None for copy in result.copies] == lacking
    assert any(lacking)
    assert "(lost key: compaction)" in str(result)


def thinned(batch: bytes, gone: set[Offset]) -> bytes:
    """Return the batch without the records at these offsets, as a cleaner would write it."""
    header = read_header(batch)
    kept = [record for record in decode_batch(batch) if record.offset not in gone]
    return encode_batch(
        kept,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        last_offset_delta=header.last_offset_delta,
    )


def test_records_that_both_copies_have_must_be_equal() -> None:
    batches = history([("plain", [(b"k1", True), (b"k2", True)]), ("plain", [(b"k1", True)])])
    other = [thinned(data([(b"k1", True), (b"k2", True)], 9, 0), {0}), batches[1]]
    result = compare((batches, 0), (other, 2))
    assert isinstance(result, Different)
    assert (result.difference, result.offset) == (Difference.BYTES, 1)


def test_beyond_the_cleaner_every_byte_counts() -> None:
    batches = history([("plain", [(b"k1", True), (b"k1", True)]), ("plain", [(b"k1", True)])])
    less = [thinned(batches[0], {0}), batches[1]]
    assert isinstance(compare((batches, 0), (less, 2)), Same)
    # One that was fetched from a cleaned one has its gaps, and no checkpoint of its own.
    assert isinstance(compare((batches, 0), (less, 0), (batches, 3)), Same)
    result = compare((batches, 0), (less, 0))
    assert isinstance(result, Different)
    assert (result.difference, result.offset) == (Difference.BYTES, 0)
    gone = compare((batches, 1), ([less[0]], 2))
    assert isinstance(gone, Different)
    assert (gone.cause, gone.offset) == (Cause.LAG, 2)


def test_a_key_that_is_lost_comes_before_the_place_where_they_part() -> None:
    batches = history([("plain", [(b"k1", True)]), ("plain", [(b"k2", True)])] * 3)
    harmed = [*batches[:2], *batches[3:]]
    # k1 at offset 2 is replaced by the one at 4, which stands behind the damage at 3.
    broken = [*harmed[:2], harmed[2][:-1] + b"?", *harmed[3:]]
    result = compare((batches, 0), (broken, 3))
    assert isinstance(result, Different)
    assert (result.cause, result.offset) == (Cause.CORRUPTION, 3)
    result = compare((batches, 0), (broken[:3], 3))
    assert isinstance(result, Different)
    assert (result.cause, result.offset) == (Cause.COMPACTION, 2)


def test_epochs_and_producers_are_compared_in_compacted_logs() -> None:
    batches = history([("plain", [(b"k1", True)])])
    of_another = [data([(b"k1", True)], 0, 0, producer_id=3, producer_epoch=0, base_sequence=0)]
    result = compare((batches, 1), (of_another, 1))
    assert isinstance(result, Different)
    assert result.difference is Difference.BYTES
    newer = bytearray(batches[0])
    newer[12:16] = (5).to_bytes(4, "big")
    result = compare((batches, 1), ([bytes(newer)], 1))
    assert isinstance(result, Different)
    assert (result.difference, result.cause) == (Difference.EPOCH, Cause.REWRITE)
    assert isinstance(compare((batches, 1), (batches, 1), exact=True), Same)


def test_records_that_do_not_parse_are_damage_even_where_the_crc_is_right() -> None:
    header = bytearray(data([(b"k1", True)], 0, 0))
    header[57:61] = (2).to_bytes(4, "big")
    header[17:21] = computed_crc(bytes(header)).to_bytes(4, "big")
    result = compare(([bytes(header)], 1), ([bytes(header)], 1))
    assert isinstance(result, Different)
    assert result.cause is Cause.CORRUPTION


def test_damage_ends_the_walk_at_its_place() -> None:
    batches = history([("plain", [(b"k1", True)])] * 3)
    result = compare((batches, 2), ([batches[0], b"\x07" * 80], 2))
    assert isinstance(result, Different)
    assert (result.cause, result.offset) == (Cause.CORRUPTION, 1)


def test_records_below_the_common_start_are_not_compared() -> None:
    batches = history([("plain", [(b"k1", True), (b"k2", True)]), ("plain", [(b"k3", True)])])
    less = [thinned(batches[0], {0}), batches[1]]
    assert isinstance(compare((batches, 3), (less, 3)), Different)
    assert isinstance(compare((batches, 3), (less, 3), start=1), Same)


notes = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 9), st.integers(0, 20), st.booleans(), st.booleans()
    ),
    max_size=40,
)


@given(notes=notes, most=st.integers(1, 5))
def test_a_ledger_on_disk_gives_the_result_of_one_in_memory(
    notes: list[tuple[int, int, int, bool, bool]], most: int
) -> None:
    small, large = KeyLedger(3, most=most), KeyLedger(3)
    for ledger in (small, large):
        for copy, key, offset, is_tombstone, later in notes:
            ledger.note([copy], [(digest(b"%d" % key), offset, is_tombstone, later)])
    assert (small.lost(), small.keys) == (large.lost(), large.keys)
    small.close()
    large.close()


def test_a_tombstone_may_go_unless_the_deleted_record_is_there() -> None:
    ledger = KeyLedger(2)
    key = digest(b"k")
    ledger.note([0], [(key, 3, False, False), (key, 9, True, False)])
    assert ledger.lost() is None
    ledger.note([1], [(key, 3, False, False)])
    assert ledger.lost() == LostRecord(9, (1,))
    ledger.note([1], [(key, 30, False, True)])
    assert ledger.lost() is None


def test_a_record_that_no_cleaner_could_have_taken_is_a_gap() -> None:
    records = [Record(offset=n, key=b"k", value=b"v") for n in range(3)]
    forms = {0: records, 1: records[:2]}
    assert records_divergence(forms, 3, 0) is None
    assert records_divergence(forms, 2, 0) == (Difference.GAP, 2)
    assert records_divergence(forms, 2, 3) is None


def test_a_partition_none_of_whose_replicas_is_there_lacks_copies() -> None:
    result = Comparing(TP, [], Rules(copies=3)).run()
    assert isinstance(result, Different)
    assert (result.difference, result.directories) == (Difference.MISSING_COPY, ())
