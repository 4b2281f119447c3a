"""`understudy scenario`: failover stories on virtual time, each from one seed.

    understudy scenario list
    understudy scenario run a-leader-killed --seed 7
    understudy scenario run S65 --trace
    understudy scenario run S04 --on kafka      (replication/cli/kafka/)
    understudy scenario run my-story.txt --record
    understudy scenario swarm --seeds 200
    understudy scenario replay --seed 17
    understudy scenario museum KIP-101          (replication/cli/museum.py)

A story whose answers differ from its recording is shown as a diff, and is an error. So is a run of
the swarm that breaks a rule.
"""

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from replication.cli import CommandGroup, completion, museum
from replication.cli.options import (
    AT_LEAST_ONE,
    AT_LEAST_ZERO,
    EXISTING_DIRECTORY,
    NEW_DIRECTORY,
    NEW_FILE,
)
from replication.cli.output import JSON, OUTPUT, show_answer, show_line, tell
from replication.cli.progress import progress
from storage.attributes import define

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scenarios.story.report import Recording
    from scenarios.story.runner import StoryRun
    from scenarios.story.script import Step
    from scenarios.swarm.runner import SwarmRun

REPORT = click.option(
    "--report",
    type=NEW_FILE,
    help="Write a page that shows the run: messages, logs, decisions and their causes.",
)
SHIVIZ = click.option(
    "--shiviz", type=NEW_FILE, help="Write the run's messages in ShiViz's log format."
)


@click.group(name="scenario", cls=CommandGroup)
def command() -> None:
    """Run failover stories on virtual time."""


command.add_command(museum.command)


@command.command(name="list")
@OUTPUT
def list_stories(output: str) -> None:
    """List the stories of understudy by what they are about, and the scenarios that they show.

    Five are marked with an asterisk: start with them.
    """
    from scenarios.story.catalogue import GROUPS, TO_START_WITH, group_of
    from scenarios.story.on_kafka import obstacle_in
    from scenarios.story.script import read_story, stories

    described = []
    groups: dict[str, list[str]] = {title: [] for title in GROUPS.values()}
    for name, path in stories().items():
        story = read_story(path)
        obstacle = obstacle_in(story)
        lines = groups[group_of(story)]
        described.append(
            {
                "name": name,
                "title": story.title,
                "group": group_of(story),
                "to_start_with": name in TO_START_WITH,
                "shows": story.shows,
                **story.fields,
                "cannot_run_on_kafka": None if obstacle is None else obstacle.reason,
            }
        )
        mark = "*" if name in TO_START_WITH else " "
        lines.append(f"{mark} {name}\n    {story.title}\n    {', '.join(story.shows)}")
        if obstacle is not None:
            lines.append(
                f"    not on Apache Kafka: {obstacle.command.split()[0]}: {obstacle.reason}"
            )
    show_answer(output, described, _by_group(groups))


def _by_group(groups: "Mapping[str, Sequence[str]]") -> Iterator[str]:
    yield "* a story to start with"
    for title, lines in groups.items():
        yield f"\n{title}\n"
        yield from lines


@command.command(name="run")
@click.argument("name", shell_complete=completion.stories)
@click.option(
    "--seed", type=int, help="The seed of the run.  [default: the seed in the story, or 1]"
)
@click.option("--record", is_flag=True, help="Write the answers into the file of the story.")
@click.option("--trace", is_flag=True, help="Also print every event, with its virtual time.")
@REPORT
@SHIVIZ
@click.option(
    "--on",
    "where",
    type=click.Choice(["simulator", "kafka"]),
    default="simulator",
    show_default=True,
    help="Where the story runs: in the simulator, or on Apache Kafka's brokers as processes.",
)
@click.option(
    "--kafka-home",
    type=EXISTING_DIRECTORY,
    help="With --on kafka: an unpacked release of Apache Kafka.  [default: KAFKA_HOME]",
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0.1, max=10),
    help="With --on kafka: divide the story's times and the brokers' timeouts by this.  [default: 1]",
)
@OUTPUT
def run(
    name: str,
    seed: int | None,
    *,
    where: str,
    kafka_home: Path | None,
    speed: float | None,
    record: bool,
    trace: bool,
    report: Path | None,
    shiviz: Path | None,
    output: str,
) -> None:
    """Run a story. NAME is its name, the beginning of its name, a scenario of it, or its file."""
    from scenarios.checkers.observed import InvariantViolatedError
    from scenarios.story.report import Recording
    from scenarios.story.runner import run_story
    from scenarios.story.script import find_story, read_story

    path = find_story(name)
    simulated: dict[str, object] = {"--seed": seed, "--record": record, "--trace": trace}
    simulated |= {"--report": report, "--shiviz": shiviz}
    if where == "kafka":
        _refuse(simulated, "needs the simulator")
        _run_on_kafka(path, kafka_home, speed or 1.0, output)
        return
    _refuse({"--kafka-home": kafka_home, "--speed": speed}, "needs --on kafka")
    began = time.monotonic()
    recording = Recording() if report or shiviz else None
    try:
        run = run_story(read_story(path), seed=seed, recording=recording)
    except InvariantViolatedError as error:
        if recording is not None:
            _write_report(recording, path.stem, [], report=report, shiviz=shiviz, wrong=str(error))
        raise
    took = time.monotonic() - began
    if recording is not None:
        title = run.actual.title or path.stem
        _write_report(recording, title, run.actual.passages, report=report, shiviz=shiviz)
    if record:
        path.write_text(str(run.actual), encoding="utf-8")
    show_answer(output, _as_json(path, run, trace=trace), _lines(run, took, trace=trace))
    if not record and run.changes:
        tell(f"understudy: the story has changed:\n{run.changes}")
        sys.exit(1)


def _refuse(options: Mapping[str, object], why: str) -> None:
    """Refuse the first option that was given."""
    for option, value in options.items():
        if value not in (None, False):
            raise click.UsageError(f"{option} {why}")


def _run_on_kafka(path: Path, home: Path | None, speed: float, output: str) -> None:
    from replication.cli.kafka.installation import find_kafka
    from replication.cli.kafka.running import run_on_kafka
    from scenarios.story.on_kafka import refuse_obstacles
    from scenarios.story.script import read_story

    script = read_story(path)
    refuse_obstacles(script)
    release = find_kafka(home)
    run = run_on_kafka(script, command=release.command, speed=speed)
    show_answer(output, run.as_json(path.stem, release.version), run.lines(release.version))
    if not run.agrees:
        sys.exit(1)


def _write_report(
    recording: "Recording",
    title: str,
    passages: "Sequence[tuple[str, Step]]",
    *,
    report: Path | None,
    shiviz: Path | None,
    wrong: str = "",
) -> None:
    from scenarios.story.report import page, scene_of, to_shiviz

    scene = scene_of(recording, title=title, passages=passages, wrong=wrong)
    if report is not None:
        tell("{word}: {text}".format(**scene.verdict))
        report.write_text(page(scene), encoding="utf-8")
    if shiviz is not None:
        shiviz.write_text(to_shiviz(scene), encoding="utf-8")


def _lines(run: "StoryRun", took: float, *, trace: bool) -> Iterator[str]:
    yield str(run.actual)
    if trace:
        yield run.trace + "\n"
    yield _summary(run.seed, run.virtual_seconds, took, run.trace_hash)


def _summary(seed: int, virtual_seconds: float, took: float, trace_hash: str) -> str:
    return f"seed {seed}, {virtual_seconds:.1f} virtual seconds in {took:.1f} s, trace {trace_hash}"


def _as_json(path: Path, run: "StoryRun", *, trace: bool) -> dict[str, object]:
    answer: dict[str, object] = {
        "name": path.stem,
        "seed": run.seed,
        "changed": bool(run.changes),
        "virtual_seconds": run.virtual_seconds,
        "trace_hash": run.trace_hash,
        "steps": [{"commands": step.commands, "answer": step.answer} for step in run.actual.steps],
    }
    if trace:
        answer["trace"] = run.trace.splitlines()
    return answer


@command.command(name="swarm")
@click.option(
    "--seeds", default=100, show_default=True, type=AT_LEAST_ONE, help="The number of runs."
)
@click.option("--from", "first", default=1, show_default=True, help="The first seed.")
@click.option(
    "--jobs", default=os.cpu_count() or 1, type=AT_LEAST_ONE, help="The number of processes."
)
@click.option(
    "--save",
    type=NEW_DIRECTORY,
    help="Write the shortest story of each failure into this directory.",
)
@click.option(
    "--attempts",
    default=300,
    show_default=True,
    type=AT_LEAST_ZERO,
    help="How often a failing run may be repeated while it is made shorter.",
)
@click.option(
    "--reach-all",
    is_flag=True,
    help="Fail unless each marker was reached by some run; until then, half of the seeds are chosen"
    " by their plans.",
)
@OUTPUT
def swarm(
    seeds: int,
    first: int,
    jobs: int,
    save: Path | None,
    attempts: int,
    *,
    reach_all: bool,
    output: str,
) -> None:
    """Run the real cluster under random faults, once for each seed.

    The command also shows how many runs reached each named situation (marker). The first run
    that breaks a rule is made as short as possible and shown as a story.
    """
    from scenarios.swarm.guide import Guide
    from scenarios.swarm.markers import MARKERS, SELDOM
    from scenarios.swarm.runner import run_batches

    guide = Guide(first, seeds, set(MARKERS) if reach_all else set())
    tally = Tally(first=first, seeds=seeds, reached=dict.fromkeys(MARKERS + SELDOM, 0))
    with progress("seeds") as bar:
        for done, run in enumerate(run_batches(guide.batches(), jobs=jobs), start=1):
            guide.heard(run.reached)
            is_new = tally.add(run)
            if run.wrong and output != JSON:
                show_line(f"seed {run.seed}: {run.wrong}\n    {run.replay_command}")
            if is_new:
                _note_shortest(tally, run, save, attempts, output)
            bar.update(done, seeds)
    markers = [f"{runs:>6}  {marker}" for marker, runs in tally.reached.items()]
    show_answer(output, tally.to_dict(), [str(tally), *markers])
    missed = reach_all and not all(map(tally.reached.get, MARKERS))
    sys.exit(1 if tally.failures or missed else 0)


@define(eq=False, kw_only=True)
class Tally:
    """The results of the runs of a swarm."""

    first: int
    seeds: int
    reached: dict[str, int]
    """The number of runs that reached each situation."""
    failures: list[dict[str, object]] = attrs.field(factory=list)
    commands: Counter[str] = attrs.field(factory=Counter)
    """How often each command of stories was carried out: `kill`, `cut`, `produce`, ..."""
    elections: int = 0
    virtual_seconds: float = 0.0
    _began: float = attrs.field(init=False, factory=time.monotonic)
    _broken: set[str] = attrs.field(init=False, factory=set)

    def add(self, run: "SwarmRun") -> bool:
        """Count a run; return whether it is the first that breaks its rule."""
        self.virtual_seconds += run.virtual_seconds
        self.elections += run.elections
        self.commands.update(line.split()[0] for line in run.lines)
        for marker in run.reached:
            self.reached[marker] += 1
        if not run.wrong:
            return False
        self.failures.append({"seed": run.seed, "wrong": run.wrong, "replay": run.replay_command})
        is_new = run.rule not in self._broken
        self._broken.add(run.rule)
        return is_new

    def __str__(self) -> str:
        return (
            f"{self.seeds} seeds from {self.first}, {len(self.failures)} failed:"
            f" {self.virtual_seconds:.0f} virtual seconds and {self.elections} elections"
            f" in {time.monotonic() - self._began:.0f} s"
        )

    def to_dict(self) -> dict[str, object]:
        return {
            "first": self.first,
            "seeds": self.seeds,
            "failures": self.failures,
            "virtual_seconds": self.virtual_seconds,
            "elections": self.elections,
            "commands": dict(self.commands.most_common()),
            "reached": self.reached,
        }


def _note_shortest(
    tally: Tally, run: "SwarmRun", save: Path | None, attempts: int, output: str
) -> None:
    """Make a failing run as short as possible; show and save it."""
    from scenarios.swarm.shrinking import as_script, shrink

    script = as_script(shrink(run, attempts=attempts))
    tally.failures[-1]["shortest"] = str(script).splitlines()
    if output != JSON:
        show_line("".join(f"    {line}\n" if line else "\n" for line in str(script).splitlines()))
    if save is not None:
        save.mkdir(parents=True, exist_ok=True)
        path = save / f"seed-{run.seed}.txt"
        path.write_text(str(script), encoding="utf-8")
        if output != JSON:
            show_line(f"    understudy scenario run {path}")


@command.command(name="replay")
@click.option("--seed", required=True, type=int, help="The seed of the run.")
@click.option("--trace", is_flag=True, help="Also print every event, with its virtual time.")
@REPORT
@SHIVIZ
@OUTPUT
def replay(
    seed: int, *, trace: bool, report: Path | None, shiviz: Path | None, output: str
) -> None:
    """Repeat a run of the swarm, and show its faults and its result."""
    from scenarios.story.report import Recording
    from scenarios.story.script import Step
    from scenarios.swarm.runner import run_seed

    began = time.monotonic()
    recording = Recording() if report or shiviz else None
    run = run_seed(seed, recording)
    took = time.monotonic() - began
    if recording is not None:
        passages = [("", Step(run.lines, run.answer))]
        wrong = str(run.wrong or "")
        title = f"Seed {seed}"
        _write_report(recording, title, passages, report=report, shiviz=shiviz, wrong=wrong)
    show_answer(output, _run_as_json(run, trace=trace), _lines_of_run(run, took, trace=trace))
    if run.wrong:
        tell(f"{run.traceback}understudy: {run.wrong}")
        sys.exit(1)


def _lines_of_run(run: "SwarmRun", took: float, *, trace: bool) -> Iterator[str]:
    from scenarios.story.script import DIVIDER

    yield "\n".join([*run.lines, DIVIDER, *run.answer, ""])
    if trace:
        yield run.trace + "\n"
    if run.may_have_lost:
        yield "after an unclean election or a power cut of the last leader, committed records may be lost"
    yield _summary(run.seed, run.virtual_seconds, took, run.trace_hash)


def _run_as_json(run: "SwarmRun", *, trace: bool) -> dict[str, object]:
    answer: dict[str, object] = {
        "seed": run.seed,
        "commands": run.lines,
        "answer": run.answer,
        "wrong": run.wrong or None,
        "may_have_lost": run.may_have_lost,
        "virtual_seconds": run.virtual_seconds,
        "trace_hash": run.trace_hash,
    }
    return answer | ({"trace": run.trace.splitlines()} if trace else {})
