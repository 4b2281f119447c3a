"""The records that a coordinator writes to its log."""

from typing import NamedTuple


class KeyAndValue(NamedTuple):
    """A record to write; without a value it is a tombstone."""

    key: bytes
    value: bytes | None
