"""A node with both roles, `process.roles=broker,controller`: one replica of the metadata log.

    controller ── __cluster_metadata-0 ── MetadataCache ──> broker
        └──────── in the first of log.dirs, or metadata.log.dir

Rule 1: the controller starts first and stops last: the broker leaves its cluster while the quorum
still has all its voters. (Kafka: KafkaRaftServer, SharedServer.)

Rule 2: where one of the two fails, the node ends.
"""

import attrs
import trio

from replication.broker.broker import CONTROLLED_SHUTDOWN_SECONDS, Broker
from replication.config import BrokerConfig
from replication.controller.controller import Controller
from replication.errors import OnBug
from replication.events import EventSink, ignore
from replication.faults.node_faults import Faults
from replication.net.raising import raising_only_one
from replication.net.seams import Seams
from storage.attributes import define


@define(eq=False, repr=False, kw_only=True)
class CombinedNode:
    """One incarnation of a node with both roles, which runs once."""

    config: BrokerConfig
    seams: Seams
    on_bug: OnBug
    sink: EventSink = ignore
    faults: Faults | None = None
    controller: Controller = attrs.field(init=False)
    broker: Broker = attrs.field(init=False)
    _has_broker: bool = attrs.field(default=False, init=False)
    """Whether the broker has begun to run."""
    _is_leaving: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.controller = Controller(
            config=self.config,
            seams=self.seams,
            on_bug=self.on_bug,
            sink=self.sink,
            faults=self.faults,
        )
        self.broker = Broker(
            config=self.config,
            seams=self.seams,
            on_bug=self.on_bug,
            sink=self.sink,
            faults=self.faults,
            controller=self.controller,
        )

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until `shut_down` or cancelled; it has started when its broker has."""
        with raising_only_one():
            async with trio.open_nursery() as nursery:
                await nursery.start(self.controller.run)
                if self._is_leaving:
                    task_status.started()
                    return
                self._has_broker = True
                await self.broker.run(task_status)
                self.controller.shut_down()

    def shut_down(self, *, patience_seconds: float = CONTROLLED_SHUTDOWN_SECONDS) -> None:
        """Shut down cleanly, the broker first; `run` returns when that is done."""
        self._is_leaving = True
        self.broker.shut_down(patience_seconds=patience_seconds)
        if not self._has_broker:
            self.controller.shut_down()
