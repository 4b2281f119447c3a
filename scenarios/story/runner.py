"""Telling a story: a world from its seed, its commands one after the other, their answers.

    telling = tell(read_story(path), seed=7)
    telling.changes         a diff against what was recorded; empty where nothing has changed
    telling.trace_hash      equal for equal seeds, in any process

The invariants of `scenarios.checkers` are watched all along; one that is violated
ends the story with an error, whatever its answers say.
"""

from contextlib import AsyncExitStack

import attrs

from replication.errors import UnderstudyError
from replication.net.raising import raising_only_one
from scenarios.checkers import Checkers
from scenarios.story.commands.table import carry_out
from scenarios.story.report.recording import Recording
from scenarios.story.script import Script, ScriptError, StoryChangedError, difference
from scenarios.story.stage import Stage
from scenarios.world.world import World
from storage.errors import StorageError


@attrs.frozen(kw_only=True)
class Telling:
    """How a story came out."""

    recorded: Script
    told: Script
    seed: int
    trace: str
    trace_hash: str
    virtual_seconds: float
    happenings: int
    """Bytes that arrived, timers that fell due."""

    @property
    def changes(self) -> str:
        """What was recorded and what was told, as a diff; empty where they are the same."""
        return difference(self.recorded, self.told)

    def check(self) -> None:
        """StoryChangedError, with the changes, where there are any."""
        if self.changes:
            raise StoryChangedError(f"the story has changed (seed {self.seed}):\n{self.changes}")


def tell(script: Script, *, seed: int | None = None, recording: Recording | None = None) -> Telling:
    """Tell it in a world grown from `seed`, else from its own; nothing is compared yet."""
    seed = script.seed if seed is None else seed
    world = World(seed)
    answers: list[tuple[str, ...]] = []
    checkers = Checkers()

    async def story(world: World) -> None:
        with raising_only_one():
            async with AsyncExitStack() as stack:
                stage = Stage(world=world, stack=stack, checkers=checkers, recording=recording)
                for step in script.steps:
                    answer: list[str] = []
                    for number, command in enumerate(step.commands, start=step.line):
                        if recording is not None:
                            recording.carried_out(command)
                        answer += await _carry_out(stage, command, number)
                        checkers.look()
                    answers.append(tuple(answer))

    try:
        world.run(story)
    except Exception:
        # Whoever stumbles over a violation may say something else about it.
        if checkers.violation is not None:
            raise checkers.violation from None
        raise
    return Telling(
        recorded=script,
        told=script.answered(answers),
        seed=seed,
        trace=str(world.trace),
        trace_hash=world.trace_hash(),
        virtual_seconds=world.trace.entries[-1].at,
        happenings=world.time.rung,
    )


async def _carry_out(stage: Stage, command: str, number: int) -> list[str]:
    try:
        return await carry_out(stage, command)
    except (UnderstudyError, StorageError, OSError) as error:
        raise ScriptError(f"line {number}, {command}: {error}") from error
    except Exception as error:
        error.add_note(f"line {number} of the story: {command}")
        raise
