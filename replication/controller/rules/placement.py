"""Chance, as the controller's rules take it: two draws, which the caller's seed decides."""

from typing import Protocol


class Chance(Protocol):
    """The two draws that placing replicas needs; `random.Random` has them."""

    def randrange(self, stop: int, /) -> int:
        """Return a number from 0 up to but not including `stop`."""

    def randbytes(self, n: int, /) -> bytes:
        """Return `n` bytes."""
