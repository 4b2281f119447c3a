"""A segment whose offsets are too far from its base is split, at every crash point safely."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from storage.batch.record_batch import walk
from storage.log.recovery import overflow
from storage.log.segment import CLEANED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, Segment
from storage.testing import DetachedError, FaultyFileSystem
from tests.storage.logs import bases, batch, contents, joined, lead, new_disk, offsets, open_log

DIRECTORY = "/d/t-0"
FAR = 2**31
# What no append would put into one segment, but Kafka before 1.1.1 has.
BATCHES = [
    batch(2, at=0, epoch=1, key=b"a"),
    batch(3, at=2, epoch=1, key=b"b"),
    batch(2, at=FAR, epoch=1, key=b"c"),
    batch(1, at=FAR + 7, epoch=2, key=b"d"),
    batch(1, at=3 * FAR, epoch=2, key=b"e"),
]


def segment_of(system: FaultyFileSystem, batches: Sequence[memoryview], base: int = 0) -> Segment:
    """A segment written by a hand that does not look at offsets."""
    system.make_directory(DIRECTORY)
    system.sync_directory("/d")
    file = system.open(f"{DIRECTORY}/{base:020d}.log", create=True)
    file.write(0, joined(*batches))
    file.sync()
    system.sync_directory(DIRECTORY)
    return load(system, base)


def load(system: FaultyFileSystem, base: int) -> Segment:
    return Segment.load(system, DIRECTORY, base, max_index_bytes=1200, index_interval_bytes=100)


def everything(batches: Sequence[memoryview] = BATCHES) -> bytes:
    return b"".join(map(bytes, batches))


@pytest.mark.conformance("LL-21")
@pytest.mark.conformance("UL-70")
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_a_segment_that_overflows_is_split_at_opening(clean: bool) -> None:
    system = new_disk()
    segment_of(system, BATCHES)
    log = open_log(system, clean=clean)
    assert list(bases(log)) == [0, FAR, 3 * FAR]
    assert contents(log) == everything()
    assert log.log_end_offset == 3 * FAR + 1
    assert [str(each) for each in log.leader_epoch_cache.entries] == ["1@0", f"2@{FAR + 7}"]
    assert any("offsets overflow" in each.cause for each in log.recovery.repairs)
    for base in bases(log):
        with pytest.raises(AssertionError, match="only a segment whose offsets overflow"):
            overflow.split(load(system, base))
    assert lead(log, epoch=2) == 3 * FAR + 1
    # Once split, it stays split.
    log.close()
    again = open_log(system, clean=True, recovery_point=3 * FAR + 2)
    assert again.recovery.clean
    assert not again.recovery.repairs


def test_producers_are_known_through_the_parts() -> None:
    system = new_disk()
    options: Any = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    parts = [
        batch(2, at=0, base_sequence=0, **options),
        batch(2, at=FAR, base_sequence=2, **options),
    ]
    segment_of(system, parts)
    log = open_log(system, clean=True)
    assert log.producers.first_unstable_offset == 0
    assert log.producers.producers[7].last_sequence == 3


@pytest.mark.conformance("UL-71")
@pytest.mark.conformance("UL-72")
@pytest.mark.parametrize(
    ("first", "count"), [(FAR, 1), (FAR - 1, 2)], ids=["the batch", "its last offset"]
)
def test_a_segment_whose_first_batch_overflows_becomes_one_based_at_it(
    first: int, count: int
) -> None:
    system = new_disk()
    records = batch(count, at=first, epoch=1)
    segment_of(system, [records])
    log = open_log(system)
    assert list(bases(log)) == [first]
    assert contents(log) == bytes(records)


@pytest.mark.conformance("SG-21")
def test_batches_that_do_not_fit_are_left_for_a_later_base() -> None:
    system = new_disk()
    large = batch(1, at=2, size=2 << 20)
    source = segment_of(system, [batch(2, at=0), large, batch(1, at=FAR), batch(2, at=FAR + 1)])
    options: Any = {"max_index_bytes": 1200, "index_interval_bytes": 100}
    options["name_suffix"] = CLEANED_SUFFIX
    part = Segment.create(system, DIRECTORY, 0, **options)
    taken = overflow.append_from(part, source, 0)
    assert taken == part.size == len(batch(2, at=0)) + len(large)
    assert overflow.append_from(part, source, taken) == 0
    rest = Segment.create(system, DIRECTORY, FAR, **options)
    assert overflow.append_from(rest, source, taken) == source.size - taken
    assert [header.base_offset for _, header in rest.headers()] == [FAR, FAR + 1]


def test_garbage_behind_an_overflow_is_split_off_and_cut() -> None:
    system = new_disk()
    segment_of(system, [*BATCHES, memoryview(bytearray(b"garbage" * 20))])
    log = open_log(system)
    assert contents(log) == everything()
    assert log.recovery.bytes_truncated == 140


def renamed(system: FaultyFileSystem, base: int, suffix: str) -> None:
    """The part at `base`, as a crash in the middle of a split has left it."""
    sound = [each for each in BATCHES if next(walk(each))[1].base_offset // FAR == base // FAR]
    file = system.open(f"{DIRECTORY}/{base:020d}{LOG_SUFFIX}{suffix}", create=True)
    file.write(0, joined(*sound))
    system.open(f"{DIRECTORY}/{base:020d}.index{suffix}", create=True)


@pytest.mark.parametrize(
    "suffixes",
    [
        pytest.param([CLEANED_SUFFIX] * 3, marks=pytest.mark.conformance("LL-22")),
        pytest.param(
            [CLEANED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX], marks=pytest.mark.conformance("LL-23")
        ),
        pytest.param([SWAP_SUFFIX] * 3, marks=pytest.mark.conformance("LL-24")),
    ],
    ids=["all .cleaned", "the last one .swap", "all .swap"],
)
def test_a_split_that_a_crash_has_interrupted(suffixes: list[str]) -> None:
    system = new_disk()
    segment_of(system, BATCHES)
    for base, suffix in zip((0, FAR, 3 * FAR), suffixes, strict=True):
        renamed(system, base, suffix)
    log = open_log(system)
    # With all of them .swap there is nothing left to split.
    split_again = any("overflow" in each.cause for each in log.recovery.repairs)
    assert split_again == (CLEANED_SUFFIX in suffixes)
    assert list(bases(log)) == [0, FAR, 3 * FAR]
    assert contents(log) == everything()
    assert not [n for n in system.list_directory(DIRECTORY) if n.endswith(("ed", "ap"))]


@pytest.mark.parametrize("ends", [FaultyFileSystem.detach, FaultyFileSystem.crash])
def test_a_split_survives_death_at_every_step(ends: Callable[[FaultyFileSystem], None]) -> None:
    steps = 0
    while True:
        system = new_disk(steps)
        segment_of(system, BATCHES)
        system.die_after(steps)
        try:
            open_log(system)
        except (DetachedError, OSError):
            ends(system)
            system = system.reopen()
            log = open_log(system)
            assert contents(log) == everything(), f"after {steps} steps"
            assert list(bases(log)) == [0, FAR, 3 * FAR]
        else:
            break
        steps += 1
    assert steps > 20, "a split is written, renamed and indexed"


def test_offsets_of_the_parts_lead_to_their_batches() -> None:
    system = new_disk()
    segment_of(system, BATCHES)
    log = open_log(system)
    for each in BATCHES:
        first = next(walk(each))[1].base_offset
        data = log.read(first, 1, max_offset_exclusive=log.log_end_offset, min_one=True)
        assert data.records is not None
        assert offsets(data.records.read()) == offsets(bytes(each))
