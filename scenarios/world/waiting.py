"""The positions of all tasks, which the error of a run that does not end reports.

ReplicaFetcherThread-0-1 at scenarios.world.streams:203 receive_some (2 tasks)
"""

from collections import Counter
from collections.abc import Iterator

import trio

OURS = frozenset({"replication", "scenarios", "storage", "tests"})
MOST = 12


def all_tasks() -> Iterator[trio.lowlevel.Task]:
    """Yield every task of the run that is under way in this thread."""
    root = trio.lowlevel.current_root_task()
    assert root is not None, "asked inside a run of trio"
    left = [root]
    while left:
        task = left.pop()
        yield task
        left += [child for nursery in task.child_nurseries for child in nursery.child_tasks]


def where_tasks_wait() -> str:
    """Return where the tasks stand, those of which there are most first."""
    found = Counter(place for task in all_tasks() if (place := _place_of(task)))
    places = [
        f"{place} ({count} task{'' if count == 1 else 's'})" for place, count in found.most_common()
    ]
    more = [f"and {len(places) - MOST} other places"] if len(places) > MOST else []
    return "; ".join(places[:MOST] + more)


def _place_of(task: trio.lowlevel.Task) -> str:
    """Return the innermost line of ours that the task is in; "" where it is in none."""
    place = ""
    for frame, line in task.iter_await_frames():
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] in OURS and not task.child_nurseries:
            place = f"{module}:{line} {frame.f_code.co_name}"
    return f"{task.name} at {place}" if place else ""
