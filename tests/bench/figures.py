"""A figure is a ratio: what we take, against a floor that the same run measured.

Machines differ and this one is noisy, so rounds of both are interleaved and the median
of each stands. An absolute number is shown beside the ratio, never instead of it.
"""

import statistics
import time
from collections.abc import Callable, Mapping

import attrs


@attrs.frozen
class Figure:
    """`ours` and `floor` in `unit`; `goal` is the least ratio that we want, None for none."""

    name: str
    ours: float
    floor: float
    unit: str
    goal: float | None = None

    @property
    def ratio(self) -> float:
        return self.ours / self.floor

    def __str__(self) -> str:
        goal = "" if self.goal is None else f"  goal {self.goal:g}"
        return (
            f"{self.name:<44} {self.ours:>10.1f} {self.unit:<6} "
            f"floor {self.floor:>10.1f}  ratio {self.ratio:.2f}{goal}"
        )


def interleaved(
    ours: Callable[[], float], floor: Callable[[], float], *, rounds: int
) -> tuple[float, float]:
    """The medians of `rounds` runs of each, taken in turn."""
    measured = [(ours(), floor()) for _ in range(rounds)]
    return (
        statistics.median(one for one, _ in measured),
        statistics.median(other for _, other in measured),
    )


def in_turn(
    works: Mapping[str, Callable[[], float]], *, rounds: int, seconds: float
) -> dict[str, float]:
    """The median of each, all of them once a round; after `seconds` no other round begins."""
    measured: dict[str, list[float]] = {name: [] for name in works}
    began = time.monotonic()
    for number in range(rounds):
        if number and time.monotonic() - began > seconds:
            break
        for name, work in works.items():
            measured[name].append(work())
    return {name: statistics.median(each) for name, each in measured.items()}
