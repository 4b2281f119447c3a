"""Producer ids from blocks that the controller allocates (KIP-730; ProducerIdManager).

    [ 1000 ................ 1999 ]  only this broker has this block
       └ next

The first task that needs an id after a block is used up fetches the next one; others wait for it.
The rest of a block is lost when the broker stops.
"""

import attrs
import trio

from replication.errors import ErrorCode, KafkaError, PeerUnavailableError
from replication.net.controller_channel import ControllerCalls
from replication.wire.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from storage.attributes import define


@define(eq=False, kw_only=True)
class ProducerIds:
    """The ids that this broker may still allocate."""

    broker_id: int
    channel: ControllerCalls
    timeout_ms: int
    _next: int = attrs.field(default=0, init=False)
    _end: int = attrs.field(default=0, init=False)
    _fetching: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def allocate(self, *, broker_epoch: int) -> int:
        """Return an id that no producer has had; raise KafkaError where the controller gives none."""
        async with self._fetching:
            if self._next == self._end:
                await self._take_block(broker_epoch)
            self._next += 1
            return self._next - 1

    async def _take_block(self, broker_epoch: int) -> None:
        request = AllocateProducerIdsRequest(broker_id=self.broker_id, broker_epoch=broker_epoch)
        try:
            answer = await self.channel.call(request, timeout_ms=self.timeout_ms)
        except PeerUnavailableError as error:
            # A producer retries after this error (ProducerIdManager answers the same).
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error
        assert isinstance(answer, AllocateProducerIdsResponse), (
            "an answer has the type of its request"
        )
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.of(answer.error_code).name
            )
        self._next = answer.producer_id_start
        self._end = answer.producer_id_start + answer.producer_id_len
