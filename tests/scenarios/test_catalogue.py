"""docs/stories.md says of every scenario what shows it; the stories and the tests say the same."""

import re
from pathlib import Path

import attrs

from scenarios.story.catalogue import GROUPS, TO_START_WITH, group_of
from scenarios.story.script import read_story, stories

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "stories.md"
OUTSIDE = "outside: "

_ROW = re.compile(r"\| (S\d{2,3}) \| (.+?) \| (.+?) \| (.+?) \|")
_NAME = re.compile(r"`([^`]+)`")


@attrs.frozen
class Scenario:
    """A row of the page."""

    number: str
    title: str
    origin: str
    shown_by: str

    @property
    def names(self) -> list[str]:
        return _NAME.findall(self.shown_by)

    @property
    def tests(self) -> list[str]:
        return [name for name in self.names if "::" in name]

    @property
    def stories(self) -> list[str]:
        return [name for name in self.names if "::" not in name]


def catalogue() -> list[Scenario]:
    rows = map(_ROW.fullmatch, PAGE.read_text().splitlines())
    return [Scenario(*row.groups()) for row in rows if row]


def test_every_row_is_read_and_numbers_rise() -> None:
    begun = [line for line in PAGE.read_text().splitlines() if line.startswith("| S")]
    numbers = [each.number for each in catalogue()]
    assert len(numbers) == len(begun)
    assert numbers == sorted(set(numbers), key=lambda number: int(number[1:]))


def test_the_page_and_the_list_of_stories_have_the_same_groups() -> None:
    heading, found = "", dict[str, str]()
    for line in PAGE.read_text().splitlines():
        heading = line.removeprefix("## ") if line.startswith("## ") else heading
        if row := _ROW.fullmatch(line):
            found[row[1]] = heading
    read = {name: read_story(path) for name, path in stories().items()}
    assert {name: group_of(story) for name, story in read.items()} == {
        name: found[story.shows[0]] for name, story in read.items()
    }
    assert set(GROUPS.values()) == set(found.values())
    assert len(TO_START_WITH & read.keys()) == 5


def test_a_scenario_is_shown_by_the_stories_that_say_so_and_no_others() -> None:
    shown: dict[str, list[str]] = {each.number: [] for each in catalogue()}
    for name, path in stories().items():
        for number in read_story(path).shows:
            assert number in shown, f"{name} shows {number}, which docs/stories.md does not have"
            shown[number].append(name)
    assert {each.number: each.stories for each in catalogue()} == shown


def test_the_tests_that_are_named_are_there() -> None:
    missing = [
        f"{each.number}: {name}"
        for each in catalogue()
        for name in each.tests
        for path, _, test in [name.partition("::")]
        if f"def {test}(" not in ((ROOT / path).read_text() if (ROOT / path).is_file() else "")
    ]
    assert missing == []


def test_a_scenario_without_a_story_says_why() -> None:
    for each in catalogue():
        assert each.names or each.shown_by.startswith(OUTSIDE), f"{each.number} says neither"


def test_every_story_shows_something_and_names_its_rules() -> None:
    for name, path in stories().items():
        script = read_story(path)
        assert script.shows, f"{name} shows no scenario"
        assert script.fields.get("rules"), f"{name} names no rule"
