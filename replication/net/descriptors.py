"""The descriptors of this process: connections leave some of them to the files of its nodes.

    0 ─────────────────────── N ───────────── soft limit of RLIMIT_NOFILE
      connections, and files     files alone

Rule 1: the kernel gives the lowest free number. So the number of a new connection says how many
descriptors are in use in this process.

Rule 2: each listener stands for a node, with the segments that it may have open and some other
files. All nodes together keep at most half of the descriptors.
"""

import resource
from typing import Final

from storage.log.open_segments import FILES_OF_A_SEGMENT, limit_within

# Besides the segments: locks, checkpoints, snapshots, and connections to other nodes.
_OTHER_FILES: Final = 200

_listeners: list[None] = []  # of all threads, which append and pop may be called from


def listener_opened() -> None:
    _listeners.append(None)


def listener_closed() -> None:
    _listeners.pop()


def left_for_connections(descriptors: int, listeners: int) -> int:
    """Return N of the drawing above, for that many descriptors and listeners."""
    of_a_node = FILES_OF_A_SEGMENT * limit_within(descriptors) + _OTHER_FILES
    return descriptors - min(descriptors // 2, listeners * of_a_node)


def is_kept_for_files(number: int) -> bool:
    """Return whether a connection with this descriptor takes one that files may need."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return False
    return number >= left_for_connections(soft, len(_listeners))
