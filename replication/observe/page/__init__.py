"""The live page of `understudy up --ui PORT`, which shows a cluster and can break it.

    /             the page; page.css and page.js beside it, and nothing from any other host
    /state        the cluster as JSON, once, for programs
    /stream       the same as it changes, as server-sent events

    board   events as numbered sentences, and what changed since a reader last looked
    verdict the line at the top: is anything wrong now, is anything lost, what happened
    live    what is served; reads the state and fills the board

Its buttons use the control API (`docs/control.md`).
"""

from replication.observe.page.board import Board, Timeline
from replication.observe.page.live import LivePage, PageWatch, page_routes

__all__ = ["Board", "LivePage", "PageWatch", "Timeline", "page_routes"]
