"""Why it happened: an event as a sentence that a reader of the report is shown.

An event carries what decided it (`replication.events`, rule 2); this says it in words, and
names the rule. Events without a sentence of their own are shown by their fields.
"""

from functools import singledispatch

import attrs

from replication.events import (
    BecameFollower,
    BecameLeader,
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    Event,
    FollowerFetching,
    HighWatermarkAdvanced,
    IsrChanged,
    IsrChangeProposed,
    IsrChangeRefused,
    LeaderElected,
    LogRecovered,
    LogTruncated,
    PartitionFailed,
    PartitionOffline,
)
from scenarios.simulation.client import BatchAnswered
from scenarios.simulation.cluster import node_name
from scenarios.simulation.trace import LinkCut, LinkHealed, LinkHeld, PowerCut

ELECTIONS = {
    "clean": "the first live replica of the in-sync set leads: it has all that was committed",
    "created": "a new topic is led by the first of its replicas",
    "preferred": "the preferred replica is in sync again and takes its place",
    "unclean": "nobody in sync is alive, and unclean.leader.election.enable lets another lead:"
    " what was committed may be lost",
}


@singledispatch
def cause(event: Event) -> str:
    """A sentence, or the fields of an event that has none."""
    facts = attrs.asdict(event, recurse=False)
    return ", ".join(
        f"{name} {value}" for name, value in facts.items() if not isinstance(value, bytes)
    )


@cause.register
def _(event: LeaderElected) -> str:
    why = ELECTIONS.get(event.cause, event.cause)
    before = f" after {node_name(event.previous_leader)}" if event.previous_leader >= 0 else ""
    return (
        f"{node_name(event.leader)} leads {event.partition} in epoch {event.leader_epoch}{before},"
        f" isr {_names(event.isr)}: {why}"
    )


@cause.register
def _(event: PartitionOffline) -> str:
    return f"nobody may lead {event.partition}: {event.cause}; isr {_names(event.isr)}"


@cause.register
def _(event: BecameLeader) -> str:
    return (
        f"leads {event.partition}: epoch {event.leader_epoch} begins at"
        f" {event.leader_epoch_start_offset}, high watermark {event.high_watermark}"
    )


@cause.register
def _(event: BecameFollower) -> str:
    leader = node_name(event.leader) if event.leader >= 0 else "nobody"
    return (
        f"follows {leader} in epoch {event.leader_epoch} of {event.partition},"
        f" its log ends at {event.log_end_offset}"
    )


@cause.register
def _(event: FollowerFetching) -> str:
    return f"fetches {event.partition} from {event.fetch_offset} of {node_name(event.leader)}"


@cause.register
def _(event: LogTruncated) -> str:
    return (
        f"cuts {event.partition} from {event.from_offset} to {event.to_offset}: {event.cause};"
        f" its high watermark was {event.high_watermark}"
    )


@cause.register
def _(event: HighWatermarkAdvanced) -> str:
    return (
        f"high watermark of {event.partition} is {event.high_watermark}:"
        f" every member of the maximal in-sync set has what lies below"
    )


@cause.register
def _(event: IsrChangeProposed) -> str:
    if event.leaving:
        return (
            f"proposes {event.partition} without {_names(event.leaving)}: it lacked up to"
            f" {event.lag} records for {event.lag_ms} ms, longer than replica.lag.time.max.ms"
        )
    return (
        f"proposes {event.partition} with {_names(event.joining)}: it has reached the high"
        f" watermark {event.high_watermark}, in this epoch"
    )


@cause.register
def _(event: IsrChangeRefused) -> str:
    return f"the controller refused an in-sync set of {event.partition}: {event.error}"


@cause.register
def _(event: IsrChanged) -> str:
    return f"in-sync set of {event.partition}: {_names(event.previous_isr)} -> {_names(event.isr)}"


@cause.register
def _(event: BrokerFenced) -> str:
    since = f", silent for {event.since_heartbeat_ms} ms" if event.since_heartbeat_ms >= 0 else ""
    return f"{node_name(event.broker)} is fenced: {event.cause}{since}"


@cause.register
def _(event: BrokerUnfenced) -> str:
    return f"{node_name(event.broker)} may lead again: it has caught up with the metadata"


@cause.register
def _(event: BrokerRegistered) -> str:
    return f"{node_name(event.broker)} is registered, in epoch {event.broker_epoch}"


@cause.register
def _(event: LogRecovered) -> str:
    how = "was shut down in good order" if event.clean else "was not shut down in good order"
    return (
        f"opened {event.partition}, which {how}: it ends at {event.log_end_offset},"
        f" {event.truncated_bytes} bytes cut"
    )


@cause.register
def _(event: PartitionFailed) -> str:
    return f"fetches {event.partition} no more: {event.cause}"


@cause.register
def _(event: BatchAnswered) -> str:
    return f"{' '.join(event.values)} to {event.partition}, acks={event.acks}: {event.answer}"


@cause.register
def _(event: PowerCut) -> str:
    return f"the power of {event.node} fails: what it had not synced may be gone"


@cause.register
def _(event: LinkCut) -> str:
    return f"nothing passes from {event.source} to {event.target}"


@cause.register
def _(event: LinkHeld) -> str:
    return f"what {event.source} says to {event.target} about {event.api} does not arrive"


@cause.register
def _(event: LinkHealed) -> str:
    return f"{event.source} reaches {event.target} again"


def _names(brokers: tuple[int, ...]) -> str:
    return " ".join(map(node_name, brokers)) or "nobody"
