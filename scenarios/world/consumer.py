"""A consumer of a story that continues where it stopped, whatever happens to the cluster.

    poll ─> Fetch at the position, once ─> records       the position is after them
                                       ─> out of range   it asks where the log begins and ends

Our own Consumer runs as a program (`clients/reading`). This one fetches once for each command, so
that a story says at which moment it reads, and keeps what `history` judges.

Rule 1: a follower that is behind may also answer out of range (KIP-392). So the leader is asked
where its log begins and ends, and the position is chosen by that.

Rule 2: if the log begins only after its position, the records between were deleted: from there on
it counts as another consumer. If the log ends before its position it stays the same consumer, and
records that it receives again count against the cluster (`history.backwards`).

Rule 3: without an answer its position stays. It does one thing at a time.
"""

import attrs

from replication.errors import ErrorCode, KafkaError
from replication.wire.list_offsets import EARLIEST, LATEST
from scenarios.world.client import StoryClient
from scenarios.world.history import At, Polled
from storage.types import Offset, TopicPartition


@attrs.define(eq=False, kw_only=True)
class StoryConsumer:
    client: StoryClient
    partition: TopicPartition
    polls: list[Polled] = attrs.field(factory=list, init=False)
    _position: Offset | None = attrs.field(default=None, init=False)
    _session: int = attrs.field(default=1, init=False)
    _is_polling: bool = attrs.field(default=False, init=False)

    async def poll(self, *, rack: str = "") -> tuple[At, ...]:
        """Return the records of one poll; none if another poll is under way.

        Raises KafkaError or PeerUnavailableError if there is no answer.
        """
        if self._is_polling:
            return ()
        self._is_polling = True
        try:
            return await self._poll(rack)
        finally:
            self._is_polling = False

    async def _poll(self, rack: str) -> tuple[At, ...]:
        if self._position is None:
            self._position = await self._ask(EARLIEST)
        try:
            given, self._position = await self.client.poll(
                self.partition, self._position, rack=rack
            )
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            await self._find_anew(self._position)
            return ()
        records = tuple((record.offset, record.value) for record in given)
        self.polls.append(Polled(session=self._session, records=records))
        return records

    async def _find_anew(self, position: Offset) -> None:
        begins, ends = await self._ask(EARLIEST), await self._ask(LATEST)
        if not begins <= position <= ends:
            self._position = begins
            self._session += begins > position

    async def _ask(self, timestamp: int) -> Offset:
        error, offset = await self.client.list_offset(self.partition, timestamp)
        if error is not ErrorCode.NONE:
            raise KafkaError(error, f"where {self.partition} begins or ends")
        return offset
