"""How dirty a log is, and up to where it may be cleaned."""

from typing import Any

import attrs
import pytest

from storage.cleaner.candidates import DirtyRange, dirty_range
from storage.cleaner.cleaner import group
from storage.log.index.index_file import MAX_RELATIVE_OFFSET
from storage.types import Offset
from tests.storage.cleaning import compacted

NOW = 1_000_000


@attrs.frozen(kw_only=True)
class Stretch:
    """A segment, as far as these rules ask."""

    base_offset: Offset
    next_base_offset: Offset = 0
    size: int = 100
    first_batch_timestamp: int | None = 1
    newest: int = 1
    index_bytes: tuple[int, int] = (0, 0)

    def newest_ms(self) -> int:
        return self.newest


def look(
    segments: list[Stretch],
    *,
    checkpoint: Offset | None = None,
    start: Offset = 0,
    end: Offset = 400,
    stable: Offset = 400,
    **config: Any,
) -> DirtyRange:
    return dirty_range(
        segments,
        compacted(**config),
        checkpoint=checkpoint,
        log_start_offset=start,
        log_end_offset=end,
        last_stable_offset=stable,
        wall_ms=NOW,
    )


def four(**changes: Any) -> list[Stretch]:
    return [Stretch(base_offset=base, **changes) for base in (0, 100, 200, 300)]


def test_all_but_the_active_segment_is_dirty_at_first() -> None:
    found = look(four())
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (0, 300)
    assert (found.clean_bytes, found.cleanable_bytes, found.ratio) == (0, 300, 1.0)
    assert not found.resets


def test_the_dirty_range_begins_at_the_checkpoint() -> None:
    found = look(four(), checkpoint=200)
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (200, 300)
    assert (found.clean_bytes, found.cleanable_bytes) == (200, 100)
    assert found.ratio == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("checkpoint", "start"),
    [pytest.param(50, 100, id="below the log start"), pytest.param(401, 100, id="past the end")],
)
def test_a_checkpoint_outside_the_log_is_given_up(checkpoint: int, start: int) -> None:
    found = look(four(), checkpoint=checkpoint, start=start)
    assert found.resets
    assert found.first_dirty_offset == start


@pytest.mark.parametrize(
    ("stable", "expected"),
    [(0, 0), (99, 0), (100, 100), (250, 200), (300, 300), (400, 300)],
)
def test_the_segment_that_the_last_stable_offset_lies_in_stays(stable: int, expected: int) -> None:
    assert look(four(), stable=stable).first_uncleanable_offset == expected


def test_no_log_is_due_where_everything_is_uncleanable() -> None:
    found = look(four(), stable=50, min_cleanable_dirty_ratio=0.0)
    assert found.cleanable_bytes == 0
    assert not found.is_due(compacted(min_cleanable_dirty_ratio=0.0))


def test_a_young_segment_and_all_behind_it_stay() -> None:
    segments = four(newest=NOW - 5000)
    segments[1] = attrs.evolve(segments[1], newest=NOW - 999)
    assert look(segments, min_compaction_lag_ms=1000).first_uncleanable_offset == 100
    assert look(segments, min_compaction_lag_ms=999).first_uncleanable_offset == 300
    assert look(segments, min_compaction_lag_ms=0).first_uncleanable_offset == 300


def test_the_lag_is_not_asked_of_what_is_clean() -> None:
    segments = four(newest=NOW - 5000)
    segments[0] = attrs.evolve(segments[0], newest=NOW)
    found = look(segments, checkpoint=100, min_compaction_lag_ms=1000)
    assert found.first_uncleanable_offset == 300


@pytest.mark.parametrize(("ratio", "due"), [(0.3, True), (0.5, False), (0.6, False)])
def test_a_log_is_due_when_more_than_the_ratio_is_dirty(ratio: float, due: bool) -> None:
    found = look([*four()[:2], *four()[3:]], checkpoint=100)
    assert found.ratio == 0.5
    assert found.is_due(compacted(min_cleanable_dirty_ratio=ratio)) == due


def test_a_log_is_due_when_a_dirty_record_has_waited_too_long() -> None:
    segments = four(first_batch_timestamp=NOW - 700)
    segments[0] = attrs.evolve(segments[0], first_batch_timestamp=1)
    config: dict[str, Any] = {"max_compaction_lag_ms": 600, "min_cleanable_dirty_ratio": 1.0}
    found = look(segments, checkpoint=200, **config)
    assert found.delay_ms == 100
    assert found.is_due(compacted(**config))
    assert look(segments, checkpoint=200, max_compaction_lag_ms=700).delay_ms == 0
    # Without timestamps nothing can be said.
    assert look(four(first_batch_timestamp=None), max_compaction_lag_ms=1).delay_ms == 0


def test_the_active_segment_never_waits_too_long() -> None:
    segments = four(first_batch_timestamp=NOW)
    segments[-1] = attrs.evolve(segments[-1], first_batch_timestamp=1)
    assert look(segments, max_compaction_lag_ms=1000).delay_ms == 0


# Which become one.


def stretches(*sizes: int, span: int = 10, **changes: Any) -> list[Stretch]:
    return [
        Stretch(base_offset=n * span, next_base_offset=(n + 1) * span, size=size, **changes)
        for n, size in enumerate(sizes)
    ]


def grouped(segments: list[Stretch], *, index: int = 1000) -> list[list[int]]:
    groups = group(segments, segment_bytes=100, index_bytes=index)
    assert [each for members in groups for each in members] == segments
    return [[each.size for each in members] for members in groups]


def test_neighbours_that_fit_one_segment_are_grouped() -> None:
    assert grouped(stretches(40, 10, 50, 60, 30, 95, 20, 20)) == [
        [40, 10, 50],
        [60, 30],
        [95],
        [20, 20],
    ]
    assert grouped([]) == []


def test_a_segment_that_is_too_large_is_a_group_by_itself() -> None:
    assert grouped(stretches(10, 300, 10)) == [[10], [300], [10]]


@pytest.mark.parametrize("index_bytes", [(60, 0), (0, 60)], ids=["offset index", "time index"])
def test_a_group_fits_either_index(index_bytes: tuple[int, int]) -> None:
    assert grouped(stretches(1, 1, 1, index_bytes=index_bytes), index=120) == [[1, 1], [1]]


def test_a_group_spans_no_more_offsets_than_an_index_can_say() -> None:
    span = MAX_RELATIVE_OFFSET // 2 + 1
    assert grouped(stretches(1, 1, 1, span=span)) == [[1, 1], [1]]
    assert grouped(stretches(1, 1, 0, span=span)) == [[1, 1, 0]]
