"""The queue of a broker's reports, each of which is sent to the controller until it is answered.

    put ──> queue, one place for each key ──> one request in flight ──> answers
              ^                                       │
              └── no answer, or not for all of them: again after 50 ms

Rule 1: one request is in flight, with the oldest reports, at most `MOST_IN_A_REQUEST` of them,
because its answer wakes as many tasks in one turn of the loop.

Rule 2: an answer about the broker as a whole (stale epoch, not the controller, no
connection) answers no report: all are sent again, without end.

Rule 3: a key that the answer leaves out stays queued.

(DefaultAlterPartitionManager and AssignmentsManager in Kafka.)
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from itertools import islice
from typing import Any, Final, Generic, TypeVar

import attrs
import trio

from replication.errors import ErrorCode, PeerUnavailableError
from replication.net.controller_channel import ControllerCalls
from replication.net.seams import NodeClock
from storage.attributes import define

RETRY_BACKOFF_SECONDS: Final = 0.05
MOST_IN_A_REQUEST: Final = 512

Key = TypeVar("Key", bound=Hashable)
Report = TypeVar("Report")


@define(eq=False, kw_only=True)
class ControllerQueue(ABC, Generic[Key, Report]):
    """The queue for one kind of request; `run` sends the reports."""

    broker_id: int
    broker_epoch: Callable[[], int]
    channel: ControllerCalls
    clock: NodeClock
    timeout_ms: int
    _queued: dict[Key, Report] = attrs.field(factory=dict, init=False)
    _work: trio.Event = attrs.field(factory=trio.Event, init=False)

    @abstractmethod
    def _request(self, queued: dict[Key, Report]) -> Any:
        """Return the request that carries all of `queued`."""

    @abstractmethod
    def _settle(self, queued: dict[Key, Report], response: Any) -> bool:
        """Take what `response` answers off the queue; return whether it answers all of `queued`."""

    def _put(self, key: Key, report: Report) -> None:
        self._queued[key] = report
        self._work.set()

    def _remove(self, key: Key, report: Report) -> None:
        """Take a report off the queue, unless a newer one has taken its place."""
        if self._queued.get(key) == report:
            del self._queued[key]

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._work.wait()
            if not self._queued:
                self._work = trio.Event()
            elif not await self._send(dict(islice(self._queued.items(), MOST_IN_A_REQUEST))):
                await self.clock.sleep(RETRY_BACKOFF_SECONDS)

    async def _send(self, queued: dict[Key, Report]) -> bool:
        """Send `queued`; return whether the controller has answered for every key."""
        try:
            response = await self.channel.call(self._request(queued), timeout_ms=self.timeout_ms)
        except PeerUnavailableError:
            return False
        return response.error_code == ErrorCode.NONE and self._settle(queued, response)
