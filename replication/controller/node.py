"""The controller as a node of its own: started, stopped and killed as a broker is.

It keeps nothing back for its end. Everything it has answered for is synced, so leaving in
good order and being killed differ in nothing but the goodbye.
"""

import attrs
import trio

from replication.config import BrokerConfig
from replication.controller.controller import Controller
from replication.events import EventSink, ignore
from replication.faults.node_faults import Faults
from replication.metadata.rules import MetadataImage
from replication.net.raising import raising_only_one, raising_the_first
from replication.net.seams import Seams
from replication.server.server import OnBug
from storage.errors import StorageError


@attrs.define(eq=False, repr=False, kw_only=True)
class ControllerNode:
    """One incarnation of the controller."""

    config: BrokerConfig
    seams: Seams
    on_bug: OnBug
    sink: EventSink = ignore
    faults: Faults | None = None
    controller: Controller = attrs.field(init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    def __attrs_post_init__(self) -> None:
        self.controller = Controller(
            config=self.config,
            seams=self.seams,
            sink=self.sink,
            on_bug=self.on_bug,
            faults=self.faults,
        )

    @property
    def port(self) -> int:
        """Where brokers reach it; 0 before it listens."""
        listener = self.controller.listener
        return 0 if listener is None else listener.port

    @property
    def image(self) -> MetadataImage:
        """Everything that is decided and synced; nothing before it has started."""
        return self.controller.log.synced_image if self.port else MetadataImage()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until `shut_down` or cancelled; started once brokers are answered."""
        ready = False
        # A failing disk may meet the log's sync and a snapshot's, both under way.
        with raising_only_one(), raising_the_first(StorageError), self._scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._control)
                ready = True
                task_status.started()
        if not ready:
            task_status.started()  # and over: it was asked to stop meanwhile

    async def _control(self, task_status: trio.TaskStatus[Controller]) -> None:
        await self.controller.run(task_status=task_status)

    def shut_down(self) -> None:
        """Stop; `run` returns when that is done."""
        self._scope.cancel()
