"""Work in steps: a long computation that pauses, so that other tasks can run meanwhile.

    def answers(request):                      a function that is `Steps[list[Answer]]`
        results = []
        for topic in request.topics:
            results += yield from each_of(answer, topic.partitions)
        return results

Rule 1: a yielded number is the amount of work since the last one, in items of a list. The runner
of the steps (`replication.net.pace`) adds these up, and pauses at `STEP`.

Rule 2: other tasks may change data during a pause. So a function that yields reads data that must be
consistent, such as a metadata image, before its first pause.
"""

from collections.abc import Callable, Generator, Sequence
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Item = TypeVar("Item")
Result = TypeVar("Result")

STEP = 256
"""The number of items after which a pause is due, which take one or two milliseconds."""

Steps: TypeAlias = Generator[int, None, T]


def each_of(fn: Callable[[Item], Result], items: Sequence[Item]) -> Steps[list[Result]]:
    """Return the results of `fn` for each item, in order."""
    if len(items) <= STEP:
        results = [fn(each) for each in items]
        yield len(results) + 1  # an empty list is work too
        return results
    results = []
    for start in range(0, len(items), STEP):
        results += [fn(each) for each in items[start : start + STEP]]
        yield STEP
    return results


def at_once(steps: Steps[T]) -> T:
    """Run `steps` without a pause, and return their result."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        value: T = end.value
        return value
