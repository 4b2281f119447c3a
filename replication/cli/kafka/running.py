"""The run of a story on Apache Kafka, and its comparison with the simulator's run.

    the simulator   each command's answer, which must be the story's own
    Apache Kafka    the same commands, in order, on processes; the first that fails ends the run

Rule: with `speed` the clock of the story and of its clients is so much faster than this machine's, and
every timeout of a broker or a topic that is set, or that `cluster.TIMES` names, is divided by it.

Small segments have a key of their own, of topics alone: Kafka's `segment.bytes` is a mebibyte or more.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import trio

from replication.cli.kafka.cluster import scaled
from replication.cli.kafka.processes import JavaCommand
from replication.cli.kafka.stage import KafkaStage
from replication.errors import UnderstudyError
from replication.net.raising import raising_only_one
from scenarios.story.arguments import split
from scenarios.story.on_kafka import ComparedAnswer, numbered, refuse_obstacles, run_command
from scenarios.story.runner import run_story
from scenarios.story.script import Script
from storage.attributes import define, frozen
from storage.errors import StorageError

SETTING_COMMANDS = ("alter", "topic")


@frozen(kw_only=True)
class KafkaRun:
    """The result of a story on Apache Kafka."""

    comparisons: Sequence[ComparedAnswer]
    failure: str | None
    """The command that failed, its line, and why; None if all were carried out."""

    @property
    def differences(self) -> list[ComparedAnswer]:
        return [each for each in self.comparisons if not each.agrees]

    @property
    def agrees(self) -> bool:
        return self.failure is None and not self.differences

    def lines(self, version: str) -> Iterator[str]:
        """Yield the differences, and a line that sums up the run."""
        for each in self.differences:
            yield f"line {each.line}, {each.command}"
            yield from (f"    story         {line}" for line in each.expected)
            yield from (f"    Apache Kafka  {line}" for line in each.actual or ())
        if self.failure is not None:
            yield f"failed: {self.failure}"
        passed_over = sum(each.actual is None for each in self.comparisons)
        verdict = "agrees" if self.agrees else "differs"
        yield (
            f"Apache Kafka {version} {verdict}: {len(self.comparisons) - passed_over} commands"
            f" compared, {len(self.differences)} differ; {passed_over} passed over"
        )

    def as_json(self, name: str, version: str) -> dict[str, object]:
        """Return the result for `--output json`."""
        return {
            "name": name,
            "kafka_version": version,
            "agrees": self.agrees,
            "failure": self.failure,
            "commands": [
                {
                    "line": each.line,
                    "command": each.command,
                    "agrees": each.agrees,
                    "expected": each.expected,
                    "actual": each.actual,
                }
                for each in self.comparisons
            ],
        }


@frozen
class FastClock(trio.abc.Clock):
    """The clock of a run of trio that is `speed` times as fast as this machine's."""

    speed: float

    def start_clock(self) -> None:
        """Do nothing: it always runs."""

    def current_time(self) -> float:
        return time.perf_counter() * self.speed

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return (deadline - self.current_time()) / self.speed


def run_on_kafka(script: Script, *, command: JavaCommand, speed: float = 1.0) -> KafkaRun:
    """Run a story on Apache Kafka; ScriptError if it cannot run there, or no longer runs in the simulator."""
    refuse_obstacles(script)
    simulated = run_story(script)
    simulated.check()
    with tempfile.TemporaryDirectory(prefix="understudy-kafka-") as data_dir:
        return trio.run(
            _carry_out, script, simulated.answers, command, Path(data_dir), clock=FastClock(speed)
        )


async def _carry_out(
    script: Script,
    expected: Sequence[tuple[str, ...]],
    command: JavaCommand,
    data_dir: Path,
) -> KafkaRun:
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, FastClock), "the run has this clock"
    compared: list[ComparedAnswer] = []
    words = KafkaWords(clock.speed)
    with raising_only_one():
        async with AsyncExitStack() as stack:
            stage = KafkaStage(command=command, data_dir=data_dir, speed=clock.speed, stack=stack)
            for (number, line), answer in zip(numbered(script), expected, strict=True):
                try:
                    found = await run_command(stage, words.of(line))
                except (UnderstudyError, StorageError, OSError) as error:
                    return KafkaRun(comparisons=compared, failure=f"line {number}, {line}: {error}")
                actual = None if found is None else tuple(found)
                compared.append(ComparedAnswer(number, line, answer, actual))
    return KafkaRun(comparisons=compared, failure=None)


@define
class KafkaWords:
    """The commands of a story as Apache Kafka understands their settings."""

    speed: float
    _segment_bytes: str | None = None
    """`log.segment.bytes` of the cluster."""

    def of(self, line: str) -> str:
        """Return a command with its times divided by the speed, and with Kafka's key for segments."""
        verb, words, options = split(line)
        if verb == "cluster":
            self._segment_bytes = options.pop("log.segment.bytes", None)
        elif verb in SETTING_COMMANDS:
            options = scaled(options, self.speed)
            size = options.pop("segment.bytes", self._segment_bytes if verb == "topic" else None)
            options |= {} if size is None else {"internal.segment.bytes": size}
        else:
            return line
        return " ".join([verb, *words, *(f"{key}={value}" for key, value in options.items())])
