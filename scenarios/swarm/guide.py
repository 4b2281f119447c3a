"""Which seeds a swarm runs that is to reach every marker.

Rule 1: seeds are run in batches, and what a batch has reached decides about the next one. So the
same options run the same seeds, however many processes there are.

Rule 2: one half of a batch is the next seeds in order. The other half is taken from the seeds
behind them, whose plans are known before they run: those come first that have what the most
markers need which were not reached, and each marker counts for less the more often it was tried.

Rule 3: once nothing is left to be reached, the seeds go on in order. None is run twice.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

import attrs

from scenarios.swarm.generator import drawn_beginning
from scenarios.swarm.settings import RunPlan
from scenarios.world.world import World

BATCH = 20
LOOKAHEAD = 200
"""The number of seeds among which the promising half of a batch is chosen."""
FAILING_CONTROLLER = "the controller fails"
COMPACTED = "compacted"
RACKS = "racks"
MIXED = frozenset({"group.consumer.migration.policy=bidirectional"})

NEEDED: Mapping[str, frozenset[str]] = {
    "an election was unclean": frozenset({"unclean.leader.election.enable=true"}),
    "elected while an ISR expansion was pending": frozenset({"isr-change-of-deposed-leader"}),
    "the controller died while an ISR change was pending": frozenset(
        {FAILING_CONTROLLER, "kill-controller-asked", "slow-disk"}
    ),
    "a fetch came to a broker that did not lead": frozenset({"uninformed-broker"}),
    "a log was compacted while a replica was behind": frozenset({COMPACTED}),
    "refused with NOT_ENOUGH_REPLICAS_AFTER_APPEND": frozenset({"isr-shrinks-before-ack"}),
    "a cut was undone, as it had not been synced": frozenset({"cut-undone"}),
    "a disk that lied lost its power": frozenset({"disk-lies"}),
    "a log was found to lack what had been synced": frozenset({"disk-lies"}),
    "a follower was sent a damaged batch": frozenset({"bit-rot", "disk-replaced"}),
    "a consumer was sent a damaged batch": frozenset({"bit-rot"}),
    "a log was cut at damaged bytes": frozenset({"bit-rot"}),
    "a topic was made again": frozenset({"topic-made-again"}),
    "a topic was made again while a broker was down": frozenset({"topic-made-again", "stop"}),
    "a consumer of ours read from a follower": frozenset({RACKS, "reader"}),
    "a classic group became a consumer group, and kept its members": MIXED,
    "a consumer group became a classic one, and kept its members": MIXED,
}
"""The ingredients of a plan that may reach a marker: faults, kinds of clients, settings.

The markers that are not named here are reached soon by any seeds.
"""


@attrs.define(eq=False)
class Guide:
    """The choice of the seeds of one swarm."""

    first: int
    runs: int
    unreached: set[str]
    _tried: Counter[str] = attrs.field(factory=Counter, init=False)

    def heard(self, reached: Iterable[str]) -> None:
        """Take the markers that a run has reached."""
        self.unreached.difference_update(reached)

    def batches(self) -> Iterator[list[int]]:
        """Yield the seeds of each batch, after the runs of the one before have been heard."""
        left, place, taken = self.runs, self.first, set[int]()
        while left:
            wanted = self.unreached & NEEDED.keys()
            size = min(BATCH, left) if wanted else left
            batch: list[int] = []
            while len(batch) < (size - size // 2 if wanted else size):
                if place not in taken:
                    batch.append(place)
                place += 1
            while len(batch) < size:
                ahead = [seed for seed in range(place, place + LOOKAHEAD) if seed not in taken]
                batch.append(self._most_promising(ahead, wanted))
                taken.add(batch[-1])
            left -= size
            yield batch

    def _most_promising(self, seeds: Iterable[int], wanted: Iterable[str]) -> int:
        worth = {marker: 1 / (1 + self._tried[marker]) for marker in sorted(wanted)}
        chosen = max(seeds, key=lambda seed: sum(map(worth.__getitem__, _within(seed, worth))))
        self._tried.update(_within(chosen, worth))
        return chosen


def _within(seed: int, markers: Iterable[str]) -> list[str]:
    """Return the markers for which the plan of a seed has what they need."""
    there = _ingredients(seed)
    return [each for each in markers if NEEDED[each] <= there]


@cache
def _ingredients(seed: int) -> frozenset[str]:
    world = World(seed)
    _, plan = drawn_beginning(world, world.chance("swarm"))
    return frozenset(_words(plan))


def _words(plan: RunPlan) -> Iterator[str]:
    yield from (fault.name for fault in plan.faults)
    yield from plan.clients.kinds
    yield from (f"{key}={value}" for key, value in plan.settings.items())
    if plan.controller_fails:
        yield FAILING_CONTROLLER
    if plan.compacted:
        yield COMPACTED
    if plan.racks:
        yield RACKS
