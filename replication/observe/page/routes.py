"""The routes of the page: three files of this package, the state, and its stream.

Rule 1: the page may not load, run or ask anything from another host. The header
Content-Security-Policy makes the browser enforce that.

Rule 2: a browser that reads slowly gets fewer updates, not late ones: all changes during one
update come together in the next.
"""

from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from replication.observe.cluster_state import ClusterState, to_json
from replication.observe.http import EventSender, EventStream
from replication.observe.page.board import Board, ReaderPosition

POLICY: Final = "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
FILES: Final = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}

Endpoint = Callable[[Request], Awaitable[Response]]


def page_routes(board: Board, look: Callable[[], Awaitable[ClusterState]]) -> Sequence[BaseRoute]:
    async def state(_: Request) -> Response:
        return Response(to_json(await look()), media_type="application/json")

    async def stream(_: Request) -> Response:
        return EventStream(feed_of(board))

    return [
        *(Route(path, _file(*file)) for path, file in FILES.items()),
        Route("/state", state),
        Route("/stream", stream),
    ]


def feed_of(board: Board) -> Callable[[EventSender], Awaitable[None]]:
    """Return the feed of one browser: everything first, and then what changes."""

    async def feed(events: EventSender) -> None:
        seen = ReaderPosition()
        while True:
            update, seen = await board.news(seen)
            await events.send(update)

    return feed


def _file(name: str, media_type: str) -> Endpoint:
    content = files("replication.observe.page").joinpath(name).read_bytes()
    headers = {
        "content-security-policy": POLICY,
        "cache-control": "no-cache",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
    }

    async def serve(_: Request) -> Response:
        return Response(content, media_type=media_type, headers=headers)

    return serve
