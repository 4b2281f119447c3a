"""How much both sides do, and what was measured of them, round by round."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import attrs

Cluster = TypeVar("Cluster")
Taken = TypeVar("Taken")

GIB = 1024**3
OURS, KAFKA = SIDES = ("understudy", "Apache Kafka")


@attrs.frozen(kw_only=True)
class Comparison:
    """Rounds by side, in `unit`; a side that did not run has none."""

    name: str
    unit: str
    rounds: Mapping[str, Sequence[float]]
    more_is_better: bool = False

    def median(self, side: str) -> float | None:
        taken = self.rounds.get(side)
        return statistics.median(taken) if taken else None

    @property
    def gain(self) -> float | None:
        """How many times better we are; below 1 we are behind."""
        ours, theirs = self.median(OURS), self.median(KAFKA)
        if not ours or not theirs:
            return None
        return ours / theirs if self.more_is_better else theirs / ours


def in_turn(
    clusters: Mapping[str, Cluster], measure: Callable[[Cluster], Taken], *, rounds: int
) -> dict[str, list[Taken]]:
    """`rounds` of each, one after the other."""
    taken: dict[str, list[Taken]] = {side: [] for side in clusters}
    for _ in range(rounds):
        for side, cluster in clusters.items():
            taken[side].append(measure(cluster))
    return taken


def after_the_first(
    taken: Mapping[str, Sequence[Any]], at: int | None = None
) -> dict[str, list[float]]:
    """Return the rounds that count, of each round only the figure `at` where there are several."""
    return {
        side: [each if at is None else each[at] for each in rounds[1:]]
        for side, rounds in taken.items()
    }


# How much of each is done, in the whole measurement and in one that fits into a pause.


@attrs.frozen(kw_only=True)
class Sizes:
    warm_up_seconds: float = 30
    rounds: int = 5
    start_up_rounds: int = 3
    failover_rounds: int = 5
    catch_up_bytes: int = 4 * GIB
    mirrored_bytes: int = 2 * GIB
    latency_seconds: float = 10
    produced_bytes: int = 256 * 1024**2
    idle_seconds: float = 30
    idle_partitions: int = 1000


QUICK = Sizes(
    warm_up_seconds=15,
    rounds=3,
    start_up_rounds=2,
    failover_rounds=3,
    catch_up_bytes=GIB,
    mirrored_bytes=GIB,
    latency_seconds=5,
    produced_bytes=64 * 1024**2,
    idle_seconds=15,
)
