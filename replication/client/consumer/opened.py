"""What the calls of an open consumer stand on."""

from typing import TYPE_CHECKING, TypeAlias

from replication.client.consumer.assembly import Parts
from replication.client.consumer.config import ConsumerConfig
from replication.client.consumer.group.listener import ConsumerRebalanceListener
from replication.client.consumer.interceptors import Interceptors
from replication.client.consumer.poll_loop import PollLoop
from replication.client.consumer.subscription import SubscriptionState
from replication.client.errors import IllegalStateError
from replication.net.seams import Seams
from storage.types import TopicPartition

if TYPE_CHECKING:
    from replication.client.consumer.group.coordinator import ConsumerCoordinator

AnyPartition: TypeAlias = TopicPartition | tuple[str, int]


class OpenConsumer:
    """Its parts are there between entering its block and leaving it."""

    config: ConsumerConfig
    _seams: Seams
    _subscriptions: SubscriptionState
    _interceptors: Interceptors
    _listener: ConsumerRebalanceListener
    _parts: Parts | None
    _loop: PollLoop | None
    _coordinator: "ConsumerCoordinator | None"

    def _wake(self) -> None:
        if self._loop is not None:
            self._loop.wake()

    def _timeout(self, timeout_ms: float | None) -> float:
        return self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms

    @property
    def _open_parts(self) -> Parts:
        if self._parts is None:
            raise IllegalStateError("a consumer is used inside `async with`")
        return self._parts

    @property
    def _open_loop(self) -> PollLoop:
        if self._loop is None:
            raise IllegalStateError("a consumer is used inside `async with`")
        return self._loop

    @property
    def _open_coordinator(self) -> "ConsumerCoordinator":
        if self.config.group_id is None:
            raise IllegalStateError("this needs a group.id")
        if self._coordinator is None:
            raise IllegalStateError("a consumer is used inside `async with`")
        return self._coordinator
