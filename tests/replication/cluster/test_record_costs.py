"""Bounds for one record with acks=all: the function calls, and what it leaves to the collector.

A user sees them as latency: three brokers and the controller answer a record alone, and nearly all
of that time is Python. `python -m tests.bench.record_calls` lists the functions.
"""

import gc

import trio

from replication.net.clock import LoopClock
from tests.bench.record_calls import calls_of_records, warm_asker

RECORDS = 200

MOST_CALLS = 1640
"""40 above the figure of CPython 3.11, since a busy machine takes more rounds of the loop; 3.13 counts
a few less.
"""


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
