"""All mutants by name. Nothing here imports the modules that they change."""

from tests.mutants import client, controller, coordinator, follower, groups, leader, log, quorum
from tests.mutants.mutant import Mutant

_ALL = [
    mutant
    for part in (leader, follower, controller, coordinator, log, client, groups, quorum)
    for mutant in part.MUTANTS
]
MUTANTS: dict[str, Mutant] = {mutant.name: mutant for mutant in _ALL}
assert len(MUTANTS) == len(_ALL), "no two mutants have one name"
HUNTED = tuple(name for name, mutant in MUTANTS.items() if not mutant.covered)
"""The mutants that no other check covers."""
