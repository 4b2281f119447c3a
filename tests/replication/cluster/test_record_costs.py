"""A bound for the function calls of one record with acks=all; it goes down with each gain.

A user sees them as latency: three brokers and the controller answer a record alone, and nearly all
of that time is Python. `python -m tests.bench.record_calls` lists the functions.
"""

import trio

from tests.bench.record_calls import calls_of_records

MOST_CALLS = 1855
"""40 above the figure of CPython 3.11, since a busy machine takes more rounds of the loop; 3.13 counts
a few less.
"""


def test_a_record_takes_no_more_calls_than_the_bound() -> None:
    calls = trio.run(calls_of_records)
    assert sum(calls.values()) <= MOST_CALLS
