"""Clients that break their protocol on purpose, and judge the answers.

    probe_session    a fetch session whose requests come twice, forget a partition, diverge twice,
                     and begin anew (KIP-227)
    probe_epoch_end  a question about a leader epoch that has not begun (KIP-101)
    probe_quiet_session   one that has read everything, when records are deleted, a request overtakes
                     another one, and a partition is forgotten that has a new record
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
import trio

from replication.errors import ErrorCode
from replication.leader.rules.fetch_session import INITIAL_EPOCH
from replication.net.rpc import RpcClient
from replication.wire.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from replication.wire.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from replication.wire.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from replication.wire.produce import ACKS_ALL
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
DELETE_RECORDS_VERSION: Final = 2
EPOCH_END_VERSION: Final = 4
FAR_EPOCH: Final = 1 << 20
"""A leader epoch that no partition reaches."""
DELETION_MS: Final = 20_000
"""A follower hears of a deletion with the answer to a fetch, which may wait for some seconds."""
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
class ProbedSession:
    """A fetch session of a consumer, whose requests are made by hand."""

    client: RpcClient
    topic: str
    session_id: int = 0

    async def ask(
        self,
        epoch: int,
        *wanted: FetchPartition,
        forgotten: Sequence[int] = (),
        wait_ms: int = 0,
        isolation_level: int = 0,
        over: RpcClient | None = None,
    ) -> _SessionAnswer:
        """Send one request, by default over the session's own connection."""
        topics = [FetchTopic(topic=self.topic, partitions=list(wanted))] if wanted else []
        gone = [ForgottenTopic(topic=self.topic, partitions=list(forgotten))] if forgotten else []
        response: FetchResponse = await (over or self.client).call(
            FetchRequest(
                max_wait_ms=wait_ms,
                min_bytes=1,
                max_bytes=READ_BYTES,
                isolation_level=isolation_level,
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
    session, number = ProbedSession(client, partition.topic), partition.partition
    opened = await session.ask(
        INITIAL_EPOCH, wanted_at(number, FAR, leader_epoch), wanted_at(UNKNOWN)
    )
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
        cut = await session.ask(3, wanted_at(number, last.diverging_epoch.end_offset))
        if cut.error is ErrorCode.NONE and number not in cut.partitions:
            yield "the high watermark that came beside a divergence is not answered again"
        diverges = await session.ask(4, wanted_at(number, FAR, leader_epoch))
        if diverges.error is ErrorCode.NONE and number not in diverges.partitions:
            yield "a divergence is not answered, where nothing else is new"
    renewed = await session.ask(INITIAL_EPOCH, wanted_at(number))
    if renewed.error is ErrorCode.NONE and renewed.session_id != session.session_id:
        former = await session.ask(5)
        if former.error is not ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            yield f"a session that was begun anew is answered with {former.error.name}"


def wanted_at(number: int, offset: Offset = 0, last_epoch: LeaderEpoch = -1) -> FetchPartition:
    """Return what a request says of a partition whose next record is at `offset`."""
    return FetchPartition(
        partition=number,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=READ_BYTES,
    )


async def probe_epoch_end(client: RpcClient, partition: TopicPartition) -> AsyncIterator[str]:
    """Yield what is wrong with a leader's answer about an epoch that is later than all."""
    wanted = OffsetForLeaderPartition(partition=partition.partition, leader_epoch=FAR_EPOCH)
    response = await client.call(
        OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic=partition.topic, partitions=[wanted])]
        ),
        version=EPOCH_END_VERSION,
        timeout_ms=PROBE_MS,
    )
    answer = response.topics[0].partitions[0]
    if answer.error_code == ErrorCode.NONE and answer.end_offset >= 0:
        yield f"leader epoch {FAR_EPOCH}, which has not begun, ends at {answer.end_offset}"


async def probe_quiet_session(
    story: StoryClient, client: RpcClient, other: RpcClient, topic: str
) -> AsyncIterator[str]:
    """Yield what is wrong with the answers of the leader of partitions 0 and 1 of `topic`, which both
    have records; nobody else writes to them. `client` and `other` are connections to it.
    """
    session = ProbedSession(client, topic)
    opened = await session.ask(INITIAL_EPOCH, wanted_at(0), wanted_at(1))
    session.session_id = opened.session_id
    ends = [opened.partitions[number].high_watermark for number in (0, 1)]
    if not session.session_id or min(ends) < 1:
        return
    await session.ask(1, *map(wanted_at, (0, 1), ends))
    if (await session.ask(2)).error is not ErrorCode.NONE:
        return
    deleted = await _delete_first_record(client, topic)
    if deleted is ErrorCode.REQUEST_TIMED_OUT:
        yield f"records are deleted, and after {DELETION_MS} ms some replica has not heard of it"
    if deleted is not ErrorCode.NONE:
        return
    moved = (await session.ask(3)).partitions.get(0)
    if moved is None or moved.log_start_offset < 1:
        yield "records were deleted, and a session does not hear of it"
    overtaken = await _overtaken(story, session, other, epoch=4)
    if overtaken is ErrorCode.NONE:
        yield "a request is answered though the next one of its session has been accepted"
    if not isinstance(await story.ask(client, _record(topic), PROBE_MS), AckedBatch):
        return
    began = story.seams.clock.now()
    forgot = await session.ask(6, forgotten=[1], wait_ms=PROBE_MS // 2)
    waited = story.seams.clock.now() - began
    if forgot.error is ErrorCode.NONE and not forgot.partitions and waited < PROBE_MS / 4000:
        yield f"a record of a partition that was forgotten ends a wait after {waited:.3f} s"


async def _delete_first_record(client: RpcClient, topic: str) -> ErrorCode:
    partition = DeleteRecordsPartition(partition_index=0, offset=1)
    response = await client.call(
        DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[partition])],
            timeout_ms=DELETION_MS,
        ),
        version=DELETE_RECORDS_VERSION,
        timeout_ms=2 * DELETION_MS,
    )
    return ErrorCode.of(response.topics[0].partitions[0].error_code)


async def _overtaken(
    story: StoryClient, session: ProbedSession, other: RpcClient, *, epoch: int
) -> ErrorCode:
    """Return the answer to a request that waits while the next one of its session is accepted."""
    answers: list[_SessionAnswer] = []

    async def wait() -> None:
        answers.append(await session.ask(epoch, wait_ms=PROBE_MS // 2))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await story.seams.clock.sleep(PROBE_MS / 10_000)
        accepted = await session.ask(epoch + 1, over=other)
    return answers[0].error if accepted.error is ErrorCode.NONE else accepted.error


def _record(topic: str) -> SentRecords:
    return SentRecords(TopicPartition(topic, 1), ("forgotten",), ACKS_ALL)


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
