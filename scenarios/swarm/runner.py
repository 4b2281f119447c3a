"""Random runs of the real cluster, each grown from its seed, and what must hold in all.

    safety      from the first line to the last, the invariants of `scenarios.checkers`
    liveness    when everything is whole again, all replicas are in sync, accept a record, and
                are equal, within 60 virtual seconds each
    promises    in the end, what `scenarios.story.commands.judge` checks

The lines of a run are a story. Played again from the same seed they are the same run, and
without some of them another one that may fail in the same way (`scenarios.swarm.shrinking`).
"""

import multiprocessing
import re
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack
from typing import TypeAlias

import attrs

from replication.events import LeaderElected
from replication.net.raising import raising_only_one
from scenarios.checkers import Checkers
from scenarios.story.commands.table import run_command
from scenarios.story.report.recording import Recording
from scenarios.story.script import ScriptError
from scenarios.story.stage import Stage
from scenarios.swarm.generator import drawn_run
from scenarios.swarm.markers import markers_of
from scenarios.world.endless import ENDLESS, PATIENCE_SECONDS, EndlessRunError, limit_cpu_time
from scenarios.world.world import World

Plot: TypeAlias = Callable[[Stage], Iterable[str]]
"""The lines of a run, each of which may depend on what came of those before it."""

_NAMES_AND_NUMBERS = re.compile(r"\b(b|\w+-)?\d+\b(,b\d+)*")


@attrs.frozen(kw_only=True)
class SwarmRun:
    """The outcome of a run. Its lines are a story, which is this run when it is played from `seed`."""

    seed: int
    lines: tuple[str, ...]
    """The lines that were carried out; the last one may be the one that failed."""
    answer: tuple[str, ...]
    """The answers to all lines."""
    wrong: str
    """The failure in one line; empty where nothing failed."""
    rule: str
    """The rule that it broke, in words that name neither nodes nor numbers."""
    traceback: str
    trace: str
    trace_hash: str
    virtual_seconds: float
    happenings: int
    """The number of bytes that arrived and timers that fell due."""
    elections: int
    failovers: int
    """Elections other than the first of each partition."""
    may_have_lost: bool
    reached: Counter[str]
    """How often each marker of `scenarios.swarm.markers` was reached."""

    @property
    def is_endless(self) -> bool:
        """Whether the run was given up."""
        return self.rule.endswith(ENDLESS)

    @property
    def replay_command(self) -> str:
        """The command that plays it again."""
        return f"understudy scenario replay --seed {self.seed}"


def run_seeds(seeds: Iterable[int], *, jobs: int) -> Iterator[SwarmRun]:
    """Yield the runs of these seeds, in that order, from `jobs` processes."""
    return run_batches([seeds], jobs=jobs)


def run_batches(batches: Iterable[Iterable[int]], *, jobs: int) -> Iterator[SwarmRun]:
    """Yield the runs of each batch of seeds, in that order, from `jobs` processes.

    A batch is asked for when all runs of the one before it have been taken.

    Ctrl-C reaches all processes of a terminal, and these ignore it: the runs that have begun end,
    and no other begins.
    """
    if jobs == 1:
        for batch in batches:
            yield from map(run_seed, batch)
        return
    executor = ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    )
    try:
        for batch in batches:
            # A process inherits what is blocked: a Ctrl-C while it starts waits for the initializer.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                runs = executor.map(run_seed, batch)
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            yield from runs
    finally:
        executor.shutdown(cancel_futures=True)


def run_seed(seed: int, recording: Recording | None = None) -> SwarmRun:
    """Return the run of that seed; an error in it ends it, and is part of it."""
    return play(drawn_run, seed=seed, recording=recording)


def play(
    plot: Plot,
    *,
    seed: int,
    recording: Recording | None = None,
    may_leave_out: Callable[[str], bool] = lambda _: False,
    patience: float = PATIENCE_SECONDS,
) -> SwarmRun:
    """Return the run of these lines.

    A line that cannot be carried out, as on a node that is down, is left out where
    `may_leave_out` allows that. A run that does not end is given up (`World.run`), at the latest
    after `patience` seconds of the processor's time.
    """
    world = World(seed)
    lines: list[str] = []
    answer: list[str] = []
    checkers = Checkers()

    async def story(world: World) -> None:
        with raising_only_one():
            async with AsyncExitStack() as stack:
                stage = Stage(world=world, stack=stack, checkers=checkers, recording=recording)
                for line in plot(stage):
                    lines.append(line)
                    if recording is not None:
                        recording.carried_out(line)
                    try:
                        answer.extend(await run_command(stage, line))
                    except ScriptError:
                        if not may_leave_out(line):
                            raise
                        lines.pop()
                    checkers.look()

    failure: Exception | None = None
    try:
        with limit_cpu_time(patience):
            world.run(story)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        failure = error
    if isinstance(failure, EndlessRunError) and lines:
        failure.add_note(f"while it did: {lines[-1]}")
    # After a violation something else may fail too.
    failure = checkers.violation or failure
    entries = world.trace.entries
    elections = [each.event for each in entries if isinstance(each.event, LeaderElected)]
    return SwarmRun(
        seed=seed,
        lines=tuple(lines),
        answer=tuple(answer),
        wrong=_in_a_line(failure),
        rule=rule_of(failure),
        traceback="".join(traceback.format_exception(failure)) if failure else "",
        trace=str(world.trace),
        trace_hash=world.trace_hash(),
        virtual_seconds=entries[-1].at if entries else 0.0,
        happenings=world.time.rung,
        elections=len(elections),
        failovers=sum(each.cause != "created" for each in elections),
        may_have_lost=checkers.any_may_have_lost,
        reached=markers_of(entries),
    )


def _in_a_line(failure: Exception | None) -> str:
    if failure is None:
        return ""
    notes = [f" ({note})" for note in getattr(failure, "__notes__", [])]
    return f"{type(failure).__name__}: {' '.join(str(failure).split())}{''.join(notes)}"


def rule_of(failure: Exception | None) -> str:
    """Return the rule that a failure breaks; failures of one rule are alike."""
    if failure is None:
        return ""
    rule = getattr(failure, "rule", None)
    if rule is None:
        rule = _NAMES_AND_NUMBERS.sub("N", " ".join(str(failure).split()))
    return f"{type(failure).__name__}: {rule}"
