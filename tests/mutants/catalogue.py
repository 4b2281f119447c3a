"""All mutants, by name. Nothing here imports what they change."""

from tests.mutants import (
    of_the_client,
    of_the_controller,
    of_the_disk,
    of_the_follower,
    of_the_leader,
)
from tests.mutants.mutant import Mutant

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for part in (of_the_leader, of_the_follower, of_the_controller, of_the_disk, of_the_client)
    for mutant in part.MUTANTS
}
HUNTED = tuple(name for name, mutant in MUTANTS.items() if not mutant.covered)
