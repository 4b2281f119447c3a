"""Why a replica is in the ISR or not, collected from the events of brokers and the controller.

    reported by      event                      what it says about the replica
    its leader       IsrChangeProposed          how far behind it was, or that it has caught up
    the controller   BrokerFenced               how long its broker was silent
    the controller   ControlledShutdownStarted  that its broker is leaving
    the controller   IsrChanged, LeaderElected  which of these it was

Rule 1: the controller decides the ISR. A leader's proposal counts when the controller reports that
ISR; a replica that leaves without a proposal was fenced, or its broker is leaving.

Rule 2: only the last reason of each replica is kept, and none of a deleted topic.
"""

from collections.abc import Callable

import attrs

from replication.events import (
    BrokerFenced,
    BrokerUnfenced,
    ControlledShutdownStarted,
    Event,
    EventSink,
    IsrChanged,
    IsrChangeProposed,
    LeaderElected,
    PartitionOffline,
    TopicDeleted,
)
from replication.observe.sentences import (
    after_whom,
    broker_name,
    elected_because,
    fenced_because,
    lagging,
)
from storage.types import TopicPartition


@attrs.frozen
class Reason:
    """A reason in words, and when it was reported."""

    text: str
    at_ms: int


@attrs.define(eq=False)
class IsrReasons:
    """The reasons of a cluster whose nodes all report to `sink`; `now_ms` is the clock of dates."""

    now_ms: Callable[[], int]
    _replicas: dict[tuple[TopicPartition, int], Reason] = attrs.field(init=False, factory=dict)
    _leaders: dict[TopicPartition, Reason] = attrs.field(init=False, factory=dict)
    _proposed: dict[TopicPartition, IsrChangeProposed] = attrs.field(init=False, factory=dict)
    _brokers: dict[int, str] = attrs.field(init=False, factory=dict)
    """For each broker that may be in no ISR, the reason."""

    def of_replica(self, partition: TopicPartition, broker: int) -> Reason | None:
        return self._replicas.get((partition, broker))

    def of_leader(self, partition: TopicPartition) -> Reason | None:
        """Return why the leader was elected, or why there is none."""
        return self._leaders.get(partition)

    @property
    def sink(self) -> EventSink:
        return self._note

    def _note(self, event: Event) -> None:
        match event:
            case IsrChangeProposed():
                self._proposed[event.partition] = event
            case BrokerFenced():
                self._brokers[event.broker] = (
                    f"{broker_name(event.broker)} was fenced: {fenced_because(event)}"
                )
            case ControlledShutdownStarted():
                self._brokers[event.broker] = f"{broker_name(event.broker)} is leaving"
            case BrokerUnfenced():
                self._brokers.pop(event.broker, None)
            case IsrChanged():
                self._changed(event)
            case LeaderElected():
                whom = after_whom(event)
                why = elected_because(event) + (f",{whom}" if whom else "")
                self._leaders[event.partition] = Reason(why, self.now_ms())
            case PartitionOffline():
                text = f"no replica may lead: {event.cause}"
                self._leaders[event.partition] = Reason(text, self.now_ms())
            case TopicDeleted():
                self._forget(event.topic)
            case _:
                pass

    def _changed(self, event: IsrChanged) -> None:
        """Note the reasons; the controller and the leader report a change, and the first one counts."""
        proposed = self._proposed.get(event.partition)
        if proposed is not None and not _came_true(proposed, event):
            proposed = None
        for broker in set(event.previous_isr) ^ set(event.isr):
            joined = broker in event.isr
            if proposed is not None:
                text = _as_proposed(proposed, joined=joined)
            elif joined:
                text = "it is the leader"
            else:
                text = self._brokers.get(broker, "the controller removed it")
            known = self._replicas.get((event.partition, broker))
            if known is None or known.text != text:
                self._replicas[event.partition, broker] = Reason(text, self.now_ms())

    def _forget(self, topic: str) -> None:
        for replica in [each for each in self._replicas if each[0].topic == topic]:
            del self._replicas[replica]
        for by_partition in (self._leaders, self._proposed):
            for partition in [each for each in by_partition if each.topic == topic]:
                del by_partition[partition]


def _came_true(proposed: IsrChangeProposed, event: IsrChanged) -> bool:
    """Return whether `event` is the result of `proposed`.

    The proposal of a leader that is cut off never arrives, while others decide.
    """
    return proposed.partition_epoch + 1 == event.partition_epoch and frozenset(
        proposed.isr
    ) == frozenset(event.isr)


def _as_proposed(proposed: IsrChangeProposed, *, joined: bool) -> str:
    if joined:
        return f"it had reached the high watermark {proposed.high_watermark} in this leader epoch"
    return f"it {lagging(proposed)}"
