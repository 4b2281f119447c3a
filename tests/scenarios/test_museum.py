"""The museum: each bug does the damage that its page names, and is gone without its switch."""

import pytest

from scenarios.museum.catalogue import EXHIBITS, find_exhibit
from scenarios.museum.exhibit import switched_on
from scenarios.museum.visit import visit
from scenarios.story.script import ScriptError, find_story
from storage.log.log import Log

FEW = 5_000
"""Alarms of the simulator: it rings more than ten thousand in a second."""


@pytest.mark.parametrize("name", EXHIBITS)
def test_a_story_fails_with_its_bug_and_passes_without_it(name: str) -> None:
    visited = visit(EXHIBITS[name], now=lambda: 0.0)
    assert visited.with_bug.shows(visited.exhibit.damage), visited.with_bug.failure
    assert visited.without_bug.failure == ""
    assert visited.as_recorded
    assert visited.without_bug.happenings < FEW


def test_an_exhibit_is_found_by_each_of_its_tickets() -> None:
    for exhibit in EXHIBITS.values():
        for name in (exhibit.name, *exhibit.also):
            assert find_exhibit(name.lower()) is exhibit
    with pytest.raises(ScriptError, match="did you mean KIP-101"):
        find_exhibit("KIP-1O1")


def test_a_switch_is_off_after_its_run() -> None:
    before = Log.truncate_fully_and_start_at
    with switched_on(EXHIBITS["KAFKA-9491"].switch):
        assert Log.truncate_fully_and_start_at is not before
    assert Log.truncate_fully_and_start_at is before


def test_no_two_exhibits_have_one_switch() -> None:
    switches = [each.switch for each in EXHIBITS.values()]
    assert len(set(switches)) == len(switches)


def test_the_story_of_an_exhibit_comes_with_the_package() -> None:
    for exhibit in EXHIBITS.values():
        assert find_story(exhibit.story).stem == exhibit.story
