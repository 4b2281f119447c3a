"""A story's own producers and consumer that go on after a failure, one attempt at a time.

    StoryConsumer     continues where it stopped, whatever happens to the cluster
    deliver           sends again without sequences: a batch whose answer was lost is written twice
    IdempotentLane    an idempotent producer's batches to one partition (KIP-98): in order, up to
                      five in flight, and none is written twice

    waiting   [7-8 sent][9-9 sent][10-12 sent][. new][. new]
              after a failure all sent batches go again, in order

Our own Producer and Consumer run as programs (`clients/`). These keep the answer to every single
attempt, and what a batch may have become, which `history` and the ledger judge; and the consumer
fetches once for each command, so that a story says at which moment it reads.

Rule 1: a batch gets its sequence when it is first sent, and keeps it.

Rule 2: a batch that may be written and is given up, because its time is over or it was refused for
good, ends the sequence: all batches that were sent and not answered are given up with it, and
later ones go under a new producer id (KIP-360 bumps the epoch instead).

Rule 3: a batch counts as refused only if it was never sent before, or was always refused before it
was written. Any other batch without an ack may be there or not.

Rule 4: a follower that is behind may also answer a consumer out of range (KIP-392). So the leader
is asked where its log begins and ends, and the position is chosen by that.

Rule 5: if the log begins only after a consumer's position, the records between were deleted: from
there on it counts as another consumer. If the log ends before its position it stays the same
consumer, and records that it receives again count against the cluster (`checkers.anomalies`).

Rule 6: without an answer a consumer's position stays. It does one thing at a time.
"""

from functools import partial
from typing import Final

import attrs
import trio

from replication.errors import ErrorCode, KafkaError, PeerUnavailableError
from replication.wire.list_offsets import EARLIEST, LATEST
from scenarios.world.client import (
    AckedBatch,
    NoAnswer,
    Outcome,
    ProducerSequence,
    Refused,
    SentRecords,
    StoryClient,
    closing,
)
from scenarios.world.history import At, Poll
from storage.types import Offset, TopicPartition

MAX_IN_FLIGHT: Final = 5
BACKOFF_SECONDS: Final = 0.3
GIVEN_UP: Final = NoAnswer("given up")
_MAY_BE_THERE: Final = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,  # a leader that was deposed after its append
    }
)


def _may_be_there(outcome: Outcome) -> bool:
    return isinstance(outcome, NoAnswer) or (
        isinstance(outcome, Refused) and outcome.error in _MAY_BE_THERE
    )


async def deliver(
    client: StoryClient, batch: SentRecords, *, timeout_ms: int, delivery_timeout_ms: int
) -> None:
    """Send a batch until it is acked, refused for good, or its time is over."""
    clock = client.seams.clock
    until = clock.now() + delivery_timeout_ms / 1000
    batch.sent_at = clock.now()
    may_be_there = False
    while True:
        outcome: Outcome = GIVEN_UP
        batch.attempts += 1
        with clock.move_on_after(until - clock.now()):
            outcome = await client.attempt(batch, timeout_ms)
        may_be_there |= _may_be_there(outcome)
        again = not isinstance(outcome, Refused) or outcome.error.retriable
        if isinstance(outcome, AckedBatch) or not again or clock.now() + BACKOFF_SECONDS >= until:
            break
        client.tell(batch, outcome)
        await clock.sleep(BACKOFF_SECONDS)
    client.finish(batch, _known(outcome, may_be_there=may_be_there))


def _known(outcome: Outcome, *, may_be_there: bool) -> Outcome:
    """Return what is known of a batch with this last outcome (rule 3)."""
    if isinstance(outcome, Refused) and may_be_there:
        return NoAnswer(f"{outcome.error.name}, after others")
    return outcome


@attrs.define(eq=False)
class _Waiting:
    batch: SentRecords
    timeout_ms: int
    until: float
    answered: trio.Event = attrs.field(factory=trio.Event)
    may_be_there: bool = False

    @property
    def was_sent(self) -> bool:
        return self.batch.sequence is not None


@attrs.define(eq=False)
class IdempotentLane:
    """The batches of one producer to one partition."""

    client: StoryClient
    partition: TopicPartition
    _producer_id: int | None = attrs.field(default=None, init=False)
    _next_sequence: int = attrs.field(default=0, init=False)
    _waiting: list[_Waiting] = attrs.field(factory=list, init=False)
    _busy: bool = attrs.field(default=False, init=False)

    async def send(self, batch: SentRecords, *, timeout_ms: int, delivery_timeout_ms: int) -> None:
        """Send a batch; return when it has an outcome. The first caller works for all that wait."""
        batch.sent_at = self._now()
        waiting = _Waiting(batch, timeout_ms, batch.sent_at + delivery_timeout_ms / 1000)
        self._waiting.append(waiting)
        if self._busy:
            await waiting.answered.wait()
            return
        self._busy = True
        try:
            while self._waiting:
                await self._round()
        finally:
            self._busy = False

    def _now(self) -> float:
        return self.client.seams.clock.now()

    async def _round(self) -> None:
        """Send all batches once that may be in flight."""
        self._give_up_timed_out()
        if not self._waiting:
            return
        if self._producer_id is None and not await self._begin():
            return
        group = self._waiting[:MAX_IN_FLIGHT]
        for waiting in group:
            self._put_in_sequence(waiting.batch)
            waiting.batch.attempts += 1
        outcomes = await self._exchange(group)
        for waiting, outcome in zip(group, outcomes, strict=True):
            if waiting in self._waiting:  # not given up with an earlier batch
                self._take(waiting, outcome)
        if any(waiting in self._waiting for waiting in group):
            await self.client.seams.clock.sleep(BACKOFF_SECONDS)

    def _give_up_timed_out(self) -> None:
        late = [each for each in self._waiting if each.until <= self._now()]
        for waiting in late:
            if waiting.was_sent:
                self._end_sequence()
                break
        for waiting in late:
            if waiting in self._waiting:
                self._finish(waiting, GIVEN_UP)

    async def _begin(self) -> bool:
        """Get a producer id; return whether there was one in time."""
        clock = self.client.seams.clock
        with clock.move_on_after(self._waiting[0].until - clock.now()):
            try:
                self._producer_id = await self.client.init_producer_id()
            except (KafkaError, PeerUnavailableError):
                await clock.sleep(BACKOFF_SECONDS)
        self._next_sequence = 0
        return self._producer_id is not None

    def _put_in_sequence(self, batch: SentRecords) -> None:
        if batch.sequence is None:
            assert self._producer_id is not None, "nothing is sent without an id"
            batch.sequence = ProducerSequence(
                producer_id=self._producer_id, producer_epoch=0, base_sequence=self._next_sequence
            )
            self._next_sequence += len(batch.values)

    async def _exchange(self, group: list[_Waiting]) -> list[Outcome]:
        """Send the batches in order over one connection; return the answer to each."""
        outcomes: list[Outcome] = [GIVEN_UP] * len(group)
        clock = self.client.seams.clock
        with clock.move_on_after(group[0].until - clock.now()):
            try:
                connected = await self.client.connect_to_leader(self.partition)
            except PeerUnavailableError as error:
                return [NoAnswer(str(error))] * len(group)
            async with closing(connected) as rpc, trio.open_nursery() as nursery:
                turns = [trio.Event() for _ in range(len(group) + 1)]
                turns[0].set()

                async def ask(number: int, waiting: _Waiting) -> None:
                    await turns[number].wait()
                    turns[number + 1].set()  # the next request is queued after this one
                    outcomes[number] = await self.client.ask(rpc, waiting.batch, waiting.timeout_ms)

                for number, waiting in enumerate(group):
                    nursery.start_soon(partial(ask, number, waiting))
        return outcomes

    def _take(self, waiting: _Waiting, outcome: Outcome) -> None:
        unanswered_before = waiting is not self._waiting[0]
        waiting.may_be_there |= _may_be_there(outcome)
        match outcome:
            case AckedBatch():
                self._finish(waiting, outcome)
            case Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) if unanswered_before:
                self.client.tell(waiting.batch, outcome)
            case Refused(error) if not error.retriable:
                self._finish(waiting, _known(outcome, may_be_there=waiting.may_be_there))
                self._end_sequence()
            case _:
                self.client.tell(waiting.batch, outcome)

    def _end_sequence(self) -> None:
        """Give up the batches that were sent, and the producer id (rule 2)."""
        self._producer_id = None
        for waiting in [each for each in self._waiting if each.was_sent]:
            self._finish(waiting, GIVEN_UP)

    def _finish(self, waiting: _Waiting, outcome: Outcome) -> None:
        self._waiting.remove(waiting)
        self.client.finish(waiting.batch, outcome)
        waiting.answered.set()


@attrs.define(eq=False, kw_only=True)
class StoryConsumer:
    client: StoryClient
    partition: TopicPartition
    polls: list[Poll] = attrs.field(factory=list, init=False)
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
        session = f"consumer {self._session}"
        self.polls.append(
            Poll(
                partition=self.partition,
                records=records,
                session=session,
                read_committed=False,
                at=self.client.seams.clock.now(),
            )
        )
        return records

    async def _find_anew(self, position: Offset) -> None:
        """Begin where the log does if it does not hold `position`.

        That may be the log of a leader that was deposed: a fetch without a leader epoch (KIP-320) asks
        it too.
        """
        begins, ends = await self._ask(EARLIEST), await self._ask(LATEST)
        if not begins <= position <= ends:
            self._position = begins
            self._session += 1

    async def _ask(self, timestamp: int) -> Offset:
        error, offset = await self.client.list_offset(self.partition, timestamp)
        if error is not ErrorCode.NONE:
            raise KafkaError(error, f"where {self.partition} begins or ends")
        return offset
