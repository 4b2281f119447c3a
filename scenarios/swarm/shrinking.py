"""The shortest story that still goes wrong in the same way.

    cluster, topic     kept, with fewer brokers, partitions, replicas and settings where that
                       is enough
    what befalls       left out, in ever smaller pieces (delta debugging, Zeller 2002)
    recover, wait,
    answers, judge     kept: without them anything goes wrong

Each attempt is played from the seed of the run, so that what is left out shifts no stream of
chance. It counts where it breaks the same rule and is shorter: in lines, in letters, in waits.
What an attempt can no longer ask for, to start a node that is up say, goes with the rest.
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
    """The shortest run found within as many attempts.

    A run that was given up stays as it is, and a shorter one that has to be given up is the last
    attempt: others would take as long.
    """
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
        while self._best is not before and self._attempts > 0 and not self._best.is_endless:
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
        if run.is_endless:
            self._attempts = 0
        if run.rule != self._best.rule:
            return False
        self._best = run
        return True


def _size(lines: Sequence[str]) -> tuple[int, int, int]:
    """Lines, then letters, then for how long it waits."""
    letters = sum(len(_DURATION.sub("", line)) for line in lines)
    waited = sum(_milliseconds(found) for line in lines for found in _DURATION.finditer(line))
    return len(lines), letters, waited


def _milliseconds(duration: re.Match[str]) -> int:
    return int(duration[1]) * (1 if duration[2] == "ms" else 1000)


def simpler(lines: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The same story with one broker, partition, replica, setting, value or victim less, or with
    a shorter wait.
    """
    yield from _with_a_broker_less(lines)
    yield from _with_a_partition_less(lines)
    for number, line in enumerate(lines):
        for shorter in _shorter(line):
            yield (*lines[:number], shorter, *lines[number + 1 :])


def _shorter(line: str) -> Iterator[str]:
    verb, *words = line.split()
    for setting in _SETTING.finditer(line):
        if setting[1] not in ("brokers", "replicas"):
            yield line[: setting.start()] + line[setting.end() :]
        elif setting[1] == "replicas":
            for fewer in _with_a_replica_less(setting[2]):
                yield f"{line[: setting.start()]} replicas={fewer}{line[setting.end() :]}"
    # A value, or one of several victims; what is before them says of what.
    first = {"produce": 1, "cut": 1, "mute": 1, "heal": 1, "send": 2, "transact": 2}.get(verb)
    if first is not None:
        for number in range(first, len(words)):
            if words[number] != "&" and "=" not in words[number]:
                yield " ".join([verb, *words[:number], *words[number + 1 :]])
    if verb == "run":
        waited = _DURATION.search(line)
        for shorter in WAITS if waited else ():
            yield f"run {shorter}"


def _with_a_replica_less(assigned: str) -> Iterator[str]:
    """Each partition has as many: one less in all of them."""
    partitions = [listed.split(",") for listed in assigned.split("/")]
    fewest = min(map(len, partitions))
    for number in range(fewest if fewest > 1 else 0):
        yield "/".join(",".join(each[:number] + each[number + 1 :]) for each in partitions)


def _as_many_in_each(line: str) -> str:
    """Where one has lost a replica, the others lose their last one."""
    found = _REPLICAS.search(line)
    if found is None:
        return line
    partitions = [listed.split(",") for listed in found[1].split("/")]
    fewest = min(map(len, partitions))
    left = "/".join(",".join(each[:fewest]) for each in partitions)
    return f"{line[: found.start()]} replicas={left}{line[found.end() :]}"


def _with_a_broker_less(lines: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Without any of them, wherever it is named; those behind it move up."""
    found = re.search(r" brokers=(\d+)", lines[0])
    count = int(found[1]) if found else 1
    for gone in range(count, 0, -1) if count > 1 else ():
        fewer = lines[0].replace(f" brokers={count}", f" brokers={count - 1}")
        others = (_without(line, f"b{gone}") for line in (fewer, *lines[1:]))
        yield tuple(_moved_up(_as_many_in_each(line), _NODE, gone) for line in others if line)


def _moved_up(line: str, named: re.Pattern[str], gone: int) -> str:
    """Whoever has a number behind that of who is gone has the one before its own."""

    def renamed(found: re.Match[str]) -> str:
        number = int(found[2])
        return f"{found[1]}{number - (number > gone)}"

    return named.sub(renamed, line)


def _without(line: str, broker: str) -> str:
    """Nothing, where nobody is left whom it befalls."""
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


def _with_a_partition_less(lines: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Without any of them, and all that is done with it; those behind it move up."""
    assigned = _REPLICAS.search(lines[1]) if len(lines) > 1 else None
    partitions = assigned[1].split("/") if assigned else []
    for gone in range(len(partitions) - 1, -1, -1) if len(partitions) > 1 else ():
        left = "/".join(partitions[:gone] + partitions[gone + 1 :])
        fewer = lines[1].replace(
            f" replicas={assigned[1] if assigned else ''}", f" replicas={left}"
        )
        others = (line for line in lines[2:] if f"t-{gone}" not in line.split())
        yield (lines[0], fewer, *(_moved_up(line, _PARTITION, gone) for line in others))
