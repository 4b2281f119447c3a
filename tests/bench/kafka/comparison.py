"""What was measured of both sides, round by round."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import attrs

Cluster = TypeVar("Cluster")
Taken = TypeVar("Taken")

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
