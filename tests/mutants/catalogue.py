"""All mutants by name. Nothing here imports the modules that they change."""

from typing import Final

from tests.mutants import (
    client,
    controller,
    controllers,
    coordinator,
    follower,
    groups,
    leader,
    log,
    producers,
    quorum,
    sessions,
)
from tests.mutants.mutant import Mutant

ROOMS: Final[tuple[tuple[str, tuple[Mutant, ...]], ...]] = (
    ("leader: ISR, high watermark, fetches", leader.MUTANTS),
    ("follower", follower.MUTANTS),
    ("controller: elections, ISR changes, moves", controller.MUTANTS),
    ("coordinators", coordinator.MUTANTS),
    ("log: truncation, epochs, recovery", log.MUTANTS),
    ("our clients", client.MUTANTS),
    ("consumer groups", groups.MUTANTS),
    ("the rules of KRaft", quorum.MUTANTS),
    ("the node of a quorum", controllers.MUTANTS),
    ("producers and transactions", producers.MUTANTS),
    ("fetch sessions, quotas, security", sessions.MUTANTS),
)
"""The mutants by the room of the rule that they take out."""
_ALL = [mutant for _, part in ROOMS for mutant in part]
MUTANTS: dict[str, Mutant] = {mutant.name: mutant for mutant in _ALL}
assert len(MUTANTS) == len(_ALL), "no two mutants have one name"
HUNTED = tuple(name for name, mutant in MUTANTS.items() if not mutant.covered)
"""The mutants that no other check covers."""
