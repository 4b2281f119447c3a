"""Varints, as Kafka writes them."""

import pytest
from hypothesis import given, strategies as st

from storage.errors import CorruptRecordError
from storage.varint import read_varint, varint


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_survive_the_round_trip(value: int) -> None:
    encoded = varint(value)
    assert read_varint(encoded, 0) == (value, len(encoded))
    assert len(encoded) <= 10


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


def test_a_varint_without_an_end_is_corrupt() -> None:
    with pytest.raises(CorruptRecordError):
        read_varint(b"\xff" * 11, 0)
