"""Calls into a trio loop that runs in a thread of its own, from any other thread.

`trio.from_thread` refuses a caller that runs in another trio loop, as a trio test does. Here the
caller blocks, in whatever loop it runs, so calls must be short.
"""

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, wait
from typing import Any, Protocol, TypeVar

import attrs
import trio

from replication.errors import UnderstudyError
from storage.attributes import define

T = TypeVar("T")

LOOK_SECONDS = 1.0


class Caught(Protocol):
    """An error as pytest hands it to `__tracebackhide__`."""

    def errisinstance(self, kind: type[BaseException], /) -> bool: ...


def hides_frames(caught: Caught) -> bool:
    """Return whether an error explains itself: a mistake of ours keeps its frames."""
    return caught.errisinstance(UnderstudyError)


__tracebackhide__ = hides_frames


class ClusterStoppedError(UnderstudyError):
    """The cluster that was called has stopped."""


@define(eq=False)
class Portal:
    """A way into the loop in which it is made; `serve` answers until cancelled."""

    _token: trio.lowlevel.TrioToken = attrs.field(factory=trio.lowlevel.current_trio_token)
    _thread: threading.Thread = attrs.field(factory=threading.current_thread)
    _nursery: trio.Nursery | None = attrs.field(init=False, default=None)

    async def serve(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def call(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Return what `function` returns there, or raise what it raises."""
        assert threading.current_thread() is not self._thread, "a loop cannot wait for itself"
        answer: Future[T] = Future()
        self.soon(self._start, answer, function, arguments)
        while not answer.done() and self._thread.is_alive():
            wait([answer], timeout=LOOK_SECONDS)
        if not answer.done():
            raise ClusterStoppedError("the cluster was stopped meanwhile")
        error = answer.exception()
        if isinstance(error, UnderstudyError):
            raise error.with_traceback(None) from None
        return answer.result()

    def soon(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call `function` there without waiting for it."""
        try:
            self._token.run_sync_soon(function, *arguments)
        except trio.RunFinishedError:
            raise ClusterStoppedError("the cluster has been stopped") from None

    def _start(
        self, answer: Future[T], function: Callable[..., Awaitable[T]], arguments: tuple[Any, ...]
    ) -> None:
        if self._nursery is None:
            answer.set_exception(ClusterStoppedError("the cluster is being stopped"))
        else:
            self._nursery.start_soon(self._answer, answer, function, arguments)

    async def _answer(
        self, answer: Future[T], function: Callable[..., Awaitable[T]], arguments: tuple[Any, ...]
    ) -> None:
        try:
            answer.set_result(await function(*arguments))
        except trio.Cancelled:
            answer.set_exception(ClusterStoppedError("the cluster was stopped meanwhile"))
            raise
        except Exception as error:  # noqa: BLE001 - it is the caller's
            answer.set_exception(error)
