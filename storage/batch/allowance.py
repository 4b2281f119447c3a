"""How much work a check may do where others wait for it, such as on a broker's event loop.

    an allowance of 4096 steps
    ├── a record that is looked at by itself        5
    ├── a header of a record                        1
    ├── 256 bytes decompressed                      1
    └── a batch appended                           50

A check that needs more stops with LongCheckError, having changed nothing. Its caller repeats it
with no allowance, in a thread. A step takes a quarter of a microsecond to one.
"""

from typing import Final

from storage.attributes import define
from storage.errors import LongCheckError

STEPS: Final = 4096
STEPS_PER_OUTLINE: Final = 5
STEPS_PER_BATCH: Final = 50
BYTES_PER_STEP: Final = 256


@define
class Allowance:
    """The steps that checks may still take."""

    steps: int = STEPS

    @property
    def decompressed_bytes(self) -> int:
        """The most bytes that may be decompressed with it."""
        return self.steps * BYTES_PER_STEP

    @property
    def is_low(self) -> bool:
        """Whether less than half of a whole allowance is left."""
        return self.steps < STEPS // 2

    def spend(self, steps: int) -> None:
        """Take `steps` away; raise LongCheckError where fewer are left."""
        if steps > self.steps:
            raise LongCheckError(f"{steps} more steps, where {self.steps} are left")
        self.steps -= steps

    def spend_bytes(self, count: int) -> None:
        """Take away what it takes to decompress `count` bytes."""
        self.spend(count // BYTES_PER_STEP)
