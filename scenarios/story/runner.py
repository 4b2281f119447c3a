"""The run of a story: a world from its seed, its commands one after the other, their answers.

    run = run_story(read_story(path), seed=7)
    run.changes         a diff against the recorded answers; empty if nothing has changed
    run.trace_hash      equal for equal seeds, in any process

The invariants of `scenarios.checkers` are checked all along; a violation ends the story with an
error, whatever its answers are.
"""

from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

import attrs

from replication.errors import UnderstudyError
from replication.net.raising import raising_only_one
from scenarios.checkers import Checkers
from scenarios.story.commands.table import COMMANDS, refuse_unknown_command, run_command
from scenarios.story.report.recording import Recording
from scenarios.story.script import Script, ScriptError, StoryChangedError, difference
from scenarios.story.stage import Stage
from scenarios.world.world import VIRTUAL_HOUR, World
from storage.errors import StorageError


@attrs.frozen(kw_only=True)
class StoryRun:
    """The result of a story."""

    recorded: Script
    actual: Script
    answers: tuple[tuple[str, ...], ...]
    """The answer of each command, in order."""
    seed: int
    trace: str
    trace_hash: str
    virtual_seconds: float
    happenings: int
    """The number of alarms that rang: bytes that arrived, timers that fell due."""

    @property
    def changes(self) -> str:
        """The difference of the recorded and the actual answers, as a diff; empty if they are
        equal.
        """
        return difference(self.recorded, self.actual)

    def check(self) -> None:
        """Raise StoryChangedError, with the changes, if there are any."""
        if self.changes:
            raise StoryChangedError(f"the story has changed (seed {self.seed}):\n{self.changes}")


def run_story(
    script: Script,
    *,
    seed: int | None = None,
    recording: Recording | None = None,
    limit: float = VIRTUAL_HOUR,
) -> StoryRun:
    """Run a story in a world grown from `seed`, or from its own; compare nothing yet.

    A command that does not exist is refused before the first one runs. StuckError is raised after
    `limit` virtual seconds.
    """
    for number, command in script.commands:
        with _blaming(command, number):
            refuse_unknown_command(command, COMMANDS)
    seed = script.seed if seed is None else seed
    world = World(seed)
    answers: list[tuple[str, ...]] = []
    of_commands: list[tuple[str, ...]] = []
    checkers = Checkers()

    async def story(world: World) -> None:
        with raising_only_one():
            async with AsyncExitStack() as stack:
                stage = Stage(world=world, stack=stack, checkers=checkers, recording=recording)
                for step in script.steps:
                    answer: list[str] = []
                    for number, command in enumerate(step.commands, start=step.line):
                        if recording is not None:
                            recording.carried_out(command, number)
                        with _blaming(command, number):
                            of_commands.append(tuple(await run_command(stage, command)))
                        answer += of_commands[-1]
                        if recording is not None:
                            recording.answered(of_commands[-1])
                        checkers.look()
                    answers.append(tuple(answer))

    try:
        world.run(story, limit=limit)
    except Exception:
        # A violation may cause other errors; the violation itself is the better one.
        if checkers.violation is not None:
            raise checkers.violation from None
        raise
    return StoryRun(
        recorded=script,
        actual=script.answered(answers),
        answers=tuple(of_commands),
        seed=seed,
        trace=str(world.trace),
        trace_hash=world.trace_hash(),
        virtual_seconds=world.trace.entries[-1].at,
        happenings=world.time.rung,
    )


@contextmanager
def _blaming(command: str, number: int) -> Iterator[None]:
    """Let an error name the command and its line."""
    try:
        yield
    except (UnderstudyError, StorageError, OSError) as error:
        raise ScriptError(f"line {number}, {command}: {error}", line=number) from error
    except Exception as error:
        error.add_note(f"line {number} of the story: {command}")
        raise
