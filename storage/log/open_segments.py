"""The segments with open files, of which a broker of many partitions closes the oldest.

    opened     a segment that opens one of its files is appended to the list
    trimmed    before an append or a read, the first of the list close their files, down to `limit`;
               at most `LOOKS` of them are looked at each time
    used       a segment whose files were closed opens them again, and is appended again

Rule 1: a segment with a `FileRegion` that is being sent keeps its files: the sender uses the
descriptor, and a truncation must find the region to abort it.

Rule 2: a segment whose disk fails stays open, too: its own log notices that at its next write; the
log that needed descriptors is not affected.

Rule 3: only between operations. Then an index or a file of a segment is held only through
a region; so this is for the loop alone, and what a worker opens is not noted here.

A segment has at most four files open: one where it is only read from or appended to, and the
indexes while something is looked up or indexed.
"""

from itertools import islice
from typing import Final, Protocol

import attrs

from storage.attributes import define

DEFAULT_LIMIT: Final = 500
FILES_OF_A_SEGMENT: Final = 4
LOOKS: Final = 4
"""More than an operation opens, so that the number falls to `limit` when they can let go again."""
_LEAST: Final = 8


def limit_within(descriptors: int | None) -> int:
    """Return how many segments of one node may be open in a process with so many descriptors;
    None stands for any number. An eighth at most is for them: the process may have other nodes.
    """
    if descriptors is None:
        return DEFAULT_LIMIT
    return min(DEFAULT_LIMIT, max(_LEAST, descriptors // (8 * FILES_OF_A_SEGMENT)))


class Releasable(Protocol):
    def release(self) -> bool:
        """Close all files until they are needed again; return False if they have to stay open."""


@define(eq=False)
class OpenSegments:
    limit: int = DEFAULT_LIMIT
    over_limit: bool = attrs.field(init=False, default=False)
    """Whether `trim` is due."""
    # In the order in which they were opened.
    _noted: dict[Releasable, None] = attrs.field(init=False, factory=dict)

    def __len__(self) -> int:
        return len(self._noted)

    def note(self, segment: Releasable) -> None:
        self._noted.pop(segment, None)
        self._noted[segment] = None
        self.over_limit = len(self._noted) > self.limit

    def forget(self, segment: Releasable) -> None:
        self._noted.pop(segment, None)
        self.over_limit = len(self._noted) > self.limit

    def trim(self) -> None:
        """Close the files of the oldest segments down to `limit`, if the first `LOOKS` of them can be closed."""
        excess = len(self._noted) - self.limit
        if excess <= 0:
            return
        # A fetch of many partitions keeps them all open: looking at each of them before each read
        # would take a time that grows with their square.
        for segment in list(islice(self._noted, LOOKS)):
            del self._noted[segment]
            if segment.release():
                excess -= 1
                if excess == 0:
                    self.over_limit = False
                    return
            else:
                self._noted[segment] = None
