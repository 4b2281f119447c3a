"""The run of an exhibit's story, with the bug and without it."""

from collections.abc import Callable

import attrs

from replication.errors import UnderstudyError
from scenarios.checkers import InvariantViolatedError
from scenarios.museum.exhibit import Exhibit, switched_on
from scenarios.story.runner import run_story
from scenarios.story.script import find_story, read_story
from storage.errors import StorageError


@attrs.frozen(kw_only=True)
class StoryOutcome:
    """The result of one run of a story."""

    failure: str
    """The error that ended the run, or the answers that have changed; empty if it passed."""
    rule: str
    """The rule of a checker that was broken, if one was."""
    seconds: float
    happenings: int
    """The number of alarms that rang in the simulator; 0 if an error ended the run."""

    def shows(self, damage: str) -> bool:
        """Return whether the run failed by this damage: a rule, or a part of the error."""
        return damage == self.rule or damage in self.failure


@attrs.frozen(kw_only=True)
class Visit:
    """The results of one exhibit's story, with its switch and without it."""

    exhibit: Exhibit
    with_bug: StoryOutcome
    without_bug: StoryOutcome

    @property
    def damage(self) -> str:
        """The line of the failure that shows the damage; its first line if no line names it."""
        lines = self.with_bug.failure.splitlines() or [""]
        named = [line for line in lines if self.exhibit.damage in line]
        return (named or lines)[0]

    @property
    def as_recorded(self) -> bool:
        """Whether the story fails by the expected damage with the bug, and passes without it."""
        fails = self.with_bug.shows(self.exhibit.damage)
        return fails and not self.without_bug.failure


def visit(exhibit: Exhibit, *, now: Callable[[], float]) -> Visit:
    """Run the story of `exhibit` with its switch and without it; `now` returns seconds."""
    with switched_on(exhibit.switch):
        with_bug = _run(exhibit.story, now)
    return Visit(exhibit=exhibit, with_bug=with_bug, without_bug=_run(exhibit.story, now))


def _run(story: str, now: Callable[[], float]) -> StoryOutcome:
    script = read_story(find_story(story))
    began = now()
    happenings, rule, failure = 0, "", ""
    try:
        run = run_story(script)
        happenings, failure = run.happenings, run.changes
    except InvariantViolatedError as error:
        rule, failure = error.rule, error.what
    except (AssertionError, UnderstudyError, StorageError, OSError) as error:
        failure = str(error)  # a node may end with what it met on its disk
    return StoryOutcome(failure=failure, rule=rule, seconds=now() - began, happenings=happenings)
