"""The live page of `understudy up --ui PORT`, which shows a cluster and can break it.

    /             the page; page.css and page.js beside it, and nothing from any other host
    /state        the cluster as JSON, once, for programs
    /stream       the same as it changes, as server-sent events

    timeline   events as numbered sentences        board    what changed since a reader last looked
    live       reads the state, fills the board    routes   what is served

Its buttons use the control API (`docs/control.md`).
"""

from replication.observe.page.board import Board
from replication.observe.page.live import LivePage, PageWatch
from replication.observe.page.routes import page_routes
from replication.observe.page.timeline import Timeline

__all__ = ["Board", "LivePage", "PageWatch", "Timeline", "page_routes"]
