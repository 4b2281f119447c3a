"""All mutants, by name. Nothing here imports what they change."""

from tests.mutants import (
    of_the_client,
    of_the_controller,
    of_the_coordinator,
    of_the_disk,
    of_the_follower,
    of_the_leader,
)
from tests.mutants.mutant import Mutant

OF = {
    "brokers": (
        of_the_leader,
        of_the_follower,
        of_the_controller,
        of_the_coordinator,
        of_the_disk,
    ),
    "clients": (of_the_client,),
}
MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant for parts in OF.values() for part in parts for mutant in part.MUTANTS
}


def hunted(whose: str) -> tuple[str, ...]:
    """The names of those of brokers, or of clients, that others do not cover."""
    mutants = [mutant for part in OF[whose] for mutant in part.MUTANTS]
    return tuple(mutant.name for mutant in mutants if not mutant.covered)
