"""The commands of a story on Apache Kafka: how they are carried out, and why some cannot be.

    understudy scenario run NAME --on kafka

    carried out     by `COMMANDS`: the same functions as in the simulator, on another stage
    passed over     by `UNSEEN`: what they answer, or check, no client can see
    cannot be       by `IMPOSSIBLE`, or by what `why_not` finds in their arguments

Rule 1: a script is refused before anything starts, with the place and the reason.

Rule 2: an answer is compared as far as clients can see it. Members of an ISR have no order; of `show`
the line with the leader counts; and of a request without an answer only that there was none.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import attrs

from scenarios.story.arguments import (
    Options,
    Words,
    exactly,
    nodes,
    partition_of,
    refuse_any,
    seconds_of,
    split,
)
from scenarios.story.client_stage import ClientStage
from scenarios.story.commands import admin, consume, faults, judge, produce, table
from scenarios.story.script import Script, ScriptError

Command: TypeAlias = Callable[[ClientStage, Words, Options], Awaitable[list[str]]]

_DISK = "a disk of Apache Kafka's nodes cannot be exchanged here"
_FAULTY_DISK = "a disk that fails or lies on request is the simulator's"
_CLOCK = "its processes have the clock of this machine, which no story sets"
_PROCESSOR = "its processes have the processors of this machine"
_PROGRAM = "our clients run as programs on machines of the simulator"
_FILE = "its processes keep the properties that they began with"
_PROBE = "it judges the answers of our brokers"
_QUORUM = "it has one controller here"

IMPOSSIBLE: Mapping[str, str] = {
    "power-cut": "a process can be killed, and its kernel keeps what it wrote: no power is cut",
    **dict.fromkeys(("wipe", "image", "restore", "swap"), _DISK),
    **dict.fromkeys(("lie", "fail", "misdirect", "rot", "spoil", "lose", "stale"), _FAULTY_DISK),
    **dict.fromkeys(("jump", "drift", "speed"), _CLOCK),
    **dict.fromkeys(
        ("producer", "send", "transact", "reader", "member", "copier", "seek", "given"), _PROGRAM
    ),
    **dict.fromkeys(("errors", "leave", "drain", "judge-clients"), _PROGRAM),
    **dict.fromkeys(("judge-groups", "judge-rest"), "it looks into the brokers of the simulator"),
    **dict.fromkeys(("probe-session", "probe-producer", "probe-quiet-session"), _PROBE),
    **dict.fromkeys(("probe-transactions", "probe-group", "probe-throttle"), _PROBE),
    **dict.fromkeys(("probe-expiry", "probe-join", "probe-silent-member"), _PROBE),
    "configure": _FILE,
    **dict.fromkeys(("judge-controllers", "quorum", "add-voter", "remove-voter"), _QUORUM),
    "finalize": "the level of a feature stays where a story on Kafka's brokers begins",
    "remake": "it asks each broker of the simulator which topic it knows",
}

UNSEEN: Mapping[str, str] = {
    "events": "events are those of our own brokers",
    "fetching": "where a follower fetches is inside a broker",
    "judge": "it looks into the brokers of the simulator",
}


@attrs.frozen
class Obstacle:
    """A command that Apache Kafka cannot carry out, its place, and why."""

    line: int
    command: str
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}, {self.command}: Apache Kafka cannot do that: {self.reason}"


def obstacle_in(script: Script) -> Obstacle | None:
    """Return the first command of a script that Apache Kafka cannot carry out; None if there is none."""
    for number, command in numbered(script):
        if reason := why_not(command):
            return Obstacle(number, command, reason)
    return None


def refuse_obstacles(script: Script) -> None:
    """Raise ScriptError for the first command that Apache Kafka cannot carry out."""
    if obstacle := obstacle_in(script):
        raise ScriptError(str(obstacle))


def numbered(script: Script) -> Iterator[tuple[int, str]]:
    """Yield the commands of a script, each with its line."""
    for step in script.steps:
        yield from enumerate(step.commands, start=step.line)


def why_not(line: str) -> str | None:
    """Return why Apache Kafka cannot carry out a command; None if it can."""
    verb, words, options = split(line)
    match verb:
        case "cluster":
            return _why_no_cluster(options)
        case "slow" if "disk" in options:
            return _FAULTY_DISK
        case "slow" if "cpu" in options:
            return _PROCESSOR
        case "wait" if words == ["controllers"]:
            return _QUORUM
        case _:
            return IMPOSSIBLE.get(verb)


def _why_no_cluster(options: Options) -> str | None:
    if options.get("controllers", "1") != "1" or options.get("combined", "0") != "0":
        return _QUORUM
    own = [key for key in options if "understudy." in key]
    return f"{own[0]} is a key of our brokers" if own else None


# How they are carried out.


async def run_command(stage: ClientStage, line: str) -> list[str] | None:
    """Run one command; return its answer, None if it is passed over."""
    verb, words, options = split(line)
    if verb in UNSEEN:
        return None
    table.refuse_unknown_command(line, COMMANDS)
    return await COMMANDS[verb](stage, words, options)


async def show(stage: ClientStage, words: Words, options: Options) -> list[str]:
    (where,) = exactly(words, 1, options)
    return [table.led_line(stage, partition_of(where))]


async def slow(stage: ClientStage, words: Words, options: Options) -> list[str]:
    seconds = seconds_of(options.pop("network"))
    for name in nodes(stage, words, options):
        faults.slow_network(stage, name, seconds)
    return []


async def recover(stage: ClientStage, words: Words, options: Options) -> list[str]:
    refuse_any(words, options)
    stage.network.heal_all()
    for name in stage.cluster.names:
        if stage.cluster.is_running(name):
            stage.resume(name)
            faults.slow_network(stage, name, 0)
    await stage.until_none_starts_or_stops()
    for name in stage.cluster.names:
        if not stage.cluster.is_running(name):
            await stage.cluster.start(name)
    return []


COMMANDS: Mapping[str, Command] = {
    command.__name__.replace("_", "-"): command
    for command in (
        *(table.cluster, table.topic, table.run, show, slow, recover),
        *(produce.produce, produce.again, produce.answers, produce.load, produce.loaded),
        *(consume.read, consume.poll, consume.fetch, consume.epoch_end, consume.sessions),
        *(consume.commit, consume.commits, consume.committed),
        *(admin.alter, admin.delete_topic, admin.delete_records, admin.grow),
        *(admin.reassign, admin.elect, admin.offsets),
        *(faults.kill, faults.stop, faults.start, faults.pause, faults.resume),
        *(faults.cut, faults.mute, faults.unmute, faults.hold, faults.heal, faults.tear),
        faults.late,
        *(judge.ledger, judge.verify),
    )
} | {"wait": table.wait_for}


# How answers are compared.


@attrs.frozen
class ComparedAnswer:
    """One command's answer in the story, and on Apache Kafka; None where it was passed over."""

    line: int
    command: str
    expected: tuple[str, ...]
    actual: tuple[str, ...] | None

    @property
    def agrees(self) -> bool:
        return self.actual is None or visible(self.command, self.expected) == visible(
            self.command, self.actual
        )


def visible(command: str, answer: Sequence[str]) -> list[str]:
    """Return what clients can see of an answer, in one form (rule 2)."""
    lines = answer[:1] if command.split(maxsplit=1)[0] == "show" else answer
    return [_in_one_form(line) for line in lines]


def _in_one_form(line: str) -> str:
    line = re.sub(r"no answer: .*", "no answer", line)
    return re.sub(
        r"(?<=isr )b\d+(?: b\d+)*", lambda found: " ".join(sorted(found[0].split())), line
    )
