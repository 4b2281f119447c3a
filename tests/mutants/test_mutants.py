"""Every mutant fits this tree, and each step from a mutant to its verdict works."""

import subprocess
import sys
from pathlib import Path

import pytest

from replication.leader.rules.leadership import Leadership
from scenarios.story.script import stories
from tests.mutants import hunt
from tests.mutants.__main__ import as_table, in_a_line, longest_first
from tests.mutants.catalogue import MUTANTS
from tests.mutants.hunt import Verdict, verdict_of
from tests.mutants.mutant import Edit, Mutant, StaleMutantError, path_of
from tests.mutants.planting import planted
from tests.mutants.power import COMMAND, CURVE, PAGE, curve, kind_of, measured, written

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
def test_a_text_that_is_not_there_exactly_once_is_an_error(source: str) -> None:
    with pytest.raises(StaleMutantError):
        Edit("module", "a check", "").applied_to(source)


def test_a_module_that_has_moved_is_an_error() -> None:
    with pytest.raises(StaleMutantError):
        path_of("replication.moved")


def test_a_mutant_of_two_edits_has_both() -> None:
    mutant = Mutant("m", (Edit("m", "a", "x"), Edit("m", "b", "y")), without_it="", source="")
    assert mutant.modules == ("m",)
    assert mutant.mutated("m", "a b") == "x y"


@pytest.mark.deep
def test_a_mutant_is_caught() -> None:
    """In a process of its own, as by `make mutants`."""
    command = [sys.executable, "-m", "tests.mutants.hunt", CHEAP, "--attempts", "1"]
    verdict = verdict_of(CHEAP, subprocess.run(command, capture_output=True, check=False))
    assert verdict.seed in range(1, 201)
    assert verdict.rule.startswith("InvariantViolatedError: ")
    assert verdict.lines >= len(verdict.shortest) > 0


BY_TESTS = [name for name, each in MUTANTS.items() if each.caught_by]


@pytest.mark.parametrize("name", BY_TESTS)
def test_the_test_that_catches_a_mutant_is_there(name: str) -> None:
    path, _, test = MUTANTS[name].caught_by.partition("::")
    test, _, parameter = test.partition("[")
    text, parameter = Path(path).read_text(), parameter.rstrip("]")
    assert f"def {test}(" in text
    assert not parameter or parameter in stories() or f'"{parameter}"' in text


@pytest.mark.parametrize(("code", "caught"), [(1, True), (0, False)])
def test_a_mutant_is_hunted_by_its_test(
    code: int, caught: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def main(arguments: list[str]) -> pytest.ExitCode:
        asked.append(arguments[-1])
        return pytest.ExitCode(code)

    monkeypatch.setattr(pytest, "main", main)
    monkeypatch.setattr(hunt, "plant", lambda _: None)
    monkeypatch.setattr(hunt, "is_planted", lambda _: True)
    name = BY_TESTS[0]
    [verdict] = hunt.hunt(name, range(1, 9), attempts=0)
    assert asked == [MUTANTS[name].caught_by]
    assert verdict.rule == (MUTANTS[name].caught_by if caught else "")
    assert in_a_line(verdict, range(1, 9)).startswith("test " if caught else "SURVIVES")


def test_a_mutant_is_caught_by_its_test() -> None:
    name = "only the deleted topic loses its log"
    ended = subprocess.run(
        [sys.executable, "-m", "tests.mutants.hunt", name], capture_output=True, check=False
    )
    assert verdict_of(name, ended).rule == MUTANTS[name].caught_by


def test_a_mutant_is_planted_in_place_until_it_is_undone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = Leadership.produced.__code__
    planted("an ack waits for the high watermark")(monkeypatch)
    assert "log_end_offset" in Leadership.produced.__code__.co_names
    assert "log_end_offset" not in before.co_names
    monkeypatch.undo()
    assert Leadership.produced.__code__ is before


def test_a_hunt_that_fails_is_no_verdict() -> None:
    with pytest.raises(RuntimeError, match="No module"):
        verdict_of("m", subprocess.CompletedProcess([], 1, b"4\n", b"No module named tests\n"))


def test_the_longest_hunts_begin_first_and_those_by_tests_last() -> None:
    page = "| check a | from | 7 | broke |\n| check b | from | 70* | broke |\n"
    by_test = BY_TESTS[0]
    mutants = dict.fromkeys(["check a", "check b", "check c"], MUTANTS[CHEAP])
    with pytest.MonkeyPatch.context() as patched:
        for name, mutant in mutants.items():
            patched.setitem(MUTANTS, name, mutant)
        ordered = longest_first(["check a", by_test, "check b", "check c"], page)
    assert ordered == ["check c", "check b", "check a", by_test]


def test_the_table_is_that_of_the_page() -> None:
    verdict = Verdict(name=CHEAP, seed=3, rule="InvariantViolatedError: the rule")
    header, line, row = as_table([verdict, Verdict(name=BY_TESTS[0], seed=None)], first=1)
    assert f"{header}\n{line}\n" in PAGE.read_text()
    assert row == f"| {CHEAP} | {MUTANTS[CHEAP].source} | 3 | the rule |"


def test_the_page_has_the_shares_and_the_curve_of_what_was_measured() -> None:
    page, drawing = written(PAGE.read_text())
    assert (page, drawing) == (PAGE.read_text(), CURVE.read_text()), COMMAND


def test_the_curve_rises_at_each_seed_that_caught_a_mutant() -> None:
    assert 'points="50.0,260.0 190.0,260.0 190.0,140.0 610.0,140.0"' in curve([50], 2)


def test_every_mutant_is_caught_by_something_or_covered() -> None:
    seeds = measured(PAGE.read_text())
    unknown = [name for name, each in MUTANTS.items() if kind_of(each, seeds) == "not measured"]
    assert not unknown, "the page has no seed, and no test is named"
