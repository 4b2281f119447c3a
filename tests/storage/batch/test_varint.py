"""Varints, as Kafka writes them."""

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from storage.batch.varint import read_varint, read_varlong, varint
from storage.errors import CorruptRecordError


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_survive_the_round_trip(value: int) -> None:
    encoded = varint(value)
    assert read_varlong(encoded, 0) == (value, len(encoded))
    assert len(encoded) <= 10
    if -(2**31) <= value < 2**31:
        assert read_varint(encoded, 0) == (value, len(encoded))
    else:
        with pytest.raises(CorruptRecordError, match="more than 32 bits"):
            read_varint(encoded, 0)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_varints_are_kafkas(value: int, encoded: str) -> None:
    assert varint(value).hex() == encoded


@pytest.mark.parametrize("read", [read_varint, read_varlong])
def test_a_varint_without_an_end_is_corrupt(read: Callable[[bytes, int], object]) -> None:
    with pytest.raises(CorruptRecordError):
        read(b"\xff" * 11, 0)
