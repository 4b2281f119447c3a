"""A consumer who goes on where it stopped, through whatever befalls the cluster.

    poll ─> Fetch at the position, once ─> records       the position is behind them
                                       ─> out of range   it asks where the log begins and ends

Rule 1: out of range may also be the word of one who follows by now, and is behind (KIP-392):
so the leader is asked where its log begins and ends, and is fetched from where it has it.

Rule 2: where the log begins only after its position, the records between were deleted: it is
another consumer from there on. Where it ends before, it stays the same one, and what it is
given again counts against the cluster (`history.backwards`).

Rule 3: without an answer it stays where it is. It does one thing at a time.
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
        """What it was given; nothing, too, where it is at it already. KafkaError and
        PeerUnavailableError where it had no answer.
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
