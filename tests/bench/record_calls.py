"""How many functions are called for one record with acks=all, by the room that calls them.

Three brokers and the controller run on one loop, in this thread; a bare socket in another thread
sends one record after the other, each when the last one is acknowledged. Every call of a Python
function is counted in the file of that function, every call of a C function in the file of its
caller. A coroutine that is resumed is counted again.

Heartbeats and other periodic work fall between the records of some batches. A batch that has fewer
calls than three of four others has none of it, so its figure is nearly the same in every run on one
version of Python, even on a busy machine.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType

import trio

from replication.cluster.cluster import open_cluster
from replication.net.clock import LoopClock
from tests.bench.acks import LEADER, TOPIC, Asker, acknowledged, create_topic, produce_frame
from tests.bench.figures import Figure

GOAL = 1500
WARM_UP = 300
BATCHES = 60
RECORDS = 5
ROOT = Path(__file__).parents[2]


class CallsByFile:
    """The calls of one thread while `counting` lasts, by file, and by function of a file."""

    def __init__(self) -> None:
        self.functions: Counter[tuple[str, str]] = Counter()

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            self.functions[frame.f_code.co_filename, frame.f_code.co_qualname] += 1
        elif event == "c_call":
            name = getattr(argument, "__qualname__", repr(argument))
            self.functions[frame.f_code.co_filename, f"-> {name}"] += 1

    @contextmanager
    def counting(self) -> Iterator[None]:
        sys.setprofile(self.note)
        try:
            yield
        finally:
            sys.setprofile(None)


@asynccontextmanager
async def warm_asker() -> AsyncIterator[Asker]:
    """Start three brokers, and an asker that has sent its first records."""
    async with open_cluster(brokers=3) as cluster:
        await trio.to_thread.run_sync(create_topic, cluster.bootstrap_servers)
        host, _, port = cluster.bootstrap_list[LEADER - 1].rpartition(":")
        with Asker(host, int(port), produce_frame()) as asker:
            await trio.to_thread.run_sync(asker.wait_until, acknowledged)
            await cluster.until(lambda: _all_in_sync(cluster.partition(TOPIC, 0)))
            await trio.to_thread.run_sync(asker.times, WARM_UP)
            yield asker


async def calls_of_records() -> dict[tuple[str, str], float]:
    """Return the calls for one record, by (file, function); C functions begin with `-> `."""
    async with warm_asker() as asker:
        calls = CallsByFile()
        with calls.counting():
            batches = await trio.to_thread.run_sync(_ask_in_batches, asker, calls)
    quiet = sorted(batches, key=Counter.total)[BATCHES // 4]
    return {function: count / RECORDS for function, count in quiet.items()}


def _ask_in_batches(asker: Asker, calls: CallsByFile) -> list[Counter[tuple[str, str]]]:
    batches = []
    for _ in range(BATCHES):
        calls.functions = Counter()
        asker.times(RECORDS)
        batches.append(calls.functions)
    return batches


def _all_in_sync(partition: object) -> bool:
    return len(getattr(partition, "isr", ())) == 3


def room_of(file: str) -> str:
    """Return the package of ours that a file is in, or the name of the library."""
    path = Path(file)
    if path.is_relative_to(ROOT) and ".venv" not in path.parts:
        return "/".join(path.relative_to(ROOT).parts[:2])
    parts = path.parts
    return parts[parts.index("site-packages") + 1] if "site-packages" in parts else path.stem


def run() -> Iterator[Figure]:
    calls = trio.run(calls_of_records, clock=LoopClock())
    rooms: defaultdict[str, float] = defaultdict(float)
    for (file, _), count in calls.items():
        rooms[room_of(file)] += count
    for room, count in sorted(rooms.items(), key=lambda each: -each[1]):
        if count >= 5:
            print(f"{room:<44} {count:>10.1f} calls")
    yield Figure("function calls for one record", sum(rooms.values()), GOAL, "calls")


def functions() -> None:
    """Print every function that is called for a record, the most frequent first."""
    calls = trio.run(calls_of_records, clock=LoopClock())
    for (file, name), count in sorted(calls.items(), key=lambda each: -each[1]):
        if count >= 0.5:
            print(f"{count:>8.1f}  {file.removeprefix(str(ROOT) + '/')}:{name}")


if __name__ == "__main__":
    functions()
