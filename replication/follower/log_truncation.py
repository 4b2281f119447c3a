"""Truncation: a fetcher truncates its logs to where they agree with the leader's.

Three ways lead to a truncation, and `rules/truncation.py` decides each:

    before fetching   ask the leader where our last epoch ends; a log without any epoch is
                      truncated to where it began to follow, its high watermark
    while fetching    the response names the epoch at which the logs diverge (Fetch v12, KIP-595)
    out of range      the leader does not have our offset: ask for the two ends of its log

A fetcher that reads as a consumer learns the leader's high watermark instead of its log end, and
that may lag behind what was committed long ago. There the leader's log start alone decides whether
to start over, and leader epochs whether to truncate.

A truncation that is not *completed* has to be followed by another question. If fetches carry
epochs the next fetch is that question; otherwise the partition stays Truncating.

After an answer of the leader was awaited, a partition counts only if its state is still the same
object, or at least of the same leader epoch.
"""

from collections.abc import Mapping
from functools import partial

import attrs

from replication.errors import (
    ErrorCode,
    KafkaError,
    PeerUnavailableError,
    ProtocolError,
    UnderstudyError,
)
from replication.events import LogTruncated
from replication.follower.leader_endpoint import EpochEnd, EpochWanted
from replication.follower.partitions import FollowedPartitions
from replication.follower.rules.fetch_state import FetchPhase, PartitionFetchState
from replication.follower.rules.truncation import (
    OffsetReset,
    OffsetTruncationState,
    Reset,
    reset_above_leader,
    reset_as_consumer,
    reset_offset,
    truncation_offset,
)
from storage.errors import StorageError
from storage.types import Offset, OffsetAndEpoch, TopicPartition


async def maybe_truncate(partitions: FollowedPartitions) -> None:
    """Truncate the logs that must be truncated before they are fetched; most often none.

    Raises ProtocolError if the leader answers for a partition that was not in the request.
    """
    truncating = partitions.states.truncating(partitions.clock.now())
    if not truncating:
        return
    for tp, state in truncating:
        if state.needs_offset:
            await fetch_offset_and_truncate(partitions, tp, state)
    with_epochs = _truncate_logs_without_epochs(partitions)
    if with_epochs:
        await _truncate_to_epoch_end_offsets(partitions, with_epochs)


def _truncate_logs_without_epochs(
    partitions: FollowedPartitions,
) -> dict[TopicPartition, EpochWanted]:
    """Truncate these to where they began; return what to ask the leader about the others."""
    with_epochs: dict[TopicPartition, EpochWanted] = {}
    truncated: dict[TopicPartition, OffsetTruncationState] = {}
    for tp, state in partitions.states.truncating(partitions.clock.now()):
        if state.needs_offset:
            continue
        try:
            latest = partitions.replicas.latest_epoch(tp)
        except (StorageError, UnderstudyError):
            partitions.delay([tp])
            continue
        if latest is not None:
            with_epochs[tp] = EpochWanted(state.current_leader_epoch, latest)
            continue
        found = OffsetTruncationState(state.fetch_offset, completed=True)
        if _truncate_log(partitions, tp, state, found, cause="no leader epoch"):
            truncated[tp] = found
    if truncated:
        _fetch_from(partitions, truncated)
    return with_epochs


async def _truncate_to_epoch_end_offsets(
    partitions: FollowedPartitions, wanted: Mapping[TopicPartition, EpochWanted]
) -> None:
    """Ask the leader where these epochs end, and truncate to there."""
    answers = await partitions.leader.fetch_epoch_end_offsets(wanted)
    if not answers.keys() <= wanted.keys():
        extra = sorted(answers.keys() - wanted.keys())
        raise ProtocolError(f"broker {partitions.leader.broker.id} answers for {extra}, unasked")
    ends: dict[TopicPartition, OffsetAndEpoch] = {}
    for tp, asked in wanted.items():
        state = partitions.states.get(tp)
        if state is None or state.current_leader_epoch != asked.current_leader_epoch:
            continue  # it has changed while the leader was asked
        answer = answers.get(tp, EpochEnd(ErrorCode.UNKNOWN_SERVER_ERROR))
        if answer.error is ErrorCode.NONE:
            ends[tp] = answer.end
        elif answer.error is ErrorCode.FENCED_LEADER_EPOCH:
            partitions.on_fenced(tp, asked.current_leader_epoch)
        else:
            partitions.delay([tp])
    truncate_to_epoch_ends(partitions, ends, cause="leader epoch")


def truncate_to_epoch_ends(
    partitions: FollowedPartitions, ends: Mapping[TopicPartition, OffsetAndEpoch], *, cause: str
) -> None:
    """Truncate each log to where it and the leader's may agree; one that cannot be fails."""
    truncated: dict[TopicPartition, OffsetTruncationState] = {}
    for tp, end in ends.items():
        state = partitions.states.get(tp)
        if state is None:
            continue
        try:
            found = truncation_offset(
                leader=end,
                fetch_offset=state.fetch_offset,
                log_end=partitions.replicas.log_end_offset(tp),
                local_end=partial(partitions.replicas.end_offset_for_epoch, tp),
            )
        except Exception as error:  # noqa: BLE001 - an error of one partition is its own
            partitions.on_log_error(tp, error)
            continue
        if _truncate_log(partitions, tp, state, found, cause=cause):
            truncated[tp] = found
    if ends:
        _fetch_from(partitions, truncated)


def _fetch_from(
    partitions: FollowedPartitions, truncated: Mapping[TopicPartition, OffsetTruncationState]
) -> None:
    """Fetch each partition from where its log was truncated, or ask again about its epochs."""
    states: dict[TopicPartition, PartitionFetchState] = {}
    for tp, found in truncated.items():
        state = partitions.states.get(tp)
        if state is not None:
            fetches = found.completed or partitions.leader.supports_truncation_on_fetch
            states[tp] = attrs.evolve(
                state,
                fetch_offset=found.offset,
                last_fetched_epoch=partitions.replicas.latest_epoch(tp),
                phase=FetchPhase.FETCHING if fetches else FetchPhase.TRUNCATING,
            )
    partitions.states.regroup(states)
    for tp, state in states.items():
        partitions.report_fetching(tp, state)


async def fetch_offset_and_truncate(
    partitions: FollowedPartitions, tp: TopicPartition, state: PartitionFetchState
) -> None:
    """Ask the leader for its log's ends, and truncate, keep or start over our log."""
    try:
        reset = await _find_reset(partitions, tp, state)
    except (KafkaError, StorageError, PeerUnavailableError, ProtocolError) as error:
        if isinstance(error, KafkaError) and error.code is ErrorCode.FENCED_LEADER_EPOCH:
            partitions.on_fenced(tp, state.current_leader_epoch)
        elif partitions.states.get(tp) is state:
            partitions.delay([tp])
        return
    if partitions.states.get(tp) is state:
        _reset(partitions, tp, state, reset)


async def _find_reset(
    partitions: FollowedPartitions, tp: TopicPartition, state: PartitionFetchState
) -> OffsetReset:
    epoch = state.current_leader_epoch
    if partitions.as_consumer:
        leader_start = (await partitions.leader.fetch_earliest_offset(tp, epoch)).offset
        return reset_as_consumer(
            leader_start=leader_start, local_end=partitions.replicas.log_end_offset(tp)
        )
    leader_end = (await partitions.leader.fetch_latest_offset(tp, epoch)).offset
    local_end = partitions.replicas.log_end_offset(tp)
    above = reset_above_leader(leader_end=leader_end, local_end=local_end)
    if above is not None:
        return above
    leader_start = (await partitions.leader.fetch_earliest_offset(tp, epoch)).offset
    return reset_offset(leader_start=leader_start, leader_end=leader_end, local_end=local_end)


def _reset(
    partitions: FollowedPartitions,
    tp: TopicPartition,
    state: PartitionFetchState,
    reset: OffsetReset,
) -> None:
    offset, kind = reset.fetch_offset, reset.reset
    if kind is Reset.ASK_EPOCHS:
        _ask_epochs(partitions, tp, state, offset)
        return
    if kind is not Reset.KEEP and not _truncate_log(
        partitions,
        tp,
        state,
        OffsetTruncationState(offset, completed=True),
        fully=kind is Reset.START_OVER,
        cause="offset out of range",
    ):
        return
    found = attrs.evolve(
        state,
        fetch_offset=offset,
        lag=reset.lag,
        delayed_until=None,
        phase=FetchPhase.FETCHING,
        last_fetched_epoch=partitions.replicas.latest_epoch(tp),
    )
    partitions.states.update_and_move_to_end(tp, found)
    partitions.stats.set_lag(tp, reset.lag)
    partitions.report_fetching(tp, found)


def _ask_epochs(
    partitions: FollowedPartitions,
    tp: TopicPartition,
    state: PartitionFetchState,
    fetch_offset: Offset,
) -> None:
    """Ask for the end of our last epoch, one backoff later.

    Without the delay, a leader that does not know our epochs either would be asked for ever.
    """
    asking = attrs.evolve(state, fetch_offset=fetch_offset, phase=FetchPhase.TRUNCATING)
    partitions.states.update_and_move_to_end(tp, asking)
    partitions.report_refused(tp, state.current_leader_epoch, ErrorCode.OFFSET_OUT_OF_RANGE)
    partitions.delay([tp])


def _truncate_log(
    partitions: FollowedPartitions,
    tp: TopicPartition,
    state: PartitionFetchState,
    to: OffsetTruncationState,
    *,
    fully: bool = False,
    cause: str,
) -> bool:
    """Truncate the log to an offset, or empty it (`fully`) and start it there.

    Return False if that was impossible; the partition has failed then.
    """
    replicas = partitions.replicas
    try:
        from_offset = replicas.log_end_offset(tp)
        high_watermark = replicas.high_watermark(tp)
        if fully:
            replicas.truncate_fully_and_start_at(tp, to.offset)
        else:
            replicas.truncate_to(tp, to.offset, completed=to.completed)
        to_offset = replicas.log_end_offset(tp)
    except Exception as error:  # noqa: BLE001 - an error of one partition is its own
        partitions.on_log_error(tp, error)
        return False
    if to_offset != from_offset:
        partitions.sink(
            LogTruncated(
                partition=tp,
                from_offset=from_offset,
                to_offset=to_offset,
                high_watermark=high_watermark,
                cause=cause,
                leader_epoch=state.current_leader_epoch,
            )
        )
    return True
