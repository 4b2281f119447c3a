"""All that a page needs of a cluster: its nodes' events, its state, its control.

    page = LivePage()
    async with open_cluster(impairments=Impairments(), make_sink=page.sink) as cluster:
        site = page.site(page.state_of(cluster), cluster, port=8080)
        nursery.start_soon(page.run)

Rule: events are heard from the beginning, also those of the nodes' start: why a replica is in
the ISR may have been told before anybody looks.
"""

import attrs

from replication.cluster.cluster import Cluster
from replication.cluster.interface import AnyCluster
from replication.events import EventSink, fan_out
from replication.net.clock import TrioClock
from replication.net.seams import NodeClock
from replication.observe.control import control_routes
from replication.observe.http import LOOPBACK, Site
from replication.observe.isr_reasons import IsrReasons
from replication.observe.journal import JournalEntry
from replication.observe.local_state import LocalState
from replication.observe.page.board import Board
from replication.observe.page.routes import page_routes
from replication.observe.page.timeline import Timeline
from replication.observe.page.watch import Looks, Watch


@attrs.define(eq=False)
class LivePage:
    clock: NodeClock = attrs.field(factory=TrioClock)
    reasons: IsrReasons = attrs.field(init=False)
    _timeline: Timeline = attrs.field(init=False)
    _watch: Watch | None = attrs.field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        self.reasons = IsrReasons(self.clock.now_ms)
        self._timeline = Timeline(self.clock.wall_ms)

    def sink(self, node_id: int) -> EventSink:
        """Where that node's events go, among others."""
        return fan_out(self.reasons.sink, self._timeline.sink(node_id))

    def hear(self, entry: JournalEntry) -> None:
        """The same of a node in another process."""
        self.sink(entry.broker)(entry.event)

    def state_of(self, cluster: Cluster) -> LocalState:
        """Return the state of a cluster in this process."""
        return LocalState(cluster=cluster, reasons=self.reasons)

    def site(self, state: Looks, cluster: AnyCluster, *, port: int, host: str = LOOPBACK) -> Site:
        """The page, and what its buttons ask for."""
        board = Board(self._timeline)
        self._watch = Watch(state=state, board=board, clock=self.clock)
        routes = [*page_routes(board, state.look_in_slices), *control_routes(cluster)]
        return Site(purpose="page", host=host, port=port, routes=routes)

    async def run(self) -> None:
        """Look, until cancelled."""
        assert self._watch is not None, "there is a site to look for"
        await self._watch.run()
