"""Every mutant fits this tree, and the way from a mutant to its verdict is whole."""

import subprocess
import sys

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.hunt import verdict_of
from tests.mutants.mutant import Edit, Mutant, StaleMutantError, path_of

CHEAP = "a joining follower has all that is committed"
"""One of the first seeds catches it."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_fits_its_modules_and_is_python(name: str) -> None:
    mutant = MUTANTS[name]
    for module in mutant.modules:
        source = path_of(module).read_text()
        mutated = mutant.mutated(module, source)
        assert mutated != source
        compile(mutated, module, "exec")


@pytest.mark.parametrize("source", ["", "a check; a check"], ids=["gone", "twice"])
def test_what_is_not_there_exactly_once_is_an_error(source: str) -> None:
    with pytest.raises(StaleMutantError):
        Edit("module", "a check", "").applied_to(source)


def test_a_module_that_has_moved_is_an_error() -> None:
    with pytest.raises(StaleMutantError):
        path_of("replication.moved")


def test_a_mutant_of_two_edits_has_both() -> None:
    mutant = Mutant("m", (Edit("m", "a", "x"), Edit("m", "b", "y")), without_it="", source="")
    assert mutant.modules == ("m",)
    assert mutant.mutated("m", "a b") == "x y"


@pytest.mark.seeds
def test_a_mutant_is_caught() -> None:
    """In a process of its own, as by `make mutants`."""
    command = [sys.executable, "-m", "tests.mutants.hunt", CHEAP, "--attempts", "1"]
    verdict = verdict_of(CHEAP, subprocess.run(command, capture_output=True, check=False))
    assert verdict.seed in range(1, 201)
    assert verdict.rule.startswith("InvariantViolatedError: ")
    assert verdict.lines >= len(verdict.shortest) > 0


def test_a_hunt_that_fails_is_no_verdict() -> None:
    with pytest.raises(RuntimeError, match="No module"):
        verdict_of("m", subprocess.CompletedProcess([], 1, b"4\n", b"No module named tests\n"))
