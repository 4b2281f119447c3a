"""The events of a leader's ISR changes, with the figures that decided them."""

from replication.events import FollowersBehind, IsrChanged, IsrChangeProposed, IsrChangeRefused
from replication.leader.rules.isr import IsrAnswer, Pending, PendingExpand, PendingShrink
from replication.leader.rules.leadership import Leadership


def proposed(leadership: Leadership, pending: Pending) -> IsrChangeProposed:
    """Return the event of a proposal: how far leaving or joining members lag, in records and time."""
    joining = (pending.joining,) if isinstance(pending, PendingExpand) else ()
    leaving = tuple(sorted(pending.leaving)) if isinstance(pending, PendingShrink) else ()
    followers = leadership.followers
    states = [followers[each] for each in (*joining, *leaving) if each in followers]
    log_end = leadership.log.log_end_offset
    now_ms = leadership.around.now_ms()
    return IsrChangeProposed(
        partition=leadership.topic_partition,
        leader_epoch=pending.sent.leader_epoch,
        partition_epoch=pending.sent.partition_epoch,
        isr=tuple(sorted(pending.sent.broker_ids)),
        leaving=leaving,
        joining=joining,
        high_watermark=leadership.log.high_watermark,
        log_end_offset=log_end,
        lag=max((log_end - max(each.log_end_offset, 0) for each in states), default=-1),
        lag_ms=max((each.lag_ms(now_ms) for each in states), default=-1),
    )


def refused(leadership: Leadership, pending: Pending, answer: IsrAnswer) -> IsrChangeRefused:
    return IsrChangeRefused(
        partition=leadership.topic_partition,
        leader_epoch=pending.sent.leader_epoch,
        partition_epoch=pending.sent.partition_epoch,
        error=answer.error.name,
        isr=tuple(sorted(pending.sent.broker_ids)),
    )


def changed(leadership: Leadership, previous: frozenset[int]) -> IsrChanged:
    return IsrChanged(
        partition=leadership.topic_partition,
        leader_epoch=leadership.leader_epoch,
        partition_epoch=leadership.partition_epoch,
        isr=tuple(sorted(leadership.isr)),
        previous_isr=tuple(sorted(previous)),
    )


def behind(leadership: Leadership, *, stands: bool) -> FollowersBehind | None:
    """Return which follower is furthest behind; `stands`: also of those in sync.

    A follower that has not fetched from this leader lacks at least what this leader has appended.
    """
    log_end, now_ms = leadership.log.log_end_offset, leadership.around.now_ms()
    lags = {
        broker: log_end - (each.log_end_offset if each.is_known else leadership.epoch_start)
        for broker, each in leadership.followers.items()
        if stands or broker not in leadership.isr
    }
    broker = max(lags, key=lags.__getitem__, default=-1)
    if broker < 0 or lags[broker] <= 0:
        return None
    return FollowersBehind(
        partition=leadership.topic_partition,
        leader_epoch=leadership.leader_epoch,
        log_end_offset=log_end,
        isr=tuple(sorted(leadership.isr)),
        broker=broker,
        lag=lags[broker],
        lag_ms=leadership.followers[broker].lag_ms(now_ms),
    )
