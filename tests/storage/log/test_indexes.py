"""Both indexes: Kafka's bytes, lookups against a naive twin, and what damage looks like."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from storage.errors import CorruptIndexError
from storage.filesystem import OsFileSystem
from storage.log.index.offset_index import OffsetIndex
from storage.log.index.time_index import TimeIndex

BASE = 100


def offset_index(directory: Path, *, base: int = BASE, max_size: int = 4096) -> OffsetIndex:
    path = str(directory / f"{base:020d}.index")
    return OffsetIndex.open(OsFileSystem(), path, base_offset=base, max_size=max_size)


def time_index(directory: Path, *, base: int = BASE, max_size: int = 4096) -> TimeIndex:
    path = str(directory / f"{base:020d}.timeindex")
    return TimeIndex.open(OsFileSystem(), path, base_offset=base, max_size=max_size)


def test_an_offset_entry_is_in_kafkas_bytes(tmp_path: Path) -> None:
    index = offset_index(tmp_path)
    index.append(105, 4096)
    index.trim()
    index.close()
    assert Path(index.path).read_bytes() == bytes.fromhex("00000005 00001000")


def test_a_time_entry_is_in_kafkas_bytes(tmp_path: Path) -> None:
    index = time_index(tmp_path)
    index.maybe_append(1001, 105)
    index.trim()
    index.close()
    assert Path(index.path).read_bytes() == bytes.fromhex("00000000000003e9 00000005")


def test_a_new_index_is_preallocated_to_whole_entries(tmp_path: Path) -> None:
    offsets, times = offset_index(tmp_path, max_size=1001), time_index(tmp_path, max_size=1001)
    assert (offsets.length, times.length) == (1000, 996)
    assert (offsets.max_entries, times.max_entries) == (125, 83)
    assert (offsets.entry_count, times.entry_count) == (0, 0)
    assert Path(offsets.path).stat().st_size == 1000


def test_an_existing_index_is_all_entries_and_full_until_it_is_resized(tmp_path: Path) -> None:
    index = offset_index(tmp_path)
    for n in range(3):
        index.append(BASE + 10 + n, n)
    index.trim()
    index.close()

    reopened = offset_index(tmp_path)
    assert (reopened.entry_count, reopened.is_full, reopened.last_offset) == (3, True, 112)
    for size in (80, 87):
        reopened.resize(size)
        assert reopened.length == 80
    reopened.append(113, 7)
    assert list(reopened.entries()) == [(110, 0), (111, 1), (112, 2), (113, 7)]


def test_the_offset_index_is_full_at_its_last_entry(tmp_path: Path) -> None:
    index = offset_index(tmp_path, max_size=16)
    index.append(101, 0)
    assert not index.is_full
    index.append(102, 1)
    assert index.is_full


def test_the_time_index_keeps_a_slot_for_closing(tmp_path: Path) -> None:
    index = time_index(tmp_path, max_size=24)
    index.maybe_append(1, 101)
    assert index.is_full
    index.maybe_append(2, 102, closing=True)
    assert index.last_entry == (2, 102)


def test_only_a_younger_timestamp_is_an_entry(tmp_path: Path) -> None:
    index = time_index(tmp_path)
    index.maybe_append(1000, 105)
    index.maybe_append(1000, 110)
    index.maybe_append(1001, 115)
    assert list(index.entries()) == [(1000, 105), (1001, 115)]
    with pytest.raises(CorruptIndexError):
        index.maybe_append(999, 120)
    with pytest.raises(CorruptIndexError):
        index.maybe_append(1002, 114)


def test_offsets_only_go_up(tmp_path: Path) -> None:
    index = offset_index(tmp_path)
    index.append(105, 0)
    with pytest.raises(CorruptIndexError):
        index.append(105, 1)


@pytest.mark.parametrize(
    ("base", "offset", "fits"),
    [
        (0, 0, True),
        (0, 2**31 - 1, True),
        (0, 2**31, False),
        (0, -(2**31), False),
        (1, 0, False),
        (100, 10, False),
        (2**31, 0, False),
        (2**31, 2**32, False),
        (2**31, 2**32 - 1, True),
    ],
)
def test_an_offset_fits_within_31_bits_of_the_base(
    tmp_path: Path, base: int, offset: int, fits: bool
) -> None:
    assert offset_index(tmp_path, base=base).can_append_offset(offset) == fits
    assert time_index(tmp_path, base=base).can_append_offset(offset) == fits


def test_resetting_makes_room_again(tmp_path: Path) -> None:
    Path(tmp_path / f"{BASE:020d}.index").touch()
    index = offset_index(tmp_path)
    assert index.is_full
    index.reset(max_size=80)
    assert (index.entry_count, index.max_entries) == (0, 10)


def test_an_odd_length_is_corrupt(tmp_path: Path) -> None:
    (tmp_path / f"{BASE:020d}.index").write_bytes(b"\0" * 9)
    (tmp_path / f"{BASE:020d}.timeindex").write_bytes(b"\0" * 13)
    with pytest.raises(CorruptIndexError):
        offset_index(tmp_path).sanity_check()
    with pytest.raises(CorruptIndexError):
        time_index(tmp_path).sanity_check()


def test_a_negative_relative_offset_is_corrupt(tmp_path: Path) -> None:
    (tmp_path / f"{BASE:020d}.index").write_bytes(b"\xff" * 8)
    (tmp_path / f"{BASE:020d}.timeindex").write_bytes(b"\0" * 8 + b"\xff" * 4)
    with pytest.raises(CorruptIndexError):
        offset_index(tmp_path).sanity_check()
    with pytest.raises(CorruptIndexError):
        time_index(tmp_path).sanity_check()


def test_the_zeroes_that_a_crash_leaves_behind_a_time_index_are_corrupt(tmp_path: Path) -> None:
    index = time_index(tmp_path)
    index.maybe_append(1000, 105)
    index.close()  # without trim, as in a crash
    with pytest.raises(CorruptIndexError):
        time_index(tmp_path).sanity_check()


@given(garbage=st.binary(max_size=6000), target=st.integers(0, 2**40))
def test_garbage_is_looked_up_without_harm(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes, target: int
) -> None:
    directory = tmp_path_factory.mktemp("garbage")
    (directory / f"{BASE:020d}.index").write_bytes(garbage)
    (directory / f"{BASE:020d}.timeindex").write_bytes(garbage)
    for index in (offset_index(directory), time_index(directory)):
        index.lookup(target)
        index.truncate_to(target)
        index.reset(max_size=96)
        index.close()


gaps = st.lists(st.integers(1, 50), max_size=60)


@given(gaps=gaps, copies=st.integers(1, 40), cut=st.integers(0, 4000))
def test_offset_lookups_and_truncation_agree_with_a_naive_twin(
    tmp_path_factory: pytest.TempPathFactory, gaps: list[int], copies: int, cut: int
) -> None:
    index = offset_index(tmp_path_factory.mktemp("offsets"), max_size=1 << 16)
    naive: list[tuple[int, int]] = []
    offset = BASE - 1
    for position, gap in enumerate(gaps * copies):
        offset += gap
        index.append(offset, position)
        naive.append((offset, position))

    def check() -> None:
        assert list(index.entries()) == naive
        assert index.last_offset == (naive[-1][0] if naive else BASE)
        probes = {entry[0] + shift for entry in naive[::17] for shift in (-1, 0, 1)}
        for probe in {BASE - 1, BASE, 10**9} | probes:
            at_or_below = [entry for entry in naive if entry[0] <= probe]
            assert index.lookup(probe) == (at_or_below[-1] if at_or_below else (BASE, 0))

    check()
    index.truncate_to(BASE + cut)
    naive = [entry for entry in naive if entry[0] < BASE + cut]
    check()
    index.close()


@given(gaps=gaps, copies=st.integers(1, 40), cut=st.integers(0, 4000))
def test_time_lookups_and_truncation_agree_with_a_naive_twin(
    tmp_path_factory: pytest.TempPathFactory, gaps: list[int], copies: int, cut: int
) -> None:
    index = time_index(tmp_path_factory.mktemp("times"), max_size=1 << 16)
    naive: list[tuple[int, int]] = []
    timestamp = 1000
    for n, gap in enumerate(gaps * copies):
        timestamp += gap
        index.maybe_append(timestamp, BASE + n)
        naive.append((timestamp, BASE + n))

    def check() -> None:
        assert list(index.entries()) == naive
        assert index.last_entry == (naive[-1] if naive else (-1, BASE))
        probes = {entry[0] + shift for entry in naive[::17] for shift in (-1, 0, 1)}
        for probe in {0, 10**12} | probes:
            at_or_below = [entry for entry in naive if entry[0] <= probe]
            assert index.lookup(probe) == (at_or_below[-1] if at_or_below else (-1, BASE))

    check()
    index.truncate_to(BASE + cut)
    naive = [entry for entry in naive if entry[1] < BASE + cut]
    check()
    index.close()


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
def test_an_index_that_is_cut_while_it_is_open_is_corrupt(
    kind: type[OffsetIndex] | type[TimeIndex], tmp_path: Path
) -> None:
    path = tmp_path / "index"
    index = kind.open(OsFileSystem(), str(path), base_offset=0, max_size=1200)
    for number in range(5):
        if isinstance(index, OffsetIndex):
            index.append(number, number * 10)
        else:
            index.maybe_append(number, number)
    path.write_bytes(path.read_bytes()[:17])
    with pytest.raises(CorruptIndexError, match="cut short while it was open"):
        index.entry(4)
    with pytest.raises(CorruptIndexError, match="cut short while it was open"):
        list(index.entries())
    index.close()
