"""The cost of the pytest plugin for suites that use it, and for suites that do not.

    start    from `ThreadedCluster.start` to brokers that know one another, in a warm process;
             `stop`, as at a session's end, is not measured
    reset    what the plugin does after a test that did no harm
    import   the plugin in a pytest that uses none of it
    test     a whole pytest with one test that asks `kafka_cluster` for its brokers, with
             PYTHONDONTWRITEBYTECODE=1

The floor of a start is a thread with a trio loop that opens as many ports; of a reset, a call
into that loop; of the import, pytest's own; of a test, a pytest without the plugin whose one test
asserts that a list equals itself. Both are processor time of all processes, and their difference is
the price of the plugin. A start that fails ends the benchmark.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import trio

from replication.testing import ThreadedCluster
from tests.bench.figures import Figure, interleaved

STARTS = int(os.environ.get("UNDERSTUDY_BENCH_STARTS", "1000"))
WARM_UP = 3
RESETS = 1000
BROKERS = 3
IMPORT_ROUNDS = 15
TEST_ROUNDS = 15
WITH_CLUSTER = "def test_it(kafka_cluster):\n    assert kafka_cluster.bootstrap_servers\n"
WITHOUT = "def test_it():\n    assert [1] == [1]\n"
IMPORT = """
import time, pytest
began = time.process_time()
import {}
print(time.process_time() - began)
"""


def run() -> Iterator[Figure]:
    yield from starts()
    yield from resets()
    ours, floor = interleaved(
        lambda: imported("understudy.pytest_plugin"), pytest_imported, rounds=IMPORT_ROUNDS
    )
    yield Figure("import of the plugin beside pytest's own", ours, floor, "ms")
    yield from first_tests()


def first_tests() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as directory:
        ours, floor = interleaved(
            partial(tested, Path(directory), WITH_CLUSTER),
            partial(tested, Path(directory), WITHOUT, "-p", "no:understudy"),
            rounds=TEST_ROUNDS,
        )
    yield Figure("a first test with a cluster", ours, floor, "ms")


def starts() -> Iterator[Figure]:
    for _ in range(WARM_UP):
        start(BROKERS)
    taken = [(start(BROKERS), listeners(BROKERS)) for _ in range(STARTS)]
    name = f"{BROKERS} brokers, {STARTS} starts"
    for part, figure in (("p50", 50), ("p99", 99)):
        ours, floor = (percentile(each, figure) for each in zip(*taken, strict=True))
        yield Figure(f"{name}, {part}", ours, floor, "ms")


def resets() -> Iterator[Figure]:
    with ThreadedCluster(brokers=BROKERS) as cluster:
        cluster.create_topic("t")
        taken = [
            (milliseconds(cluster.reset), milliseconds(lambda: cluster.brokers))
            for _ in range(RESETS)
        ]
    for part, figure in (("p50", 50), ("p99", 99)):
        ours, floor = (percentile(each, figure) for each in zip(*taken, strict=True))
        yield Figure(f"reset between tests, {part}", ours, floor, "ms")


def start(brokers: int) -> float:
    cluster = ThreadedCluster(brokers=brokers)
    taken = milliseconds(cluster.start)
    cluster.stop()
    return taken


def listeners(count: int) -> float:
    """Milliseconds until a loop in a thread of its own listens at so many ports."""
    listening = threading.Event()

    async def listen() -> None:
        opened = [await trio.open_tcp_listeners(0, host="127.0.0.1") for _ in range(count)]
        listening.set()
        for each in opened:
            await each[0].aclose()

    thread = threading.Thread(target=trio.run, args=[listen])
    began = time.perf_counter()
    thread.start()
    listening.wait()
    taken = time.perf_counter() - began
    thread.join()
    return taken * 1000


def milliseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def percentile(taken: Sequence[float], percent: int) -> float:
    return statistics.quantiles(taken, n=100, method="inclusive")[percent - 1]


def imported(module: str) -> float:
    """Milliseconds of processor time, in a Python that has imported pytest already."""
    command = [sys.executable, "-c", IMPORT.format(module)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout) * 1000


def pytest_imported() -> float:
    source = "import time; import pytest; print(time.process_time())"
    done = subprocess.run(
        [sys.executable, "-c", source], check=True, capture_output=True, text=True
    )
    return float(done.stdout) * 1000


def tested(directory: Path, source: str, *options: str) -> float:
    """Milliseconds of processor time, in user and system mode, of a pytest with one test."""
    (directory / "test_it.py").write_text(source)
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        check=True,
        capture_output=True,
        cwd=directory,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (ended.ru_utime - began.ru_utime + ended.ru_stime - began.ru_stime)
