"""The groups in which stories are listed, and those to read first.

A story belongs to the group of the first scenario that it shows; docs/stories.md has the groups as
headings.
"""

from bisect import bisect_right
from typing import Final

from scenarios.story.script import Script

# The number of a group's first scenario; it ends where the next group begins.
GROUPS: Final = {
    1: "Truncation and divergence",
    17: "The high watermark",
    27: "Zombies, fencing, and who may join the ISR",
    40: "Where a log begins",
    48: "Crashes, disks and clocks",
    62: "The ISR and what was acked",
    71: "The controller",
    82: "Fetch sessions",
    87: "Producers",
    95: "Clients",
    101: "The metadata log",
    104: "Transactions",
}
TO_START_WITH: Final = frozenset(
    {
        "a-leader-killed-while-it-holds-an-unreplicated-record",
        "a-leader-that-was-stopped-wakes-up-deposed",
        "alone-nothing-is-committed",
        "twenty-elections-and-one-producer",
        "two-logs-of-one-length",
    }
)


def group_of(story: Script) -> str:
    """Return the title of the group of a story of ours."""
    first = int(story.shows[0].removeprefix("S"))
    begun = tuple(GROUPS)
    return GROUPS[begun[bisect_right(begun, first) - 1]]
