"""A run that stays within its loss budget: lines that would exceed it are left out.

At any time fewer than min.insync.replicas of a partition's replicas have been killed, have lost
their power or their disk, and have not joined the ISR since (`scenarios.checkers.budget`).
All other faults happen as in other runs, and nothing that was committed may be lost. Bits rot
here too: a replica that is found rotten counts as one that was killed, and no line can be left
out for it.
"""

from collections.abc import Iterable, Iterator

import attrs

from scenarios.story.arguments import Options, Words, partition_of, split
from scenarios.story.stage import Stage
from scenarios.world.cluster import node_id_of

WITHIN_BUDGET = 0.25
"""The share of runs that have a budget."""
ENDS = ("kill", "power-cut", "wipe", "restore", "swap")


@attrs.frozen
class LossBudget:
    """A filter of lines: the ones that a run within its budget can afford pass."""

    stage: Stage

    def lines(self, drawn: Iterable[str]) -> Iterator[str]:
        for line in drawn:
            if self._is_affordable(*split(line)):
                yield line

    def _is_affordable(self, verb: str, words: Words, options: Options) -> bool:
        match verb:
            case "fail" | "grow":  # a broker ends later; a partition begins with few replicas
                return False
            case "alter":
                return "min.insync.replicas" not in options
            case "reassign":
                return self._keeps_its_replicas(*words)
            case _ if verb in ENDS:
                brokers = [each for each in words if each in self.stage.cluster.broker_names]
                return not self.stage.checkers.budget.would_be_spent(brokers)
            case _:
                return True

    def _keeps_its_replicas(self, where: str, brokers: str) -> bool:
        registration = self.stage.cluster.partition(partition_of(where))
        if brokers == "back":
            return False
        ids = set(map(node_id_of, brokers.split(",")))
        return registration is not None and ids == set(registration.replicas)
