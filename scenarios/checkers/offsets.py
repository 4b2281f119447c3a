"""Rules about the offsets of one replica's log, and how they may change.

I1   log start <= high watermark <= log end, and the first segment begins no later
I7   while it leads, its high watermark and its log end only grow
I9   so a leader never truncates, and no replica truncates below its own high watermark
I16  no follower fails because it was sent what does not continue its log
I15  after a failed write or sync a log appends nothing more
I17  what lay below the recovery point when a process ended is there for the next one: a flush
     promises that for the segments, their names, and the truncations before them

After half a write the next position is unknown; after a failed sync the kernel marks pages as
clean that it has not written (KAFKA-10778, "fsyncgate").
"""

from collections.abc import Iterator

import attrs

from replication.events import LogTruncated, PartitionFailed
from scenarios.checkers.observed import OnlineReplica, Wrong
from storage.errors import OffsetsOutOfOrderError, UnexpectedAppendOffsetError
from storage.types import Offset

MARKS = "log start <= high watermark <= log end"
FIRST_SEGMENT = "a log's first segment begins at its log start or before"
LEADER_GROWS = "a leader's log start, high watermark and log end only grow"
LEADER_TRUNCATES = "a leader never truncates"
CUT = "no log is cut below its high watermark"
CONTINUES = "a follower's append continues its log"
UNDER_MIN_ISR = "the high watermark stands still below min.insync.replicas"


def marks(replica: OnlineReplica) -> Iterator[Wrong]:
    start, end, high_watermark = replica.log_start, replica.log_end, replica.high_watermark
    if not 0 <= start <= high_watermark <= end:
        yield Wrong(
            MARKS,
            f"{replica.where}: log start {start} <= high watermark {high_watermark}"
            f" <= log end {end}",
        )
    if replica.first_segment > start:
        yield Wrong(
            FIRST_SEGMENT,
            f"{replica.where}: the log starts at {start}, and its first segment at"
            f" {replica.first_segment}",
        )


def leader_grows(before: OnlineReplica, after: OnlineReplica) -> Iterator[Wrong]:
    """Check two states of a leader within one leader epoch."""
    if not _same_leader_epoch(before, after):
        return
    for mark in ("log_start", "high_watermark", "log_end"):
        was, now = getattr(before, mark), getattr(after, mark)
        if now < was:
            yield Wrong(
                LEADER_GROWS,
                f"{after.where}, which leads in epoch {after.leader_epoch}: its"
                f" {mark.replace('_', ' ')} went from {was} back to {now}",
            )


def waits_for_min_isr(before: OnlineReplica, after: OnlineReplica) -> Iterator[Wrong]:
    """Check two states of a leader whose ISR was too small in both (KAFKA-15583)."""
    too_few = len(before.isr) < before.min_isr and len(after.isr) < after.min_isr
    if (
        _same_leader_epoch(before, after)
        and too_few
        and after.high_watermark > before.high_watermark
    ):
        yield Wrong(
            UNDER_MIN_ISR,
            f"{after.where} moved its high watermark from {before.high_watermark} to"
            f" {after.high_watermark} with {len(after.isr)} of {after.min_isr} in sync",
        )


def _same_leader_epoch(before: OnlineReplica, after: OnlineReplica) -> bool:
    return (
        before.is_leader
        and after.is_leader
        and (before.life, before.leader_epoch) == (after.life, after.leader_epoch)
    )


def cut(event: LogTruncated, *, log_start: Offset) -> Iterator[Wrong]:
    """Check a truncation, unless an election may have lost what was committed.

    A log without records loses none, wherever it begins anew.
    """
    if event.to_offset < event.high_watermark and log_start < event.from_offset:
        yield Wrong(
            CUT,
            f"{event.partition} was cut to {event.to_offset}, below its high watermark"
            f" {event.high_watermark}",
        )


def failed_append(event: PartitionFailed) -> Iterator[Wrong]:
    """Check that a follower has not failed because of a batch that does not continue its log.

    A follower that asks for the next offset, and takes only the answer to that, never fails so.
    """
    causes = OffsetsOutOfOrderError.__name__, UnexpectedAppendOffsetError.__name__
    if event.cause.startswith(causes):
        yield Wrong(CONTINUES, f"{event.partition} was given up: {event.cause}")


def leader_truncates(event: LogTruncated, replica: OnlineReplica) -> Iterator[Wrong]:
    if replica.is_leader:
        yield Wrong(
            LEADER_TRUNCATES,
            f"{replica.where}, which leads in epoch {replica.leader_epoch}, was cut from"
            f" {event.from_offset} to {event.to_offset}",
        )


APPENDS_NOTHING = "a log that has failed accepts nothing more"
SYNCED = "what was synced outlives the process, and a power cut"


@attrs.frozen
class FailedLog:
    where: str
    log_end: Offset
    size: int


def appends_nothing_more(before: FailedLog, after: FailedLog) -> Iterator[Wrong]:
    if before != after:
        yield Wrong(
            APPENDS_NOTHING,
            f"{after.where} had failed at {before.log_end} ({before.size} bytes), and goes on to"
            f" {after.log_end} ({after.size} bytes)",
        )


def synced_survives(where: str, recovery_point: Offset, log_end: Offset) -> Iterator[Wrong]:
    """Check I17; `log_end` is the end of the log that the next process has found."""
    if log_end < recovery_point:
        yield Wrong(
            SYNCED,
            f"{where} was synced up to {recovery_point}, and its next process has found it to end"
            f" at {log_end}",
        )
