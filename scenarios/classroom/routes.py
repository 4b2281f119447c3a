"""The stories over HTTP: the page's files, the list, a story's text, and a run.

    GET  stories                the page
    GET  stories/list           {"stories": [...], "exhibits": [...]}
    GET  stories/text/NAME      the text of one of our stories
    POST stories/run            {"text": "...", "seed": 7, "bug": "KIP-101"}; seed and bug may be null

An error is one line, `{"error": "...", "field": "..."}`, as in the control API.

    400  the request is wrong          500  the process of the run died
    404  there is no such story        503  MOST_WAITING others wait already
                                       504  RUN_SECONDS passed
"""

import json
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import attrs
import trio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from replication.errors import UnderstudyError
from replication.net.clock import TrioClock
from replication.net.raising import raising_only_one
from replication.observe.control.declared import FieldError, NotThereError, read_body, refusal
from replication.observe.page.live import Tab, links, page_file
from scenarios.classroom.limits import MOST_RESULT_BYTES, MOST_WAITING, RUN_SECONDS
from scenarios.story.script import stories

PATH: Final = "stories"
# By the umbrella's name, which also works where a project has a package `scenarios` of its own.
WORKER: Final = "from understudy.scenarios.classroom.worker import main; main()"
LARGEST_SEED: Final = 2**53 - 1  # what JavaScript's numbers hold
READ_BYTES: Final = 1 << 16
_REPORT = "scenarios.story.report"
FILES: Final = {
    "/stories.css": (__package__, "stories.css", "text/css"),
    "/stories.js": (__package__, "stories.js", "text/javascript"),
    "/drawing.css": (_REPORT, "drawing.css", "text/css"),
    "/drawing.js": (_REPORT, "drawing.js", "text/javascript"),
}


class RunFailedError(UnderstudyError):
    """A run that has no result; `status` is that of the response."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


def stories_tab(
    command: tuple[str, ...] = (sys.executable, "-c", WORKER), *, run_seconds: float = RUN_SECONDS
) -> Tab:
    """Return the page of stories; `command` starts the process of a run, killed after `run_seconds`."""
    worker = Worker(command, run_seconds)
    tab = Tab(title="Stories", path=PATH, routes=[])
    page = page_file(__package__, "stories.html", "text/html", links=links([tab], PATH))
    return attrs.evolve(
        tab,
        routes=[
            Route(f"/{PATH}", page),
            *(Route(path, page_file(*file)) for path, file in FILES.items()),
            Route(f"/{PATH}/list", partial(_list, worker)),
            Route(f"/{PATH}/text/{{name}}", _text),
            Route(f"/{PATH}/run", partial(_run, worker), methods=["POST"]),
        ],
    )


@attrs.define(eq=False)
class Worker:
    """The processes that run stories, one at a time."""

    command: tuple[str, ...]
    run_seconds: float
    _catalogue: bytes = attrs.field(default=b"", init=False)
    _one: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def catalogue(self) -> bytes:
        """Return the list of stories; a process reads them once, so that this loop does not."""
        if not self._catalogue:
            self._catalogue = await self._ask({"want": "list"})
        return self._catalogue

    async def run(self, text: str, *, seed: int | None, bug: str | None) -> bytes:
        """Return the result of a run as JSON; raise RunFailedError if it has none."""
        if self._one.statistics().tasks_waiting >= MOST_WAITING:
            raise RunFailedError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{MOST_WAITING} stories wait already for the one that runs; try again",
            )
        async with self._one:
            return await self._ask({"want": "run", "text": text, "seed": seed, "bug": bug})

    async def _ask(self, request: Mapping[str, Any]) -> bytes:
        process = await trio.lowlevel.open_process(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C ends the cluster, which ends this
        )
        result = bytearray()
        try:
            with TrioClock().move_on_after(self.run_seconds) as scope, raising_only_one():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_send, process, json.dumps(request).encode())
                    await _receive(process, result)
                    await process.wait()
                    nursery.cancel_scope.cancel()
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
        if scope.cancelled_caught:
            raise RunFailedError(
                HTTPStatus.GATEWAY_TIMEOUT,
                f"the story was ended: it had run for {self.run_seconds:g} s",
            )
        if process.returncode != 0:
            raise RunFailedError(HTTPStatus.INTERNAL_SERVER_ERROR, _why_died(process.returncode))
        return bytes(result)


async def _send(process: trio.Process, data: bytes) -> None:
    assert process.stdin is not None, "it is a pipe"
    try:
        await process.stdin.send_all(data)
        await process.stdin.aclose()
    except trio.BrokenResourceError:
        pass  # it has died, which its status says


async def _receive(process: trio.Process, result: bytearray) -> None:
    assert process.stdout is not None, "it is a pipe"
    while received := await process.stdout.receive_some(READ_BYTES):
        result += received
        if len(result) > MOST_RESULT_BYTES:
            raise RunFailedError(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                f"the story was ended: its result has more than {MOST_RESULT_BYTES >> 20} MiB",
            )


def _why_died(status: int | None) -> str:
    if status is not None and status < 0:
        return f"the process that ran the story was ended by {signal.Signals(-status).name}"
    return f"the process that ran the story ended with status {status}; its error is on stderr"


# The endpoints.


async def _list(worker: Worker, _: Request) -> Response:
    try:
        return Response(await worker.catalogue(), media_type="application/json")
    except RunFailedError as error:
        return _failed(error)


async def _text(request: Request) -> Response:
    name = request.path_params["name"]
    path = stories().get(name)
    if path is None:
        return refusal(NotThereError(f"there is no story called {name!r}"))
    return Response(await trio.Path(path).read_bytes(), media_type="text/plain; charset=utf-8")


async def _run(worker: Worker, request: Request) -> Response:
    try:
        body = await read_body(request, ("text", "seed", "bug"))
        text, seed, bug = _text_in(body), _seed_in(body), _bug_in(body)
        result = await _unless_gone(request, partial(worker.run, text, seed=seed, bug=bug))
    except FieldError as error:
        return refusal(error)
    except RunFailedError as error:
        return _failed(error)
    return Response(result, media_type="application/json")


def _failed(error: RunFailedError) -> Response:
    return JSONResponse({"error": str(error)}, status_code=error.status)


def _text_in(body: Mapping[str, Any]) -> str:
    text = body.get("text")
    if not isinstance(text, str):
        raise FieldError("text", "expected the text of a story")
    return text


def _seed_in(body: Mapping[str, Any]) -> int | None:
    seed = body.get("seed")
    if seed is None or (type(seed) is int and 0 <= seed <= LARGEST_SEED):
        return seed
    raise FieldError("seed", f"not a whole number from 0 to {LARGEST_SEED}")


def _bug_in(body: Mapping[str, Any]) -> str | None:
    bug = body.get("bug")
    if bug is None or isinstance(bug, str):
        return bug
    raise FieldError("bug", "expected the name of an exhibit of the museum")


async def _unless_gone(request: Request, run: Callable[[], Awaitable[bytes]]) -> bytes:
    """Return what `run` returns; cancel it and raise ClientDisconnect when the client leaves."""
    result: bytes | None = None

    async def watch(scope: trio.CancelScope) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    with raising_only_one():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, nursery.cancel_scope)
            result = await run()
            nursery.cancel_scope.cancel()
    if result is None:
        raise ClientDisconnect
    return result
