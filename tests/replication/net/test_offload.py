"""Offloaded work runs in worker threads, a few at a time, and is never left behind."""

import threading  # noqa: TID251  worker threads are the subject

import pytest
import trio

from replication.net import ThreadOffload


async def test_work_runs_in_another_thread_and_answers() -> None:
    offload = ThreadOffload()
    assert await offload(threading.get_ident) != threading.get_ident()


async def test_an_error_of_the_work_is_raised() -> None:
    def fail() -> None:
        raise OSError("disk on fire")

    with pytest.raises(OSError, match="disk on fire"):
        await ThreadOffload()(fail)


async def test_no_more_than_its_limit_run_at_once() -> None:
    offload = ThreadOffload(threads=2)
    lock, most, running = threading.Lock(), 0, 0
    meeting = threading.Barrier(2, timeout=10)

    def work() -> None:
        nonlocal most, running
        with lock:
            running += 1
            most = max(most, running)
        meeting.wait()  # each waits for one other: two do run at once
        with lock:
            running -= 1

    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(offload, work)
    assert most == 2


async def test_cancelled_work_is_waited_for() -> None:
    begun, go_on = threading.Event(), threading.Event()
    finished = False

    def work() -> str:
        nonlocal finished
        begun.set()
        assert go_on.wait(10)
        finished = True
        return "done"

    async with trio.open_nursery() as nursery:

        async def caller() -> None:
            assert await ThreadOffload()(work) == "done"
            assert finished

        nursery.start_soon(caller)
        assert await ThreadOffload()(lambda: begun.wait(10))
        nursery.cancel_scope.cancel()
        go_on.set()
    assert finished
