"""One reader of a cluster's state, over one of three sources; and why each replica is in sync or not.

    NodesSource        the nodes of this process                 `nodes_source.py`
    ProtocolSource     any Kafka cluster, over Kafka's protocol  `protocol_source.py`
    ProcessesSource    processes of ours: the protocol, and      `replication/cli/processes_source.py`
                       what each of them reports

A source returns what it finds out now.
The reader adds what follows from several facts or from earlier states: the lag of each replica,
the last known figures of a replica that does not answer, and why a replica is in the ISR or not.

    in, and the leader          the leader is always in sync
    in, not behind              it has all that the leader has
    in, behind                  how long it may stay like that
    in, its broker gone         the controller has not noticed yet
    out                         why it left, and what keeps it out now

Rule 1: a replica that does not answer keeps its last known figures, marked by `is_live`.

Rule 2: lag is counted from the leader's log end, and only while the leader itself answers and
knows that it leads.

The reason why a replica left the ISR comes from events (`IsrReasons`). Where none was reported, it
is what was seen at the last read before it left.

    reported by      event                      what it says about the replica
    its leader       IsrChangeProposed          how far behind it was, or that it has caught up
    the controller   BrokerFenced               how long its broker was silent
    the controller   ControlledShutdownStarted  that its broker is leaving
    the controller   IsrChanged, LeaderElected  which of these it was

Rule 3: the controller decides the ISR. A leader's proposal counts when the controller reports that
ISR; a replica that leaves without a proposal was fenced, or its broker is leaving.

Rule 4: only the last reason of each replica is kept, and none of a deleted topic.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

import attrs

from replication.events import (
    BrokerFenced,
    BrokerUnfenced,
    ControlledShutdownStarted,
    Event,
    IsrChanged,
    IsrChangeProposed,
    LeaderElected,
    PartitionOffline,
    TopicDeleted,
)
from replication.observe.cluster_state import (
    ClusterState,
    ObservedBroker,
    ObservedPartition,
    ObservedReplica,
    Role,
    Status,
)
from replication.observe.sentences import (
    broker_name,
    elected_because,
    fenced_because,
    lagging,
)
from storage.attributes import define, frozen
from storage.types import TopicPartition


@frozen
class Reason:
    """A reason in words, and when it was reported."""

    text: str
    at_ms: int


@define(eq=False)
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

    def sink(self, event: Event) -> None:
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
                self._leaders[event.partition] = Reason(elected_because(event), self.now_ms())
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


class StateSource(Protocol):
    """A way to find out how a cluster stands."""

    async def find(self) -> ClusterState:
        """Return what is known now.

        Replicas have neither a lag nor a reason; `is_live` is false for one that did not answer.
        """


@define(eq=False, kw_only=True)
class StateReader:
    """Reads the state of a cluster from `source`, again and again."""

    source: StateSource
    reasons: IsrReasons | None = None
    session_ms: int | None = None
    """`broker.session.timeout.ms` of the cluster; None if it is not known."""
    max_lag_ms: int | None = None
    """`replica.lag.time.max.ms` of the cluster; None if it is not known."""
    _before: dict[TopicPartition, ObservedPartition] = attrs.field(init=False, factory=dict)
    _left_because: dict[tuple[TopicPartition, int], str] = attrs.field(init=False, factory=dict)

    async def read(self) -> ClusterState:
        found = await self.source.find()
        brokers = {each.id: each for each in found.brokers}
        partitions = tuple(self._completed(each, brokers) for each in found.partitions)
        self._before = {each.topic_partition: each for each in partitions}
        self._left_because = {
            replica: why
            for replica, why in self._left_because.items()
            if replica[0] in self._before
        }
        return attrs.evolve(found, partitions=partitions)

    def _completed(
        self, found: ObservedPartition, brokers: Mapping[int, ObservedBroker]
    ) -> ObservedPartition:
        self._note_leaving(found, brokers)
        leads = found.replica(found.leader)
        if leads is not None and not (leads.is_live and leads.role is Role.LEADER):
            leads = None
        why = None if self.reasons is None else self.reasons.of_leader(found.topic_partition)
        replicas = (self._remembered(found.topic_partition, each) for each in found.replicas)
        return attrs.evolve(
            found,
            why="" if why is None else why.text,
            replicas=tuple(self._explained(found, each, leads, brokers) for each in replicas),
        )

    def _note_leaving(
        self, found: ObservedPartition, brokers: Mapping[int, ObservedBroker]
    ) -> None:
        name = found.topic_partition
        before = self._before.get(name)
        for broker in found.isr:
            self._left_because.pop((name, broker), None)
        for broker in set(before.isr if before else ()) - set(found.isr):
            was = None if before is None else before.replica(broker)
            if broker not in brokers or brokers[broker].status is Status.DOWN:
                continue  # that keeps it out, and is said as such
            if was is not None and was.lag:
                reason = f"it was {was.lag} records behind when it was last seen in the ISR"
            else:
                reason = "no reason is known: it was not behind when it was last seen in the ISR"
            self._left_because[name, broker] = reason

    def _remembered(self, name: TopicPartition, found: ObservedReplica) -> ObservedReplica:
        before = self._before.get(name)
        seen = None if before is None else before.replica(found.broker)
        if found.is_live or seen is None:
            return found
        return attrs.evolve(
            seen,
            role=found.role,
            in_isr=found.in_isr,
            is_live=False,
            behind_since_ms=found.behind_since_ms,
        )

    def _explained(
        self,
        partition: ObservedPartition,
        replica: ObservedReplica,
        leads: ObservedReplica | None,
        brokers: Mapping[int, ObservedBroker],
    ) -> ObservedReplica:
        leader_end = None if leads is None else leads.log_end_offset
        lag = None
        if leader_end is not None and replica.log_end_offset is not None:
            lag = max(0, leader_end - replica.log_end_offset)
        replica = attrs.evolve(
            replica, lag=lag, behind_since_ms=replica.behind_since_ms if lag else None
        )
        broker = brokers.get(replica.broker)
        name = partition.topic_partition
        known = None if self.reasons is None else self.reasons.of_replica(name, replica.broker)
        if replica.in_isr:
            joined = "" if known is None else known.text
            is_leader = replica.broker == partition.leader
            why = self._why_in(replica, broker, is_leader=is_leader, joined=joined)
        else:
            left = self._left_because.get((name, replica.broker), "")
            why = why_out(replica, broker, left if known is None else known.text)
        return attrs.evolve(replica, why=why)

    def _why_in(
        self,
        replica: ObservedReplica,
        broker: ObservedBroker | None,
        *,
        is_leader: bool,
        joined: str,
    ) -> str:
        if broker is not None and broker.status in (Status.DOWN, Status.FROZEN):
            after = "" if self.session_ms is None else f" of {_seconds(self.session_ms)}"
            return (
                f"in the ISR, though its broker is {broker.status}: the controller removes it when the"
                f" session{after} has expired"
            )
        if is_leader:
            return "in the ISR: it is the leader, which is always in sync"
        if replica.lag is None:
            return "in the ISR, according to the controller"
        if replica.lag:
            limit = "" if self.max_lag_ms is None else f" ({_seconds(self.max_lag_ms)})"
            return (
                f"in the ISR, behind for now: it is removed if that lasts longer than"
                f" replica.lag.time.max.ms{limit}"
            )
        return "in the ISR: it has all that the leader has" + (
            f"; it joined because {joined}" if joined else ""
        )


def why_out(replica: ObservedReplica, broker: ObservedBroker | None, left: str) -> str:
    """Return why a replica is not in the ISR; `left` is why it left, empty if that is unknown."""
    now = _keeps_out(replica, broker, left)
    if not left:
        return f"out of the ISR: {now}" if now else "out of the ISR since before the first look"
    return f"left the ISR: {left}" + (f"; {now}" if now else "")


def _keeps_out(replica: ObservedReplica, broker: ObservedBroker | None, left: str) -> str:
    if broker is not None and broker.status in (Status.DOWN, Status.FROZEN):
        return f"its broker is {broker.why or broker.status}"
    if broker is not None and broker.status is Status.FENCED:
        return "" if "fenced" in left else "its broker is fenced"
    if replica.role is Role.DEPOSED:
        return "it has not heard yet that its leader epoch is over"
    if replica.lag:
        return "it joins again when it has reached the high watermark"
    return ""


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:g} s"
