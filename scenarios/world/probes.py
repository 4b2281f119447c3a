"""Clients that break their protocol on purpose, and judge the answers.

    probe_session    a fetch session whose requests come twice, forget a partition, diverge twice,
                     and begin anew (KIP-227)
    probe_producer   an idempotent producer whose batches come again, leave a sequence out, wrap
                     from 2^31-1 to 0, and come under an earlier epoch (KIP-98)

What a leader has to answer depends on one connection alone, so long as it leads in the same
leader epoch. A probe yields what is wrong, and ends where the cluster answers something else that
it may answer at any time: its connection breaks, the session was evicted, the leader is deposed.

Clients that keep to the protocol seldom send such requests: their connection has to break at the
right moment first.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final, NamedTuple

import attrs

from replication.errors import ErrorCode
from replication.leader.rules.fetch_session import INITIAL_EPOCH
from replication.net.rpc import RpcClient
from replication.wire.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from scenarios.world.client import (
    FETCH_VERSION,
    READ_BYTES,
    AckedBatch,
    Outcome,
    ProducerSequence,
    Refused,
    SentRecords,
    StoryClient,
)
from storage.batch.record_batch import MAX_SEQUENCE
from storage.types import LeaderEpoch, Offset, TopicPartition

PROBE_MS: Final = 2_000
UNKNOWN: Final = 100_000
"""The number of a partition that does not exist: it is answered with an error each time."""
FAR: Final = 1 << 40
"""An offset past the end of every log."""
_SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
)


class _SessionAnswer(NamedTuple):
    error: ErrorCode
    session_id: int
    partitions: Mapping[int, PartitionData]


@attrs.define(eq=False)
class _ProbedSession:
    client: RpcClient
    topic: str
    session_id: int = 0

    async def ask(
        self, epoch: int, *wanted: FetchPartition, forgotten: Sequence[int] = ()
    ) -> _SessionAnswer:
        topics = [FetchTopic(topic=self.topic, partitions=list(wanted))] if wanted else []
        gone = [ForgottenTopic(topic=self.topic, partitions=list(forgotten))] if forgotten else []
        response: FetchResponse = await self.client.call(
            FetchRequest(
                max_bytes=READ_BYTES,
                session_id=self.session_id,
                session_epoch=epoch,
                topics=topics,
                forgotten_topics_data=gone,
            ),
            version=FETCH_VERSION,
            timeout_ms=PROBE_MS,
        )
        partitions = {
            each.partition_index: each for t in response.responses for each in t.partitions
        }
        return _SessionAnswer(ErrorCode.of(response.error_code), response.session_id, partitions)


async def probe_session(
    client: RpcClient, partition: TopicPartition, leader_epoch: LeaderEpoch
) -> AsyncIterator[str]:
    """Yield what is wrong with the answers of a leader to the requests of one session."""
    session, number = _ProbedSession(client, partition.topic), partition.partition
    opened = await session.ask(INITIAL_EPOCH, _wanted(number, FAR, leader_epoch), _wanted(UNKNOWN))
    if opened.error is not ErrorCode.NONE or not opened.session_id:
        return  # there is no slot
    session.session_id = opened.session_id
    first = await session.ask(1)
    if first.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
        return
    if UNKNOWN not in first.partitions:
        yield "an error is answered once only"
    if opened.partitions[number].diverging_epoch.epoch >= 0 and number not in first.partitions:
        yield "a divergence is answered once only"
    overtaken = await session.ask(1)
    if overtaken.error not in _SESSION_ERRORS:
        yield f"a request with the epoch of the one before is answered with {overtaken.error.name}"
        return
    forgot = await session.ask(2, forgotten=[UNKNOWN])
    if UNKNOWN in forgot.partitions:
        yield "a partition that was forgotten is answered"
    last = forgot.partitions.get(number)
    if last is not None and last.diverging_epoch.epoch >= 0:
        cut = await session.ask(3, _wanted(number, last.diverging_epoch.end_offset))
        if cut.error is ErrorCode.NONE and number not in cut.partitions:
            yield "the high watermark that came beside a divergence is not answered again"
        diverges = await session.ask(4, _wanted(number, FAR, leader_epoch))
        if diverges.error is ErrorCode.NONE and number not in diverges.partitions:
            yield "a divergence is not answered, where nothing else is new"
    renewed = await session.ask(INITIAL_EPOCH, _wanted(number))
    if renewed.error is ErrorCode.NONE and renewed.session_id != session.session_id:
        former = await session.ask(5)
        if former.error is not ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            yield f"a session that was begun anew is answered with {former.error.name}"


def _wanted(number: int, offset: Offset = 0, last_epoch: LeaderEpoch = -1) -> FetchPartition:
    return FetchPartition(
        partition=number,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=READ_BYTES,
    )


async def probe_producer(
    story: StoryClient, client: RpcClient, batches: Sequence[SentRecords], led: Callable[[], bool]
) -> AsyncIterator[str]:
    """Yield what is wrong with the answers of a leader to eight batches of one record each.

    `led` says whether it has led in the same leader epoch since it was connected to.
    """

    async def send(batch: SentRecords, sequence: int, *, epoch: int = 0, of: int = 0) -> Outcome:
        batch.sequence = ProducerSequence(
            producer_id=producer_ids[of], producer_epoch=epoch, base_sequence=sequence
        )
        batch.sent_at = story.seams.clock.now()
        outcome = await story.ask(client, batch, PROBE_MS)
        story.finish(batch, outcome)
        return outcome

    producer_ids = [await story.init_producer_id() for _ in range(2)]
    first, second, third, leaves_out, begins, earlier, last, wraps = batches
    for sequence, batch in enumerate((first, second, third)):
        if not isinstance(await send(batch, sequence), AckedBatch):
            return
    written, repeated = first.outcome, await story.ask(client, first, PROBE_MS)
    if led() and repeated != written and _is_judged(repeated):
        yield f"a batch that was acked, {written}, is answered with {repeated} when it comes again"
    if isinstance(found := await send(leaves_out, 9), AckedBatch) and led():
        yield f"sequence 9 after 2: {found}"
    if not isinstance(await send(begins, 0, epoch=1), AckedBatch):
        return
    if isinstance(found := await send(earlier, 0, epoch=0), AckedBatch) and led():
        yield f"epoch 0 after 1: {found}"
    if isinstance(await send(last, MAX_SEQUENCE, of=1), AckedBatch):
        found = await send(wraps, 0, of=1)
        if led() and isinstance(found, Refused) and _is_judged(found):
            yield f"sequence 0 after {MAX_SEQUENCE}: {found}"


def _is_judged(outcome: Outcome) -> bool:
    """Return whether only the sequence can have led to this answer."""
    return isinstance(outcome, AckedBatch) or outcome in (
        Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        Refused(ErrorCode.DUPLICATE_SEQUENCE_NUMBER),
    )
