"""The live page of `understudy up --ui PORT`: a cluster to look at, and to hurt.

    /             the page; page.css and page.js beside it, and nothing from any other host
    /state        the cluster as JSON, once: for programs
    /stream       the same as it changes, as server-sent events

    timeline   events as sentences, numbered           board    what changed since a reader looked
    watch      looks at the cluster, fills the board   routes   what is served
    live       all of it over one cluster

What its buttons ask for is the control API's (`docs/control.md`).
"""

from replication.observe.page.board import Board
from replication.observe.page.live import LivePage
from replication.observe.page.routes import page_routes
from replication.observe.page.timeline import Timeline
from replication.observe.page.watch import Looks, Watch

__all__ = ["Board", "LivePage", "Looks", "Timeline", "Watch", "page_routes"]
