"""A mutant: this tree with one safety check taken out of it.

    name          what the check ensures
    without_it    what may happen without it
    source        the KIP, Kafka class or ticket that asks for it
    edits         for each module, the text that stands there exactly once, and the text that
                  replaces it

Most have one edit. Where two checks cover each other, in two modules, one mutant takes out
both, and says so.

    caught_by     the pytest id of the test that fails without the check, where the swarm does not
                  reach the state that matters; a story is a test of `test_stories`
    covered       why nothing goes wrong without this check alone, as long as another one stands
    simulator     the module that hunts it, with its `run_seed`: the swarm, or for the rules of
                  KRaft the simulated quorum

A covered mutant is not hunted; it is in the list so that nobody has to think of it again. Where
the other checks can be named, a mutant without all of them is in the list as well.

Rule: a text that is not there exactly once is an error. A check that is moved or reworded takes
its mutant with it.
"""

import importlib.util
from pathlib import Path

import attrs

SWARM = "scenarios.swarm.runner"
QUORUM = "tests.replication.raft.runs"


class StaleMutantError(Exception):
    """The text that a mutant replaces is not there, or is there more than once."""


@attrs.frozen
class Edit:
    module: str
    found: str
    put: str

    def applied_to(self, source: str) -> str:
        count = source.count(self.found)
        if count != 1:
            raise StaleMutantError(f"in {self.module} {count} times, not once: {self.found!r}")
        return source.replace(self.found, self.put)


@attrs.frozen
class Mutant:
    name: str
    edits: tuple[Edit, ...]
    without_it: str = attrs.field(kw_only=True)
    source: str = attrs.field(kw_only=True)
    caught_by: str = attrs.field(kw_only=True, default="")
    covered: str = attrs.field(kw_only=True, default="")
    simulator: str = attrs.field(kw_only=True, default=SWARM)

    @property
    def modules(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(edit.module for edit in self.edits))

    def mutated(self, module: str, source: str) -> str:
        for edit in self.edits:
            if edit.module == module:
                source = edit.applied_to(source)
        return source


def path_of(module: str) -> Path:
    """Return the file of a module, of which only the package is imported."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise StaleMutantError(f"there is no module {module}")
    return Path(spec.origin)
