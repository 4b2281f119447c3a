"""The leader-epoch cache, line by line of Kafka's own tests, and against a naive twin."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from storage.checkpoint import EpochEntry, LeaderEpochCheckpoint
from storage.filesystem import OsFileSystem
from storage.log.leader_epoch_cache import UNDEFINED, LeaderEpochCache

Entries = list[tuple[int, int]]


@pytest.fixture
def cache(tmp_path: Path) -> LeaderEpochCache:
    return opened(tmp_path)


def opened(directory: Path) -> LeaderEpochCache:
    path = str(directory / "leader-epoch-checkpoint")
    return LeaderEpochCache(LeaderEpochCheckpoint(OsFileSystem(), path))


def filled(cache: LeaderEpochCache, entries: str) -> LeaderEpochCache:
    for entry in entries.split(","):
        epoch, _, start_offset = entry.partition("@")
        cache.assign(int(epoch), int(start_offset))
    cache.flush()
    return cache


def shown(cache: LeaderEpochCache) -> str:
    return ",".join(map(str, cache.entries))


def end(cache: LeaderEpochCache, epoch: int, log_end_offset: int) -> tuple[int, int]:
    answer = cache.end_offset_for(epoch, log_end_offset)
    return answer.leader_epoch, answer.offset


@pytest.mark.conformance("LE-2", "LE-3")
def test_the_latest_epoch_ends_at_the_log_end(cache: LeaderEpochCache) -> None:
    filled(cache, "2@10")
    assert (cache.latest_epoch, shown(cache)) == (2, "2@10")
    assert end(cache, 2, 11) == (2, 11)
    filled(cache, "2@12")
    assert end(cache, 2, 14) == (2, 14)


@pytest.mark.conformance("LE-4")
def test_the_undefined_epoch_has_no_end(cache: LeaderEpochCache) -> None:
    filled(cache, "2@11,3@12")
    assert cache.end_offset_for(-1, 13) == UNDEFINED


@pytest.mark.conformance("LE-9", "LE-37", "LE-38")
def test_an_empty_cache_knows_nothing(cache: LeaderEpochCache) -> None:
    assert cache.latest_epoch is None
    assert cache.earliest_entry is None
    assert end(cache, -1, 0) == (-1, -1)
    assert end(cache, 7, 0) == (-1, -1)
    assert cache.epoch_for_offset(0) is None


@pytest.mark.parametrize(
    ("assigned", "left"),
    [
        pytest.param("2@9,3@9", "3@9", marks=pytest.mark.conformance("LE-6")),
        pytest.param("2@6,2@10", "2@6", marks=pytest.mark.conformance("LE-7")),
        pytest.param("2@6,2@7", "2@6", marks=pytest.mark.conformance("LE-14")),
        pytest.param("1@5,2@6,1@7", "1@7", marks=pytest.mark.conformance("LE-18")),
        pytest.param("2@6,3@5", "3@5", marks=pytest.mark.conformance("LE-19")),
        pytest.param("2@6,2@4", "2@4", id="an earlier start of the latest epoch is news"),
    ],
)
def test_entries_that_contradict_a_new_one_go(
    cache: LeaderEpochCache, assigned: str, left: str
) -> None:
    assert shown(filled(cache, assigned)) == left


@pytest.mark.parametrize("entries", ["2@6,2@10", "2@9,3@9", "1@5,2@6,1@7", "2@6,3@5", "2@6,2@4"])
def test_a_checkpoint_is_read_as_if_its_entries_were_assigned(
    cache: LeaderEpochCache, tmp_path: Path, entries: str
) -> None:
    """LeaderEpochFileCache's constructor assigns each entry of the file."""
    lines = [entry.replace("@", " ") for entry in entries.split(",")]
    text = "\n".join(["0", str(len(lines)), *lines, ""])
    (tmp_path / "leader-epoch-checkpoint").write_text(text)
    assert shown(opened(tmp_path)) == shown(filled(cache, entries))


@pytest.mark.parametrize(
    ("entries", "epoch", "log_end_offset", "expected"),
    [
        pytest.param(
            "5@11,6@12,7@13", 4, 20, (4, 11), marks=pytest.mark.conformance("LE-10"), id="below all"
        ),
        pytest.param(
            "1@11,1@12,2@13,2@14,3@15,3@16",
            2,
            17,
            (2, 15),
            marks=pytest.mark.conformance("LE-12"),
            id="the next epoch begins where it ends",
        ),
        pytest.param("0@10,2@13,4@17", 1, 20, (0, 13), marks=pytest.mark.conformance("LE-13")),
        pytest.param("0@10,2@13,4@17", 2, 20, (2, 17), marks=pytest.mark.conformance("LE-13")),
        pytest.param("0@10,2@13,4@17", 3, 20, (2, 17), marks=pytest.mark.conformance("LE-13")),
        pytest.param("2@6", 2, 7, (2, 7), marks=pytest.mark.conformance("LE-16"), id="not from 0"),
        pytest.param("2@100", 3, 101, (-1, -1), marks=pytest.mark.conformance("LE-15"), id="newer"),
        pytest.param("1@5,2@6,1@7", 2, 8, (-1, -1), marks=pytest.mark.conformance("LE-18")),
        pytest.param("0@0,2@5,6@12", 4, 30, (2, 12), id="divergence, round 1, leader"),
        pytest.param("0@0,3@7,4@10", 2, 14, (0, 7), id="divergence, round 1, follower"),
        pytest.param("0@0,2@5,6@12", 0, 30, (0, 5), id="divergence, round 2, leader"),
        pytest.param("0@0,3@7,4@10", 0, 14, (0, 7), id="divergence, round 2, follower"),
    ],
)
def test_where_an_epoch_ends(
    cache: LeaderEpochCache,
    entries: str,
    epoch: int,
    log_end_offset: int,
    expected: tuple[int, int],
) -> None:
    assert end(filled(cache, entries), epoch, log_end_offset) == expected


@pytest.mark.conformance("LE-17")
def test_an_assigned_epoch_is_on_disk_at_once(cache: LeaderEpochCache, tmp_path: Path) -> None:
    filled(cache, "2@6")
    assert shown(opened(tmp_path)) == "2@6"


@pytest.mark.conformance("LE-20")
def test_leaders_that_change_many_times(cache: LeaderEpochCache) -> None:
    filled(cache, "0@0,1@0")
    assert (end(cache, 1, 0), end(cache, 0, 0)) == ((1, 0), (0, 0))
    assert (end(cache, 1, 5), end(cache, 0, 5)) == ((1, 5), (0, 0))
    filled(cache, "2@5")
    assert end(cache, 2, 10) == (2, 10)
    assert (end(cache, 1, 10), end(cache, 0, 10)) == ((1, 5), (0, 0))


@pytest.mark.conformance("LE-21")
def test_a_follower_that_receives_many_messages(cache: LeaderEpochCache) -> None:
    filled(cache, "0@0,0@1,0@2,1@3,1@4,1@5,2@6,2@7,2@8")
    assert cache.latest_epoch == 2
    assert (end(cache, 2, 9), end(cache, 0, 9), end(cache, 1, 9)) == ((2, 9), (0, 3), (1, 6))


@pytest.mark.parametrize(
    ("offset", "left"),
    [
        pytest.param(8, "2@6", marks=pytest.mark.conformance("LE-22")),
        pytest.param(9, "2@6,3@8", marks=pytest.mark.conformance("LE-23")),
        pytest.param(-1, "2@6,3@8,4@11", marks=pytest.mark.conformance("LE-24")),
        pytest.param(12, "2@6,3@8,4@11", id="past the last start"),
        pytest.param(0, "", id="all"),
    ],
)
def test_truncating_the_end(cache: LeaderEpochCache, offset: int, left: str) -> None:
    filled(cache, "2@6,3@8,4@11").truncate_from_end(offset)
    assert shown(cache) == left
    assert cache.latest_epoch == (cache.entries[-1].epoch if left else None)


@pytest.mark.parametrize(
    ("offset", "left"),
    [
        pytest.param(8, "3@8,4@11", marks=pytest.mark.conformance("LE-27")),
        pytest.param(9, "3@9,4@11", marks=pytest.mark.conformance("LE-29")),
        pytest.param(1, "2@6,3@8,4@11", marks=pytest.mark.conformance("LE-30")),
        pytest.param(6, "2@6,3@8,4@11", marks=pytest.mark.conformance("LE-31")),
        pytest.param(11, "4@11", marks=pytest.mark.conformance("LE-32")),
        pytest.param(15, "4@15", marks=pytest.mark.conformance("LE-33")),
        pytest.param(-1, "2@6,3@8,4@11", marks=pytest.mark.conformance("LE-34")),
    ],
)
def test_truncating_the_start(cache: LeaderEpochCache, offset: int, left: str) -> None:
    filled(cache, "2@6,3@8,4@11").truncate_from_start(offset)
    assert shown(cache) == left


@pytest.mark.conformance("LE-36")
def test_truncating_the_start_inside_the_first_epoch(cache: LeaderEpochCache) -> None:
    filled(cache, "0@0,1@7,2@10").truncate_from_start(5)
    assert shown(cache) == "0@5,1@7,2@10"


@pytest.mark.conformance("LE-26", "LE-35")
def test_truncating_an_empty_cache_does_nothing(cache: LeaderEpochCache) -> None:
    cache.truncate_from_end(7)
    cache.truncate_from_start(7)
    assert cache.entries == []


@pytest.mark.conformance("LE-42")
def test_an_offset_has_the_epoch_it_was_appended_in(cache: LeaderEpochCache) -> None:
    filled(cache, "0@10,1@20,5@30")
    assert [cache.epoch_for_offset(o) for o in (25, 20, 30, 50, 5)] == [1, 1, 5, 5, None]


@pytest.mark.conformance("LE-43")
def test_truncations_reach_the_file_with_the_flush(cache: LeaderEpochCache, tmp_path: Path) -> None:
    filled(cache, "2@6,3@8,4@11")
    cache.truncate_from_end(11)
    cache.truncate_from_start(8)
    assert shown(opened(tmp_path)) == "2@6,3@8,4@11"
    cache.flush()
    assert shown(opened(tmp_path)) == "3@8"
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n1\n3 8\n"


def test_a_flush_after_the_directory_went_does_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "topic-0"
    directory.mkdir()
    cache = filled(opened(directory), "2@6")
    (directory / "leader-epoch-checkpoint").unlink()
    directory.rmdir()
    cache.clear()
    cache.flush()
    assert not directory.exists()


def test_clearing_empties_the_file_with_the_flush(cache: LeaderEpochCache, tmp_path: Path) -> None:
    filled(cache, "2@6").clear()
    cache.flush()
    assert opened(tmp_path).entries == []


class NaiveEpochs:
    """What the rules say, one entry at a time, without a thought for speed."""

    def __init__(self) -> None:
        self.entries: Entries = []

    def assign(self, epoch: int, start: int) -> None:
        if self.entries and self.entries[-1][0] == epoch and start >= self.entries[-1][1]:
            return
        while self.entries and (self.entries[-1][0] >= epoch or self.entries[-1][1] >= start):
            self.entries.pop()
        self.entries.append((epoch, start))

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        if epoch == -1 or all(e < epoch for e, _ in self.entries):
            return (-1, -1)
        if epoch == self.entries[-1][0]:
            return (epoch, log_end)
        start = min(s for e, s in self.entries if e > epoch)
        return (max((e for e, _ in self.entries if e <= epoch), default=epoch), start)

    def epoch_for_offset(self, offset: int) -> int | None:
        return max((e for e, s in self.entries if s <= offset), default=None)

    def truncate_from_end(self, offset: int) -> None:
        if offset >= 0:
            self.entries = [(e, s) for e, s in self.entries if s < offset]

    def truncate_from_start(self, offset: int) -> None:
        before = [(e, s) for e, s in self.entries if s <= offset]
        if before:
            after = [(e, s) for e, s in self.entries if s > offset]
            self.entries = [(before[-1][0], offset), *after]


steps = st.one_of(
    st.tuples(st.just("assign"), st.integers(0, 8), st.integers(0, 30)),
    st.tuples(st.just("end"), st.integers(-1, 30), st.just(0)),
    st.tuples(st.just("start"), st.integers(-1, 30), st.just(0)),
)


@given(st.lists(steps, max_size=20))
def test_a_naive_twin_agrees(steps: list[tuple[str, int, int]]) -> None:
    cache = LeaderEpochCache(LeaderEpochCheckpoint(OsFileSystem(), "/nowhere/at-all"))
    naive = NaiveEpochs()
    for step, first, second in steps:
        if step == "assign":
            cache.assign(first, second)
            naive.assign(first, second)
        elif step == "end":
            cache.truncate_from_end(first)
            naive.truncate_from_end(first)
        else:
            cache.truncate_from_start(first)
            naive.truncate_from_start(first)
        assert cache.entries == naive.entries
        for epoch in range(-1, 10):
            assert end(cache, epoch, 40) == naive.end_offset_for(epoch, 40)
        for offset in range(31):
            assert cache.epoch_for_offset(offset) == naive.epoch_for_offset(offset)


def test_entries_print_as_epoch_at_start() -> None:
    assert str(EpochEntry(2, 6)) == "2@6"
