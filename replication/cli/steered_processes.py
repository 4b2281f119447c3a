"""Steering nodes that are processes of their own: signals, and what any client may ask.

    kill SIGKILL    stop SIGTERM    freeze SIGSTOP    thaw SIGCONT    start: another process

The network between processes is the kernel's, and requests are answered inside them: cuts and
fault rules are for nodes that share a process, and are refused here.
"""

import os
import signal
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NoReturn

import attrs
import trio

from replication.cli.interruptions import STOP_SIGNALS
from replication.cli.isolated import CONTROLLER, HOST, IsolatedCluster, NodeFailedError
from replication.cli.probe import broker_ids, fetch_metadata
from replication.cli.running import reporting_bugs
from replication.cli.served import ControlServer, serve
from replication.cluster.faults import Faults
from replication.cluster.steering import NodeStatus, NotPossibleError
from replication.errors import ProtocolError
from replication.events import ignore
from replication.net.clock import TrioClock
from replication.net.raising import raising_only_one
from replication.observe.control.steered import (
    START_SECONDS,
    Node,
    NotHereError,
    Partition,
    node_name,
)

LOOK_SECONDS = 0.05


def steer(
    cluster: IsolatedCluster,
    control: ControlServer,
    show: Callable[[list[str], Mapping[str, str]], None],
) -> None:
    """Until interrupted; then nobody is frozen any more."""
    cluster.forked = False  # from here on there are threads
    processes = SteeredProcesses(cluster)

    async def run() -> None:
        with trio.open_signal_receiver(*STOP_SIGNALS) as signals, raising_only_one():
            async with trio.open_nursery() as nursery:
                urls = await serve(
                    control.sites(lambda: processes), nursery, reporting_bugs(ignore)
                )
                show(cluster.bootstrap_servers.split(","), cluster.metrics_urls | urls)
                await anext(signals)
                nursery.cancel_scope.cancel()

    try:
        trio.run(run)
    finally:
        processes.thaw_all()


@attrs.define(eq=False)
class SteeredProcesses:
    """`cluster`, whose nodes run; it must not fork any more."""

    cluster: IsolatedCluster
    _frozen: set[int] = attrs.field(init=False, factory=set)

    def nodes(self) -> list[Node]:
        return [
            Node(id=node_id, status=self._status(node_id), address=f"{HOST}:{self._port(node_id)}")
            for node_id in self.cluster.node_ids
        ]

    async def kill(self, node_id: int) -> None:
        self._must_be(node_id, up=True)
        self.cluster.kill(node_id)
        self._frozen.discard(node_id)

    async def stop(self, node_id: int) -> None:
        """SIGKILL if it has not left by then."""
        await self.thaw(node_id)
        await trio.to_thread.run_sync(self.cluster.stop_node, node_id)

    async def start(self, node_id: int) -> None:
        """Given up after START_SECONDS, and then it is killed."""
        self._must_be(node_id, up=False)
        self.cluster.start(node_id)
        with TrioClock().move_on_after(START_SECONDS):
            while not await trio.to_thread.run_sync(self._serves, node_id):
                if not self.cluster.is_running(node_id):
                    raise NodeFailedError(
                        f"{node_name(node_id)} ended: {self.cluster.last_words(node_id)}"
                    )
                await trio.sleep(LOOK_SECONDS)
            return
        await self.kill(node_id)
        raise NotPossibleError(f"not started within {START_SECONDS:g} s: is the controller up?")

    async def freeze(self, node_id: int) -> None:
        self._must_be(node_id, up=True)
        os.kill(self.cluster.pid(node_id), signal.SIGSTOP)
        self._frozen.add(node_id)

    async def thaw(self, node_id: int) -> None:
        self._must_be(node_id, up=True)
        os.kill(self.cluster.pid(node_id), signal.SIGCONT)
        self._frozen.discard(node_id)

    def thaw_all(self) -> None:
        """A process that is stopped (SIGSTOP) would not leave."""
        for node_id in self._frozen:
            if self.cluster.is_running(node_id):
                os.kill(self.cluster.pid(node_id), signal.SIGCONT)
        self._frozen.clear()

    async def make_whole(self) -> None:
        self.thaw_all()
        for node_id in self.cluster.node_ids:
            if not self.cluster.is_running(node_id):
                await self.start(node_id)

    async def topics(self) -> Mapping[str, Sequence[Partition]]:
        """As the first broker that answers knows them."""
        for node_id in self.cluster.node_ids[1:]:
            if self._status(node_id) is NodeStatus.RUNNING:
                ask = partial(fetch_metadata, HOST, self._port(node_id))
                try:
                    metadata = await trio.to_thread.run_sync(ask)
                except (OSError, ProtocolError):
                    continue
                return {
                    topic.name or "": [
                        Partition(
                            partition=each.partition_index,
                            leader=None if each.leader_id < 0 else each.leader_id,
                            leader_epoch=each.leader_epoch,
                            replicas=each.replica_nodes,
                            isr=sorted(each.isr_nodes),
                        )
                        for each in sorted(topic.partitions, key=lambda one: one.partition_index)
                    ]
                    for topic in metadata.topics
                }
        raise NotPossibleError("no broker answers")

    def cuts(self) -> NoReturn:
        raise NotHereError(
            "the network between processes is not cut here; without --isolated it is"
        )

    def cut(self, some: Iterable[int], others: Iterable[int] | None, *, one_way: bool) -> NoReturn:  # noqa: ARG002 - as elsewhere
        self.cuts()

    def heal(self) -> NoReturn:
        self.cuts()

    @property
    def faults(self) -> Faults:
        raise NotHereError(
            "fault rules are for brokers in one process; without --isolated they are"
        )

    def _status(self, node_id: int) -> NodeStatus:
        if not self.cluster.is_running(node_id):
            return NodeStatus.DOWN
        return NodeStatus.FROZEN if node_id in self._frozen else NodeStatus.RUNNING

    def _port(self, node_id: int) -> int:
        return self.cluster.ports[node_id - 1]  # the controller's is the last

    def _serves(self, node_id: int) -> bool:
        if node_id == CONTROLLER:
            with socket.socket() as probing:
                return probing.connect_ex((HOST, self._port(node_id))) == 0
        return node_id in broker_ids(HOST, self._port(node_id))

    def _must_be(self, node_id: int, *, up: bool) -> None:
        if self.cluster.is_running(node_id) != up:
            raise NotPossibleError(f"{node_name(node_id)} is {'down' if up else 'up'} already")
