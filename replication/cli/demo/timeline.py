"""The failover as the nodes themselves saw it, from their event journals.

    killed               the demo sent SIGKILL
    fenced               the controller ended the victim's session
    elected              every partition that the victim led has another leader
    first write acked    the client has an ack on a partition that the victim led
    started again        the demo started the victim
    rejoined the ISR     the victim is in sync on every partition

Times are wall-clock milliseconds: the nodes are processes of one machine.
"""

from collections.abc import Iterable
from pathlib import Path

import attrs

from replication.events import BrokerFenced, IsrChanged, LeaderElected
from replication.observe.journal import JournalEntry, read_journal


@attrs.frozen
class FailoverMoment:
    """One line of the timeline; `at_ms` is None if it never happened."""

    what: str
    at_ms: int | None
    detail: str = ""


@attrs.frozen
class DemoFailover:
    """What the demo did and when; the rest is read from the controller's journal."""

    victim: int
    topic: str
    led_partitions: frozenset[int]
    killed_ms: int
    acked_ms: list[int]  # acks on a partition that the victim led, from the kill to its return
    restarted_ms: int


def timeline(failover: DemoFailover, *, controller: Path) -> list[FailoverMoment]:
    """Return the moments above in order of time; those that never happened come last."""
    journal = read_journal(controller.read_bytes())
    entries = [entry for entry in journal.entries if entry.at_ms >= failover.killed_ms]
    elected_ms = _all_elected(entries, failover)
    # An ack that was on its way when the leader died is not from the new leader.
    acked_ms = next((at for at in failover.acked_ms if elected_ms and at >= elected_ms), None)
    moments = [
        FailoverMoment("killed", failover.killed_ms, f"broker {failover.victim}, SIGKILL"),
        FailoverMoment("fenced", _fenced(entries, failover), "its session timed out"),
        FailoverMoment("elected", elected_ms, _partitions_led(failover)),
        FailoverMoment("first write acked", acked_ms, "on a partition that it led"),
        FailoverMoment("started again", failover.restarted_ms),
        FailoverMoment(
            "rejoined the ISR", _rejoined(entries, failover), "in sync on every partition"
        ),
    ]
    return sorted(moments, key=lambda moment: moment.at_ms or 1 << 62)


def _partitions_led(failover: DemoFailover) -> str:
    led = sorted(failover.led_partitions)
    return (
        f"other leaders for {failover.topic} {', '.join(map(str, led))}" if led else "it led none"
    )


def _fenced(entries: Iterable[JournalEntry], failover: DemoFailover) -> int | None:
    for entry in entries:
        if isinstance(entry.event, BrokerFenced) and entry.event.broker == failover.victim:
            return entry.at_ms
    return None


def _all_elected(entries: Iterable[JournalEntry], failover: DemoFailover) -> int | None:
    """Return when the last partition that the victim led had another leader."""
    waiting = set(failover.led_partitions)
    for entry in entries:
        event = entry.event
        if isinstance(event, LeaderElected) and event.leader not in (-1, failover.victim):
            if event.partition.topic == failover.topic:
                waiting.discard(event.partition.partition)
            if not waiting:
                return entry.at_ms
    return None


def _rejoined(entries: Iterable[JournalEntry], failover: DemoFailover) -> int | None:
    """Return when the victim was back in the ISR of the last partition that it had left."""
    out: set[int] = set()
    for entry in entries:
        event = entry.event
        if not isinstance(event, IsrChanged) or event.partition.topic != failover.topic:
            continue
        if failover.victim not in event.isr:
            out.add(event.partition.partition)
        elif event.partition.partition in out:
            out.remove(event.partition.partition)
            if not out:
                return entry.at_ms
    return None
