"""Python's cyclic garbage collector, put off while a cluster starts.

    start ── tens of thousands of objects made, all of which stay ──> every broker knows every other
                └ sooner or later a full collection falls due: it walks all that the process has
                  imported, and takes as long as the start itself

Rule 1: what a start makes lives as long as the cluster, so a collection would find nothing.

Rule 2: when the last start is over, the young objects are collected, in some milliseconds, so that
no collection is due at that instant; the older generations are collected in their time. A
collector that was switched off stays off.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_starting = 0
_was_enabled = False


@contextmanager
def collector_put_off() -> Iterator[None]:
    """Put the collector off for all threads, from the first start until the last one is over."""
    global _starting, _was_enabled  # noqa: PLW0603 - there is one collector
    with _lock:
        if not _starting:
            _was_enabled = gc.isenabled()
            gc.disable()
        _starting += 1
    try:
        yield
    finally:
        with _lock:
            _starting -= 1
            if not _starting and _was_enabled:
                gc.collect(0)
                gc.enable()
