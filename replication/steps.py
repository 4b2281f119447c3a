"""Work in steps: a long computation that pauses, so that whoever runs it can do other work.

    def answers(request):                      a function that is `Steps[list[Answer]]`
        results = []
        for topic in request.topics:
            results += yield from each_of(answer, topic.partitions)
        return results

Rule 1: a yielded number says how much work was done since the last: about an item of a list for
each one. Whoever runs the steps (`replication.net.pace`) adds these up, and pauses at `STEP`.

Rule 2: what a pause lets others do may change what the work reads. A function that yields reads
what must agree with itself, such as an image of the metadata, before its first pause.
"""

from collections.abc import Callable, Generator, Sequence
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Item = TypeVar("Item")
Result = TypeVar("Result")

STEP = 256
"""The items after which a pause is due: a millisecond or two."""

Steps: TypeAlias = Generator[int, None, T]


def each_of(fn: Callable[[Item], Result], items: Sequence[Item]) -> Steps[list[Result]]:
    """Return what `fn` makes of each item, in their order."""
    if len(items) <= STEP:
        results = [fn(each) for each in items]
        yield len(results) + 1  # a list of none is work for its owner
        return results
    results = []
    for start in range(0, len(items), STEP):
        results += [fn(each) for each in items[start : start + STEP]]
        yield STEP
    return results


def at_once(steps: Steps[T]) -> T:
    """Return what `steps` come to, without a pause."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        value: T = end.value
        return value
