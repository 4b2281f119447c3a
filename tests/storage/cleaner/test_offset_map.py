"""The offset map is a dict that has a limit."""

import pytest
from hypothesis import given, strategies as st

from storage.cleaner.offset_map import SLOT_SIZE, OffsetMap


@given(
    slots=st.integers(10, 60),
    puts=st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 2**62)), max_size=200),
    asked=st.lists(st.binary(max_size=3), max_size=50),
)
def test_it_is_a_dict_until_it_is_full(
    slots: int, puts: list[tuple[bytes, int]], asked: list[bytes]
) -> None:
    found = OffsetMap(slots * SLOT_SIZE)
    twin: dict[bytes, int] = {}
    for key, offset in puts:
        if found.is_full:
            break
        found.put(key, offset)
        twin[key] = offset
        assert found.size == len(twin)
    assert found.is_full == (len(twin) >= int(slots * 0.9))
    for key in [*twin, *asked]:
        assert found.get(key) == twin.get(key, -1)


def test_it_is_filled_to_nine_tenths() -> None:
    found = OffsetMap(100 * SLOT_SIZE)
    for number in range(90):
        assert not found.is_full
        found.put(b"%d" % number, number)
    assert found.is_full
    assert found.utilization == 0.9


def test_what_was_seen_never_falls_back() -> None:
    found = OffsetMap(10 * SLOT_SIZE)
    found.saw(7)
    found.saw(3)
    assert found.latest_offset == 7


def test_it_needs_room_for_a_key() -> None:
    with pytest.raises(ValueError, match="too few"):
        OffsetMap(SLOT_SIZE)
