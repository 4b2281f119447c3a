"""A dictionary that has shrunk is written anew; one that has not is left alone."""

import sys

from hypothesis import given, strategies as st

from replication.holes import FEW, without_holes


@given(st.sets(st.integers(0, 500)), st.sets(st.integers(0, 500)), st.integers(0, 1000))
def test_nothing_is_lost_and_the_order_is_kept(had: set[int], removed: set[int], most: int) -> None:
    items = {key: str(key) for key in had}
    for key in removed & had:
        del items[key]
    walked, held = without_holes(items, most)
    assert list(walked.items()) == list(items.items())
    assert held >= len(items)


def test_one_that_is_nearly_empty_again_gives_back_its_room() -> None:
    items = dict.fromkeys(range(1000))
    items, most = without_holes(items, 0)
    assert most == 1000
    for key in range(999):
        del items[key]
    before = sys.getsizeof(items)
    items, most = without_holes(items, most)
    assert (list(items), most) == ([999], 1)
    assert sys.getsizeof(items) < before / 10


def test_one_with_few_holes_is_the_same_object() -> None:
    items = dict.fromkeys(range(1000))
    for key in range(600):
        del items[key]
    assert without_holes(items, 1000)[0] is items
    small = dict.fromkeys(range(FEW))
    small.clear()
    assert without_holes(small, FEW)[0] is small
