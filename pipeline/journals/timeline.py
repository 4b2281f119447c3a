"""One partition over time, folded from its events in the journals: values and functions.

    10:00:00  elected b1 (created)   isr 1,2,3  ─┐ an interval
    10:00:07  fenced b1              isr 2,3    ─┤ under-replicated
              elected b2 (clean)                 │
    10:00:15  b1 joins               isr 1,2,3  ─┘

Rule 1: the controller's events count as they are in its journal; the partition epoch shows that
a leader's event is about the same change.

Rule 2: a failover begins when a broker is fenced or asks to be shut down, and concerns each
partition that it led. It ends when that partition has a leader, and an ISR with as many members as
before.

Rule 3: losses are counted, not guessed: the records that a truncation removed from a log, and
among them those below a high watermark, which consumers may have read.

Rule 4: each node has its own clock. Times are compared without correction.

Rule 5: a partition had traffic if a high watermark advanced in the leader epoch before the failover
or in the one after it. How long the others were without a first write says nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import attrs

from replication.wire.metadata import NO_LEADER

# An event's columns, as `rows.SCHEMA` names them.
Fact: TypeAlias = dict[str, Any]

PLANNED: Final = "controlled shutdown"  # the cause of a fencing that a broker asked for
# The names of the events that are folded; the next two name rows that the job makes of many.
FOLDED: Final = (
    "leader_elected",
    "partition_offline",
    "isr_changed",
    "became_leader",
    "log_truncated",
    "topic_deleted",
)
FIRST_WRITE: Final = "first_write"  # the first high watermark above a leader epoch's start offset
REACHED: Final = "reached"  # the highest high watermark of a leader epoch


@attrs.frozen(kw_only=True)
class Outage:
    """A time during which a broker was fenced or shut down."""

    broker: int
    began_ms: int
    fenced_ms: int | None
    silent_ms: int  # from its last heartbeat to its fencing; -1 if it asked for it
    cause: str
    over_ms: int | None
    planned: bool
    """Whether the broker shut down on request."""


@attrs.frozen(kw_only=True)
class Interval:
    """The partition's state from `from_ms` to `to_ms`."""

    from_ms: int
    to_ms: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]


@attrs.frozen(kw_only=True)
class Failover:
    """The effect of an outage on a partition that the broker led; None for what never happened."""

    broker: int
    cause: str
    began_ms: int
    silent_ms: int
    fenced_ms: int | None
    elected_ms: int | None
    leader: int | None
    leader_epoch: int | None
    election: str | None
    leading_ms: int | None
    first_write_ms: int | None
    isr_whole_ms: int | None
    truncated: int  # records removed from logs, committed or not
    truncated_committed: int  # those among them below the high watermark
    lost_committed: int  # from the new leader epoch's start offset to the old one's high watermark
    had_traffic: bool
    """Whether records were committed in the leader epoch before, or in the one after."""
    was_deleted: bool
    """Whether its topic was deleted later: what is missing then is no trouble."""
    chain: tuple[str, ...]  # the events of the failover, in order of time


def outages(events: Iterable[Fact]) -> list[Outage]:
    """Return the outages by the controller's events about brokers, in order of time."""
    found: list[Outage] = []
    going: dict[int, Outage] = {}
    for event in events:
        broker, at_ms = event["broker"], event["at_ms"]
        match event["name"]:
            case "controlled_shutdown_started" if broker not in going:
                going[broker] = Outage(
                    broker=broker,
                    began_ms=at_ms,
                    fenced_ms=None,
                    silent_ms=-1,
                    cause=PLANNED,
                    over_ms=None,
                    planned=True,
                )
            case "broker_fenced":
                silent_ms = event["since_heartbeat_ms"]
                started = going.get(broker) or Outage(
                    broker=broker,
                    began_ms=at_ms,
                    fenced_ms=at_ms,
                    silent_ms=-1 if silent_ms is None else silent_ms,
                    cause=event["cause"],
                    over_ms=None,
                    planned=event["cause"] == PLANNED,
                )
                if started.fenced_ms is None:
                    # It may have died during its shutdown.
                    started = attrs.evolve(
                        started,
                        fenced_ms=at_ms,
                        cause=event["cause"],
                        planned=event["cause"] == PLANNED,
                    )
                going[broker] = started
            case "broker_unfenced" if broker in going:
                found.append(attrs.evolve(going.pop(broker), over_ms=at_ms))
            case _:
                pass
    return sorted([*found, *going.values()], key=lambda outage: outage.began_ms)


def intervals(events: Sequence[Fact], end_ms: int) -> list[Interval]:
    """Return the partition's states from its first event to `end_ms` or its topic's deletion."""
    found: list[Interval] = []
    since: int | None = None
    leader, leader_epoch, isr, epoch = NO_LEADER, -1, (), -1
    state: tuple[int, int, tuple[int, ...]] = (leader, leader_epoch, isr)
    for event in events:
        at_ms, before = event["at_ms"], state
        match event["name"]:
            case "leader_elected":
                state = (event["leader"], event["leader_epoch"], tuple(event["isr"]))
            case "partition_offline":
                state = (NO_LEADER, event["leader_epoch"], tuple(event["isr"]))
            case "isr_changed" if event["partition_epoch"] > epoch:
                epoch = event["partition_epoch"]
                state = (state[0], max(state[1], event["leader_epoch"]), tuple(event["isr"]))
            case "topic_deleted":
                end_ms = at_ms
                break
            case _:
                continue
        if state != before:
            if since is not None:
                _add(found, since, at_ms, before)
            since = at_ms
    if since is not None:
        _add(found, since, end_ms, state)
    return found


def _add(
    found: list[Interval], from_ms: int, to_ms: int, state: tuple[int, int, tuple[int, ...]]
) -> None:
    """Add an interval unless it is empty; join it to the last one if their states are equal."""
    leader, leader_epoch, isr = state
    if to_ms <= from_ms:
        return
    if found and (found[-1].leader, found[-1].leader_epoch, found[-1].isr) == state:
        from_ms = found.pop().from_ms
    found.append(
        Interval(from_ms=from_ms, to_ms=to_ms, leader=leader, leader_epoch=leader_epoch, isr=isr)
    )


def failovers(events: Sequence[Fact], known: Sequence[Outage]) -> Iterator[Failover]:
    """Yield the effect of each outage whose broker led this partition."""
    for outage in known:
        before = [event for event in events if event["at_ms"] < outage.began_ms]
        leader = _leader(before)
        if leader is None or leader["leader"] != outage.broker:
            continue
        after = [event for event in events if event["at_ms"] >= outage.began_ms]
        yield _failover(outage, _isr(before), leader["leader_epoch"], before, after)


def _leader(events: Sequence[Fact]) -> Fact | None:
    """Return the last election, or None if the partition went offline after it."""
    for event in reversed(events):
        if event["name"] == "leader_elected":
            return event
        if event["name"] == "partition_offline":
            break
    return None


def _isr(events: Sequence[Fact]) -> tuple[int, ...]:
    for event in reversed(events):
        if event["name"] in ("leader_elected", "isr_changed"):
            return tuple(event["isr"])
    return ()


def _failover(
    outage: Outage,
    isr: tuple[int, ...],
    old_epoch: int,
    before: Sequence[Fact],
    after: Sequence[Fact],
) -> Failover:
    elected = _first(after, "leader_elected", old_epoch + 1)
    epoch = None if elected is None else elected["leader_epoch"]
    mine = [] if epoch is None else [each for each in after if each["leader_epoch"] == epoch]
    leading, first_write = _first(mine, "became_leader"), _first(mine, FIRST_WRITE)
    # The truncations of this failover happen in its leader epoch.
    cut = [each for each in mine if each["name"] == "log_truncated"]
    reached = [each for each in (*before, *after) if each["name"] == REACHED]
    high_watermark = max(
        (each["high_watermark"] for each in reached if each["leader_epoch"] <= old_epoch), default=0
    )
    start = None if leading is None else leading["leader_epoch_start_offset"]
    whole = _isr_whole(after, epoch, len(isr))
    return Failover(
        broker=outage.broker,
        cause=outage.cause,
        began_ms=outage.began_ms,
        silent_ms=outage.silent_ms,
        fenced_ms=outage.fenced_ms,
        elected_ms=_at(elected),
        leader=None if elected is None else elected["leader"],
        leader_epoch=epoch,
        election=None if elected is None else elected["cause"],
        leading_ms=_at(leading),
        first_write_ms=_at(first_write),
        isr_whole_ms=_at(whole),
        truncated=sum(each["from_offset"] - each["to_offset"] for each in cut),
        truncated_committed=sum(
            max(0, min(each["high_watermark"], each["from_offset"]) - each["to_offset"])
            for each in cut
        ),
        lost_committed=0 if start is None else max(0, high_watermark - start),
        had_traffic=any(each["leader_epoch"] in (old_epoch, epoch) for each in reached),
        was_deleted=any(each["name"] == "topic_deleted" for each in after),
        chain=tuple(_chain(outage, elected, leading, first_write, cut, whole)),
    )


def _first(events: Iterable[Fact], name: str, least_epoch: int = -1) -> Fact | None:
    for event in events:
        if event["name"] == name and event["leader_epoch"] >= least_epoch:
            return event
    return None


def _isr_whole(after: Sequence[Fact], epoch: int | None, members: int) -> Fact | None:
    """Return the event by which the ISR had as many members again, in this epoch or a later one."""
    if epoch is None:
        return None
    changes = (each for each in after if each["name"] in ("isr_changed", "leader_elected"))
    for event in changes:
        if event["leader_epoch"] >= epoch and len(event["isr"]) >= members:
            return event
    return None


def _at(event: Fact | None) -> int | None:
    return None if event is None else int(event["at_ms"])


def _chain(  # noqa: PLR0917 - one for each link
    outage: Outage,
    elected: Fact | None,
    leading: Fact | None,
    first_write: Fact | None,
    cut: Sequence[Fact],
    whole: Fact | None,
) -> Iterator[str]:
    """Yield a line for each link, with the seconds since the outage began."""
    links: list[tuple[int, str]] = []
    if outage.silent_ms >= 0 and outage.fenced_ms is not None:
        links.append((outage.fenced_ms - outage.silent_ms, f"b{outage.broker} was last heard of"))
    elif outage.planned:
        links.append((outage.began_ms, f"b{outage.broker} asked to be shut down"))
    if outage.fenced_ms is not None:
        links.append((outage.fenced_ms, f"b{outage.broker} was fenced: {outage.cause}"))
    if elected is not None:
        who = f"b{elected['leader']} was elected ({elected['cause']})"
        links.append((elected["at_ms"], f"{who} for epoch {elected['leader_epoch']}"))
    if leading is not None:
        start = leading["leader_epoch_start_offset"]
        links.append((leading["at_ms"], f"b{leading['node']} leads from offset {start}"))
    if first_write is not None:
        reached = first_write["high_watermark"]
        links.append((first_write["at_ms"], f"a first write was committed, up to {reached}"))
    for event in cut:
        went = f"offsets {event['to_offset']} to {event['from_offset']} (exclusive)"
        links.append((event["at_ms"], f"b{event['node']} cut off {went}: {event['cause']}"))
    if whole is not None:
        members = ", ".join(f"b{each}" for each in whole["isr"])
        links.append((whole["at_ms"], f"the ISR is whole again: {members}"))
    for at_ms, what in sorted(links, key=lambda link: link[0]):
        yield f"{(at_ms - outage.began_ms) / 1000:+.3f} s  {what}"
