"""Runs of a story with one rule taken out."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from scenarios.story.runner import run_story
from scenarios.story.script import ScriptError, StoryChangedError, find_story, read_story
from storage.errors import StorageError

Mistake = Callable[[pytest.MonkeyPatch], None]
# The scenario, a story that shows it, and what it takes away.
Case = tuple[str, str, Mistake]


def pairs(cases: Sequence[Case]) -> list[Any]:
    """For `parametrize`, each named after its scenario and its mistake; all but every third are deep."""
    return [
        pytest.param(
            *each,
            id=f"{each[0]}-{each[2].__name__}",
            marks=[pytest.mark.deep] if number % 3 else [],
        )
        for number, each in enumerate(cases)
    ]


def check_comes_out_otherwise(
    scenario: str, story: str, mistake: Mistake, planting: pytest.MonkeyPatch
) -> None:
    script = read_story(find_story(story))
    assert scenario in script.shows
    mistake(planting)
    # A rule of the checkers is an assertion too, and a node may end with what it met on its disk.
    with pytest.raises((AssertionError, StoryChangedError, ScriptError, StorageError)):
        run_story(script).check()
