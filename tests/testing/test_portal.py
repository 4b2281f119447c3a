"""Calls into a loop that is on its way out: refused, and no harm to it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import trio

from replication.testing.portal import ClusterStoppedError, Portal


async def answer() -> str:
    await trio.lowlevel.checkpoint()
    return "here"


async def asked(call: Callable[[], str]) -> str:
    """Call from another thread, as a caller without trio does."""
    return await trio.to_thread.run_sync(call)  # noqa: TID251 - the caller is another thread


async def test_a_call_is_answered_from_its_loop() -> None:
    async with trio.open_nursery() as nursery:
        portal = Portal()
        await nursery.start(portal.serve)
        assert await asked(lambda: portal.call(answer)) == "here"
        nursery.cancel_scope.cancel()


async def test_a_call_while_the_cluster_is_stopped_is_refused_without_harm() -> None:
    async with trio.open_nursery() as nursery:
        portal = Portal()
        await nursery.start(portal.serve)
        nursery.cancel_scope.cancel()
    # The loop runs on, as it does while brokers leave.
    with pytest.raises(ClusterStoppedError, match="being stopped"):
        await asked(lambda: portal.call(answer))
    assert await answer() == "here"


def test_a_call_after_the_loop_has_ended_is_refused() -> None:
    async def once() -> Portal:
        await trio.lowlevel.checkpoint()
        return Portal()

    with ThreadPoolExecutor(1) as other:
        portal = other.submit(trio.run, once).result()
    with pytest.raises(ClusterStoppedError, match="has been stopped"):
        portal.call(answer)
