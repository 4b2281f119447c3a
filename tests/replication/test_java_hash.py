import pytest
from hypothesis import given, strategies as st

from replication.java_hash import java_pair_hash, java_string_hash, place_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("test", 3556498),
        ("hello", 99162322),
        ("topic1", -868034334),
        ("__consumer_offsets", -970371369),
        ("polygenelubricants", -(2**31)),
        ("\N{GRINNING FACE}", 31 * 0xD83D + 0xDE00),
    ],
)
def test_strings_hash_as_javas_do(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


def test_the_least_integer_counts_as_0() -> None:
    assert place_of(-(2**31), 50) == 0
    assert place_of(-(2**31) + 1, 50) == (2**31 - 1) % 50


@given(st.text(max_size=20), st.integers(0, 10_000), st.integers(1, 50))
def test_a_place_is_always_one_that_exists(text: str, number: int, places: int) -> None:
    assert 0 <= place_of(java_pair_hash(text, number), places) < places
