"""Looks at the cluster a few times a second, and puts what it sees on the board.

    nodes ──look──> ClusterState ──> Board ──> each browser, as fast as it reads
      └───events──> Timeline ─────────┘

Rule 1: looking takes a twentieth of the time at most: what takes longer is done less often. And
it is done in slices, for the brokers are on the same loop.

Rule 2: what was done to a node (killed, frozen, cut off) is no event of the node's. It shows
between two looks, whoever has done it, and is told then.
"""

from collections.abc import Iterator
from typing import Protocol

import attrs

from replication.net.seams import NodeClock
from replication.observe.cluster_state import ClusterState, Status
from replication.observe.local_state import nodes
from replication.observe.page.board import Board
from replication.observe.page.timeline import node_name
from replication.observe.sentences import FAULT, NEWS

LOOK_SECONDS = 0.2
SHARE_OF_TIME = 20

_SAID = {
    Status.DOWN: (FAULT, "is down"),
    Status.FROZEN: (FAULT, "is frozen: it answers nobody, and nobody is told"),
    Status.UP: (NEWS, "is up"),
    Status.STARTING: (NEWS, "starts"),
}


class Looks(Protocol):
    """Who says how a cluster stands."""

    async def look_in_slices(self) -> ClusterState:
        """Others on the loop have their turn meanwhile."""


@attrs.define(eq=False, kw_only=True)
class Watch:
    state: Looks
    board: Board
    clock: NodeClock
    _before: ClusterState | None = attrs.field(init=False, default=None)

    async def run(self) -> None:
        while True:
            began = self.clock.now()
            await self.look()
            took = self.clock.now() - began
            await self.clock.sleep(max(LOOK_SECONDS, took * SHARE_OF_TIME))

    async def look(self) -> None:
        found = await self.state.look_in_slices()
        if self._before is not None:
            self._tell_nodes(self._before, found)
            self._tell_cuts(self._before, found)
        self._before = found
        self.board.put(found)

    def _tell_nodes(self, before: ClusterState, after: ClusterState) -> None:
        was = dict(nodes(before))
        for node_id, status in nodes(after):
            if was.get(node_id) is not status and status in _SAID:
                kind, text = _SAID[status]
                self._tell(node_id, f"node_{status}", kind, f"{node_name(node_id)} {text}")

    def _tell_cuts(self, before: ClusterState, after: ClusterState) -> None:
        was, now = set(before.cut), set(after.cut)
        for source, target, both in _told_once(now - was):
            between = "between {} and {}" if both else "from {} to {}"
            names = between.format(node_name(source), node_name(target))
            self._tell(source, "link_cut", FAULT, f"nothing passes {names}")
        for source, target, both in _told_once(was - now):
            again = "{} and {} reach each other again" if both else "{} reaches {} again"
            names = again.format(node_name(source), node_name(target))
            self._tell(source, "link_healed", NEWS, names)

    def _tell(self, node_id: int, name: str, kind: str, text: str) -> None:
        self.board.timeline.add(node=node_name(node_id), name=name, kind=kind, text=text)


def _told_once(links: set[tuple[int, int]]) -> Iterator[tuple[int, int, bool]]:
    """Each pair, and whether it is about both directions."""
    for source, target in sorted(links):
        both = (target, source) in links
        if not both or source < target:
            yield source, target, both
