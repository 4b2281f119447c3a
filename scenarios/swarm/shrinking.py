"""The shortest story that still goes wrong in the same way.

    cluster, topic     kept, with fewer brokers, partitions, replicas and settings where that
                       is enough
    faults             left out, in ever smaller pieces (delta debugging, Zeller 2002)
    recover, wait,
    answers, judge     kept: without them every story fails

Each attempt is played from the seed of the run, so that a line that is left out shifts no stream of
chance. It counts if it breaks the same rule and is shorter: in lines, in letters, in waits.
Lines that an attempt cannot carry out any more, such as to start a node that is up, are left out.
"""

import re
from collections.abc import Iterator, Sequence

import attrs

from scenarios.story.script import Comment, Script, Step
from scenarios.swarm.runner import SwarmRun, play

KEPT = (
    "cluster",
    "topic",
    "recover",
    "wait",
    "answers",
    "judge",
    "drain",
    "judge-clients",
)

WAITS = ("1ms", "20ms", "100ms", "500ms", "1s", "2s", "5s")

_NODE = re.compile(r"\b(b)(\d+)\b")
_PARTITION = re.compile(r"\b(t-)(\d+)\b")
_SETTING = re.compile(r" ([a-z][a-z0-9.]*)=(\S+)")
_REPLICAS = re.compile(r" replicas=(\S+)")
_DURATION = re.compile(r"\b(\d+)(ms|s)\b")


def shrink(run: SwarmRun, *, attempts: int = 300) -> SwarmRun:
    """Return the shortest run that is found within so many attempts.

    A run that was given up stays as it is, and a shorter one that has to be given up is the last
    attempt: others would take as long.
    """
    assert run.wrong, "only a run that failed is made shorter"
    return _Shrinking(run, attempts).shortest()


def as_script(run: SwarmRun) -> Script:
    """Return its story, with the seed in its head."""
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
        while self._best is not before and self._attempts > 0 and not self._best.is_endless:
            before = self._best
            self._leave_out_lines()
            self._simplify()
        return self._best

    def _leave_out_lines(self) -> None:
        size = len(self._best.lines)
        while size := size // 2:
            end = len(self._best.lines)
            while end > 0:  # from the end: lines that fail early come last
                lines = self._best.lines
                piece = lines[max(0, end - size) : end]
                kept = tuple(line for line in piece if not may_leave_out(line))
                self._is_shorter((*lines[: max(0, end - size)], *kept, *lines[end:]))
                end -= size

    def _simplify(self) -> None:
        """Use the first simpler story that fails alike, and simplify that one again."""
        while any(self._is_shorter(lines) for lines in simpler(self._best.lines)):
            pass

    def _is_shorter(self, lines: tuple[str, ...]) -> bool:
        if self._attempts <= 0 or lines in self._tried or _size(lines) >= _size(self._best.lines):
            return False
        self._tried.add(lines)
        self._attempts -= 1
        seed = self._best.seed
        run = play(lambda _: lines, seed=seed, may_leave_out=may_leave_out)
        if run.is_endless:
            self._attempts = 0
        if run.rule != self._best.rule:
            return False
        self._best = run
        return True


def _size(lines: Sequence[str]) -> tuple[int, int, int]:
    """Return the number of lines, then of letters, then of milliseconds that it waits."""
    letters = sum(len(_DURATION.sub("", line)) for line in lines)
    waited = sum(_milliseconds(found) for line in lines for found in _DURATION.finditer(line))
    return len(lines), letters, waited


def _milliseconds(duration: re.Match[str]) -> int:
    return int(duration[1]) * (1 if duration[2] == "ms" else 1000)


def simpler(lines: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the same story with one broker, partition, replica, setting, value or node less, or
    with a shorter wait.
    """
    yield from _without_a_broker(lines)
    yield from _without_a_partition(lines)
    for number, line in enumerate(lines):
        for shorter in _shorter(line):
            yield (*lines[:number], shorter, *lines[number + 1 :])


def _shorter(line: str) -> Iterator[str]:
    verb, *words = line.split()
    for setting in _SETTING.finditer(line):
        if setting[1] not in ("brokers", "replicas"):
            yield line[: setting.start()] + line[setting.end() :]
        elif setting[1] == "replicas":
            for fewer in _without_a_replica(setting[2]):
                yield f"{line[: setting.start()]} replicas={fewer}{line[setting.end() :]}"
    # One of several values or nodes, which follow the words that this verb needs.
    first = {"produce": 1, "cut": 1, "mute": 1, "heal": 1, "send": 2, "transact": 2}.get(verb)
    if first is not None:
        for number in range(first, len(words)):
            if words[number] != "&" and "=" not in words[number]:
                yield " ".join([verb, *words[:number], *words[number + 1 :]])
    if verb == "run":
        waited = _DURATION.search(line)
        for shorter in WAITS if waited else ():
            yield f"run {shorter}"


def _without_a_replica(assigned: str) -> Iterator[str]:
    """Yield the assignment with one replica less in every partition: all have as many."""
    partitions = [listed.split(",") for listed in assigned.split("/")]
    fewest = min(map(len, partitions))
    for number in range(fewest if fewest > 1 else 0):
        yield "/".join(",".join(each[:number] + each[number + 1 :]) for each in partitions)


def _as_many_in_each(line: str) -> str:
    """Return the line with as many replicas in each partition as in the shortest one."""
    found = _REPLICAS.search(line)
    if found is None:
        return line
    partitions = [listed.split(",") for listed in found[1].split("/")]
    fewest = min(map(len, partitions))
    left = "/".join(",".join(each[:fewest]) for each in partitions)
    return f"{line[: found.start()]} replicas={left}{line[found.end() :]}"


def _without_a_broker(lines: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the story without each broker in turn; brokers with higher numbers move up."""
    found = re.search(r" brokers=(\d+)", lines[0])
    count = int(found[1]) if found else 1
    for gone in range(count, 0, -1) if count > 1 else ():
        fewer = lines[0].replace(f" brokers={count}", f" brokers={count - 1}")
        others = [_without(line, f"b{gone}") for line in (fewer, *lines[1:])]
        if not all(map(may_leave_out, _lost(lines, others))):
            continue  # without its topic a story fails in another way
        yield tuple(_moved_up(_as_many_in_each(line), _NODE, gone) for line in others if line)


def _lost(lines: Sequence[str], others: Sequence[str]) -> Iterator[str]:
    """Yield the lines of which nothing is left in `others`."""
    return (line for line, left in zip(lines, others, strict=True) if not left)


def _moved_up(line: str, named: re.Pattern[str], gone: int) -> str:
    """Return the line with every number above `gone` lowered by one."""

    def renamed(found: re.Match[str]) -> str:
        number = int(found[2])
        return f"{found[1]}{number - (number > gone)}"

    return named.sub(renamed, line)


def _without(line: str, broker: str) -> str:
    """Return the line without that broker; empty where the line is about no other node."""
    verb, *words = line.split()
    if broker not in _names(line):
        return line
    words = [word for word in words if not word.startswith(f"{broker}.") and word != broker]
    left = " ".join([verb, *(_without_replica(word, broker) for word in words)])
    return left if verb == "cluster" or _NODE.search(left) else ""


def _names(line: str) -> list[str]:
    return [found[0] for found in _NODE.finditer(line)]


def _without_replica(word: str, broker: str) -> str:
    key, separator, listed = word.rpartition("=")
    lists = [
        ",".join(each for each in replicas.split(",") if each != broker)
        for replicas in listed.split("/")
    ]
    return key + separator + "/".join(filter(None, lists))


def _without_a_partition(lines: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the story without each partition in turn; partitions with higher numbers move up."""
    assigned = _REPLICAS.search(lines[1]) if len(lines) > 1 else None
    partitions = assigned[1].split("/") if assigned else []
    for gone in range(len(partitions) - 1, -1, -1) if len(partitions) > 1 else ():
        left = "/".join(partitions[:gone] + partitions[gone + 1 :])
        fewer = lines[1].replace(
            f" replicas={assigned[1] if assigned else ''}", f" replicas={left}"
        )
        others = (line for line in lines[2:] if f"t-{gone}" not in line.split())
        yield (lines[0], fewer, *(_moved_up(line, _PARTITION, gone) for line in others))
