"""Bounds for one record with acks=all, the function calls and what it leaves to the collector; and for
the function calls of a cluster's start and stop.

A user sees them as latency: three brokers and the controller answer a record alone, and nearly all
of that time is Python. `python -m tests.bench.record_calls` lists the functions.
"""

import gc

import trio

from replication.cluster.cluster import open_cluster
from replication.net.clock import LoopClock
from tests.bench.record_calls import CallsByFile, calls_of_records, warm_asker

RECORDS = 200

MOST_CALLS = 1640
"""40 above the figure of CPython 3.11, since a busy machine takes more rounds of the loop; 3.13 counts
a few less.
"""


MOST_CALLS_OF_A_START = 31_000
"""1,000 above the figure of CPython 3.11, for the same reason."""


async def calls_of_a_start() -> int:
    calls = CallsByFile()
    with calls.counting():
        async with open_cluster(brokers=1):
            pass
    return calls.functions.total()


def test_a_start_takes_no_more_calls_than_the_bound() -> None:
    """A suite that opens a cluster for each test pays them each time."""
    runs = [trio.run(calls_of_a_start, clock=LoopClock()) for _ in range(4)]
    assert min(runs) <= MOST_CALLS_OF_A_START


def test_a_record_takes_no_more_calls_than_the_bound() -> None:
    calls = trio.run(calls_of_records, clock=LoopClock())
    assert sum(calls.values()) <= MOST_CALLS


async def test_a_record_leaves_no_cycles_to_the_garbage_collector() -> None:
    """Cycles make full collections come sooner, and one of those stops a broker for 0.1 s."""
    async with warm_asker() as asker:
        gc.collect()
        gc.disable()
        try:
            await trio.to_thread.run_sync(asker.times, RECORDS)  # noqa: TID251 - real sockets
            assert gc.collect() < RECORDS
        finally:
            gc.enable()
