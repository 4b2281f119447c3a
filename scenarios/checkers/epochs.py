"""Rules about epochs.

I2   the leader epoch and the partition epoch that a replica acts on never fall, even over a
     restart: a broker takes no role before it knows what was decided when it registered
I2b  no replica holds a batch of a later leader epoch than the one it acts on (KAFKA-18723)
I8   the epoch cache is what a scan of the log derives, and at most the present leader epoch
     besides, which has no records yet; both numbers rise from entry to entry

    log    [0-4 e0][5-9 e2]         log start 3
    cache  (0,3)   (2,5)  (4,10)    the last one: leads in epoch 4, nothing written

A truncation inside a batch removes all of it, and the log still ends at the given offset: the epoch
that began with that batch stays in the cache, as in Kafka (UnifiedLog.truncateTo), and no scan
finds it.

    log    [0-4 e0][5-9 e2]  cut to 7, where the leader's begins    [0-4 e0] 7
    cache  (0,0)   (2,5)                                            (0,0) (2,5)
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from scenarios.checkers.observed import OnlineReplica, Wrong
from storage.checkpoint import EpochEntry
from storage.types import Offset

EPOCHS_RISE = "the epochs that a replica acts on never fall"
FOLLOWED = "no replica holds a later epoch than it acts on"
CACHE = "the epoch cache agrees with the log"


def never_fall(before: OnlineReplica, after: OnlineReplica) -> Iterator[Wrong]:
    for name in ("leader_epoch", "partition_epoch"):
        was, now = getattr(before, name), getattr(after, name)
        if now < was:
            words = name.replace("_", " ")
            yield Wrong(EPOCHS_RISE, f"{after.where} went from {words} {was} back to {now}")


def none_is_later(replica: OnlineReplica) -> Iterator[Wrong]:
    if replica.epochs and replica.epochs[-1].epoch > replica.leader_epoch:
        yield Wrong(
            FOLLOWED,
            f"{replica.where} acts on epoch {replica.leader_epoch}"
            f" and holds {drawn(replica.epochs)}",
        )


def cache_is_derived(replica: OnlineReplica, scanned: Sequence[EpochEntry]) -> Iterator[Wrong]:
    """Check I8; `scanned` is the first batch of each epoch that the log has, or has had."""
    entries, derived = list(replica.epochs), from_start(scanned, replica.log_start)
    if replica.log_start == replica.log_end:
        derived = []  # an empty log knows where it begins, under the last epoch or the next
    for before, after in pairwise(entries):
        if not (before.epoch < after.epoch and before.start_offset < after.start_offset):
            yield Wrong(CACHE, f"{replica.where}: {drawn([before, after])} do not rise")
    entries = [each for each in entries if each not in replica.emptied]
    if entries[: len(derived)] != derived:
        yield Wrong(CACHE, f"{replica.where} has epochs {drawn(entries)}, its log {drawn(derived)}")
        return
    beside = entries[len(derived) :]
    if len(beside) > 1 or any(each.start_offset != replica.log_end for each in beside):
        yield Wrong(
            CACHE,
            f"{replica.where} has epochs {drawn(beside)} beside those of its log,"
            f" which ends at {replica.log_end}",
        )


def from_start(scanned: Sequence[EpochEntry], log_start: Offset) -> list[EpochEntry]:
    """Return the entries once all below the log start is deleted; the entry at the start stays."""
    gone = sum(each.start_offset <= log_start for each in scanned)
    kept = list(scanned[max(0, gone - 1) :])
    if kept and kept[0].start_offset < log_start:
        kept[0] = EpochEntry(kept[0].epoch, log_start)
    return kept


def drawn(entries: Sequence[EpochEntry]) -> str:
    return " ".join(f"({each.epoch},{each.start_offset})" for each in entries) or "none"
