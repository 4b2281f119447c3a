"""The shortest story that still goes wrong in the same way.

    cluster, topic     kept, with fewer brokers, partitions and settings where that is enough
    what befalls       left out, in ever smaller pieces (delta debugging, Zeller 2002)
    recover, wait,
    answers, judge     kept: without them anything goes wrong

Each attempt is played from the seed of the run, so that what is left out shifts no stream of
chance. It counts where it breaks the same rule and is shorter: in lines, then in letters.
What an attempt can no longer ask for, to start a node that is up say, goes with the rest.
"""

import re
from collections.abc import Iterator, Sequence

import attrs

from scenarios.script import Comment, Script, Step
from scenarios.swarm import SwarmRun, play

KEPT = ("cluster", "topic", "recover", "wait", "answers", "judge")

_NODE = re.compile(r"b\d+")
_SETTING = re.compile(r" [a-z][a-z.]*=\S+")


def shrink(run: SwarmRun, *, attempts: int = 300) -> SwarmRun:
    """The shortest run found within as many attempts."""
    assert run.wrong, "a run in which nothing went wrong is not made shorter"
    return _Shrinking(run, attempts).shortest()


def as_script(run: SwarmRun) -> Script:
    """Its story, with the seed in its head."""
    head = (f"# {run.wrong}", "#", f"# seed: {run.seed}")
    return Script((Comment(head), Step(run.lines)))


def may_leave_out(line: str) -> bool:
    return line.split(maxsplit=1)[0] not in KEPT


@attrs.define
class _Shrinking:
    _best: SwarmRun
    _attempts: int
    _tried: set[tuple[str, ...]] = attrs.field(factory=set, init=False)

    def shortest(self) -> SwarmRun:
        before: SwarmRun | None = None
        while self._best is not before and self._attempts > 0:
            before = self._best
            self._leave_out_lines()
            self._simplify()
        return self._best

    def _leave_out_lines(self) -> None:
        size = len(self._best.lines)
        while size := size // 2:
            end = len(self._best.lines)
            while end > 0:  # from behind: the ways to fail early are left for later
                lines = self._best.lines
                piece = lines[max(0, end - size) : end]
                kept = tuple(line for line in piece if not may_leave_out(line))
                self._is_shorter((*lines[: max(0, end - size)], *kept, *lines[end:]))
                end -= size

    def _simplify(self) -> None:
        """Take the first that helps, and look again at what is simpler than that."""
        while any(self._is_shorter(lines) for lines in simpler(self._best.lines)):
            pass

    def _is_shorter(self, lines: tuple[str, ...]) -> bool:
        if self._attempts <= 0 or lines in self._tried or _size(lines) >= _size(self._best.lines):
            return False
        self._tried.add(lines)
        self._attempts -= 1
        seed = self._best.seed
        run = play(lambda _: lines, seed=seed, may_leave_out=may_leave_out)
        if run.rule != self._best.rule:
            return False
        self._best = run
        return True


def _size(lines: Sequence[str]) -> tuple[int, int]:
    return len(lines), sum(map(len, lines))


def simpler(lines: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The same story with one broker, partition, setting, value or victim less."""
    yield from _with_a_broker_less(lines)
    yield from _with_a_partition_less(lines)
    for number, line in enumerate(lines):
        for shorter in _shorter(line):
            yield (*lines[:number], shorter, *lines[number + 1 :])


def _shorter(line: str) -> Iterator[str]:
    for setting in _SETTING.finditer(line):
        yield line[: setting.start()] + line[setting.end() :]
    verb, *words = line.split()
    # A value, or one of several victims; what is before them says of what.
    first = 1 if verb in ("cut", "mute") else 0
    if verb in ("produce", "cut", "mute"):
        for number in range(first, len(words)):
            if verb != "produce" or words[number].startswith("v"):
                yield " ".join([verb, *words[:number], *words[number + 1 :]])


def _with_a_broker_less(lines: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Without the last one, wherever it is named."""
    found = re.search(r" brokers=(\d+)", lines[0])
    if found and int(found[1]) > 1:
        last = f"b{found[1]}"
        fewer = lines[0].replace(found[0], f" brokers={int(found[1]) - 1}")
        others = (_without(line, last) for line in lines[1:])
        yield (fewer, *(line for line in others if line))


def _without(line: str, broker: str) -> str:
    """Nothing, where nobody is left whom it befalls."""
    if broker not in _NODE.findall(line):
        return line
    verb, *words = line.split()
    left = [_without_replica(word, broker) for word in words if word != broker]
    return " ".join([verb, *left]) if _NODE.search(" ".join(left)) else ""


def _without_replica(word: str, broker: str) -> str:
    key, separator, listed = word.rpartition("=")
    lists = [
        ",".join(each for each in replicas.split(",") if each != broker)
        for replicas in listed.split("/")
    ]
    return key + separator + "/".join(filter(None, lists))


def _with_a_partition_less(lines: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Without the last one, and all that is done with it."""
    if len(lines) < 2 or "/" not in lines[1]:
        return
    fewer, _, _ = lines[1].rpartition("/")
    last = f"t-{lines[1].count('/')}"
    yield (lines[0], fewer, *(line for line in lines[2:] if last not in line.split()))
