"""The live page of one cluster: its events, its state a few times a second, and its control.

    nodes ──read──> ClusterState ──> Board ──> each browser, as fast as it reads
      └───events──> Timeline ─────────┘

    page = LivePage()
    async with open_cluster(impairments=Impairments(), make_sink=page.sink) as cluster:
        site = page.site(reader_of_nodes(cluster, page.reasons), cluster, port=8080)
        nursery.start_soon(page.run)

Rule 1: events are collected from the start of the nodes on. Why a replica is in the ISR may have
been reported before the first browser connects.

Rule 2: reading takes at most a twentieth of the time: what takes longer is done less often.

Rule 3: what was done to a node (killed, frozen, cut off) is no event of the node. It is found by
comparing two states, and added to the timeline then.

Rule 4: the page may not load, run or ask anything from another host. The header
Content-Security-Policy makes the browser enforce that.

Rule 5: a browser that reads slowly gets fewer updates, not late ones: all changes during one
update come together in the next.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from importlib.resources import files
from typing import Final

import attrs
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from replication.broker.nodes import CONTROLLER_ID
from replication.cluster.interface import AnyCluster
from replication.events import EventSink, fan_out
from replication.net.clock import TrioClock
from replication.net.seams import NodeClock
from replication.observe.cluster_state import ClusterState, Status, to_json
from replication.observe.control import control_routes
from replication.observe.http import LOOPBACK, EventStream, SendEvent, Site
from replication.observe.http.event_stream import Feed
from replication.observe.journal import JournalEntry
from replication.observe.page.board import Board, ReaderPosition, Timeline, node_name
from replication.observe.pages import base_style, drawing_script, legend
from replication.observe.sentences import FAULT, NEWS
from replication.observe.state_reader import IsrReasons, StateReader
from storage.attributes import define, frozen

POLICY: Final = "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
FILES: Final = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}

TABS: Final = "<!-- tabs -->"

Endpoint = Callable[[Request], Awaitable[Response]]

READ_SECONDS = 0.2
SHARE_OF_TIME = 20
_STATUS_NEWS = {
    Status.DOWN: (FAULT, "is down"),
    Status.FROZEN: (FAULT, "is frozen: it answers no request, and closes no connection"),
    Status.UP: (NEWS, "is up"),
    Status.STARTING: (NEWS, "starts"),
}


@frozen(kw_only=True)
class Tab:
    """Another page at the same address, to which the page of the cluster links."""

    title: str
    path: str
    """The path, relative to the page of the cluster."""
    routes: Sequence[BaseRoute]


def page_routes(
    board: Board, look: Callable[[], Awaitable[ClusterState]], tabs: Sequence[Tab] = ()
) -> Sequence[BaseRoute]:
    async def state(_: Request) -> Response:
        return Response(to_json(await look()), media_type="application/json")

    async def stream(_: Request) -> Response:
        return EventStream(feed_of(board))

    return [
        *(
            Route(path, page_file(__package__, *file, links=links(tabs)))
            for path, file in FILES.items()
        ),
        *(route for tab in tabs for route in tab.routes),
        Route("/state", state),
        Route("/stream", stream),
    ]


def feed_of(board: Board) -> Feed:
    """Return the feed of one browser: everything first, and then what changes."""

    async def feed(send: SendEvent) -> None:
        seen = ReaderPosition()
        while True:
            update, seen = await board.news(seen)
            await send(update)

    return feed


def links(tabs: Sequence[Tab], current: str = "./") -> str:
    """Return the links to the pages at this address, if there are several."""
    if not tabs:
        return ""
    pages = [("./", "Cluster"), *((tab.path, tab.title) for tab in tabs)]
    found = (
        f'<a href="{path}"{" aria-current=page" if path == current else ""}>{title}</a>'
        for path, title in pages
    )
    return f'<nav aria-label="Pages">{"".join(found)}</nav>'


def page_file(package: str, name: str, media_type: str, *, links: str = "") -> Endpoint:
    """Return the endpoint of a file of a package; `links` take the place of TABS in it."""
    content = files(package).joinpath(name).read_text(encoding="utf-8").replace(TABS, links)
    match name:
        case "page.css":
            content = base_style() + content
        case "page.js" | "drawing.js":
            content = drawing_script() + content
        case _:
            content = content.replace("{{legend}}", legend())
    headers = {
        "content-security-policy": POLICY,
        "cache-control": "no-cache",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
    }

    async def serve(_: Request) -> Response:
        return Response(content, media_type=media_type, headers=headers)

    return serve


@define(eq=False)
class LivePage:
    """The page of one cluster; `run` has to run while it is served."""

    clock: NodeClock = attrs.field(factory=TrioClock)
    reasons: IsrReasons = attrs.field(init=False)
    _timeline: Timeline = attrs.field(init=False)
    _watch: "PageWatch | None" = attrs.field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        self.reasons = IsrReasons(self.clock.now_ms)
        self._timeline = Timeline(self.clock.wall_ms)

    def sink(self, node_id: int) -> EventSink:
        """Return a sink for the events of a node in this process."""
        return fan_out(self.reasons.sink, self._timeline.sink(node_id))

    def on_entry(self, entry: JournalEntry) -> None:
        """Take an event of a node in another process."""
        self.sink(entry.broker)(entry.event)

    def site(
        self,
        reader: StateReader,
        cluster: AnyCluster,
        *,
        port: int,
        host: str = LOOPBACK,
        tabs: Sequence[Tab] = (),
    ) -> Site:
        """Return the page, with the control API that its buttons use and the pages beside it."""
        board = Board(self._timeline)
        self._watch = PageWatch(reader=reader, board=board, clock=self.clock)
        routes = [*page_routes(board, reader.read, tabs), *control_routes(cluster)]
        return Site(purpose="page", host=host, port=port, routes=routes)

    async def run(self) -> None:
        assert self._watch is not None, "`site` was called before"
        await self._watch.run()


@define(eq=False, kw_only=True)
class PageWatch:
    """The task that reads the state again and again, and puts it on the board."""

    reader: StateReader
    board: Board
    clock: NodeClock
    _before: ClusterState | None = attrs.field(init=False, default=None)

    async def run(self) -> None:
        while True:
            began = self.clock.now()
            await self.read()
            took = self.clock.now() - began
            await self.clock.sleep(max(READ_SECONDS, took * SHARE_OF_TIME))

    async def read(self) -> None:
        found = await self.reader.read()
        if self._before is not None:
            self._add_status_changes(self._before, found)
            self._add_cut_changes(self._before, found)
        self._before = found
        self.board.put(found)

    def _add_status_changes(self, before: ClusterState, after: ClusterState) -> None:
        was = before.node_statuses
        for node_id, status in after.node_statuses.items():
            if was.get(node_id) is not status and status in _STATUS_NEWS:
                kind, text = _STATUS_NEWS[status]
                self._add(node_id, f"node_{status}", kind, f"{_name(node_id)} {text}")

    def _add_cut_changes(self, before: ClusterState, after: ClusterState) -> None:
        was, now = set(before.cut), set(after.cut)
        for source, target, both in _in_pairs(now - was):
            between = "between {} and {}" if both else "from {} to {}"
            names = between.format(node_name(source), node_name(target))
            self._add(source, "link_cut", FAULT, f"nothing passes {names}")
        for source, target, both in _in_pairs(was - now):
            again = "{} and {} reach each other again" if both else "{} reaches {} again"
            names = again.format(node_name(source), node_name(target))
            self._add(source, "link_healed", NEWS, names)

    def _add(self, node_id: int | None, name: str, kind: str, text: str) -> None:
        self.board.timeline.add(node=_name(node_id), name=name, kind=kind, text=text)


def _name(node_id: int | None) -> str:
    return node_name(CONTROLLER_ID if node_id is None else node_id)


def _in_pairs(links: set[tuple[int, int]]) -> Iterator[tuple[int, int, bool]]:
    """Yield each link once, with whether both its directions are in `links`."""
    for source, target in sorted(links):
        both = (target, source) in links
        if not both or source < target:
            yield source, target, both
