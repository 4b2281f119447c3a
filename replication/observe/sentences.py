"""Events as sentences, for reports and the live page.

An event carries the facts that decided it (`replication.events`, rule 2). Its sentence says them in
words, and names the rule. An event without a sentence of its own is shown by its fields.

    fault      something is broken                      disk failed, partition failed, node killed
    decision   a node decided something                 elected, ISR proposed, fenced
    cut        records were removed                     log truncated
    news       all other events
"""

from functools import singledispatch
from typing import Final

import attrs

from replication.events import (
    BecameFollower,
    BecameLeader,
    BrokerFenced,
    BrokerRegistered,
    BrokerStarted,
    BrokerStopped,
    BrokerUnfenced,
    BugCaught,
    CertificatesRead,
    ControlledShutdownStarted,
    DuplicateRecognised,
    Event,
    FetchRefused,
    FetchResponseUnusable,
    FollowerFetching,
    FollowersBehind,
    HighWatermarkAdvanced,
    IsrChanged,
    IsrChangeProposed,
    IsrChangeRefused,
    LeaderElected,
    LogDirectoryFailed,
    LogRecovered,
    LogTruncated,
    MetadataNotServed,
    PartitionFailed,
    PartitionOffline,
    PeerContradicted,
    QuorumMisconfigured,
    RegistrationRefused,
    TopicCreated,
    TopicDeleted,
)

FAULT: Final = "fault"
DECISION: Final = "decision"
CUT: Final = "cut"
NEWS: Final = "news"

ELECTIONS = {
    "clean": "the first live replica of the in-sync set leads: it has every committed record",
    "created": "the first replica of a new partition leads",
    "unclean": "no replica in sync is alive, and unclean.leader.election.enable lets another one"
    " lead: committed records may be lost",
    "eligible": "no replica in sync is alive, and an eligible one leads (KIP-966): it has every"
    " committed record",
    "last known": "no replica is known to have every committed record, and the last leader leads"
    " again (KIP-966): it may have lost what it had not synced",
}
# Why there was an election; {leader} is the new one, {previous} the one before.
REASONS: Final = {
    "created": "",  # the cause says it
    "no leader before": "it had no leader, and {leader} may lead again",
    "leader registered again": "{previous} was started again",
    "leader unregistered": "{previous} was removed from the cluster",
    "leader fenced": "{previous} is fenced",
    "leader shuts down": "{previous} shuts down",
    "leader moved away": "{previous} has no replica any more",
    "log directory of leader lost": "the log directory of {previous} is lost",
    "leader out of sync": "{previous} is not in sync any more",
    "preferred": "{leader} is the preferred replica, and in sync again",
    "replicas changed": "it has other replicas, which learn a new leader epoch",
    "leader epoch raised": "its leader stays, with a new leader epoch",
}
TRUNCATIONS: Final = {
    "diverging epoch": "its leader has other records from there on (KIP-595)",
    "leader epoch": "there the last leader epoch that both logs have ends (KIP-101)",
    "no leader epoch": "its log names no leader epoch, and was committed up to there",
    "offset out of range": "its leader's log does not reach the offset that it asked for",
}
_KINDS: dict[type[Event], str] = {
    LogDirectoryFailed: FAULT,
    PartitionFailed: FAULT,
    BugCaught: FAULT,
    PeerContradicted: FAULT,
    MetadataNotServed: FAULT,
    QuorumMisconfigured: FAULT,
    LeaderElected: DECISION,
    PartitionOffline: DECISION,
    RegistrationRefused: DECISION,
    IsrChangeProposed: DECISION,
    IsrChangeRefused: DECISION,
    IsrChanged: DECISION,
    BrokerFenced: DECISION,
    BrokerUnfenced: DECISION,
    LogTruncated: CUT,
}


def kind(event: Event) -> str:
    return _KINDS.get(type(event), NEWS)


def broker_name(broker_id: int) -> str:
    return f"b{broker_id}"


def broker_names(brokers: tuple[int, ...]) -> str:
    return " ".join(map(broker_name, brokers)) or "none"


@singledispatch
def sentence(event: Event) -> str:
    """Return the sentence of `event`, or its fields if it has none; others may register theirs."""
    for about in (_about_leadership, _about_logs, _about_nodes, _about_controllers):
        if found := about(event):
            return found
    facts = attrs.asdict(event, recurse=False)
    return ", ".join(
        f"{name} {value}" for name, value in facts.items() if not isinstance(value, bytes)
    )


def _about_leadership(event: Event) -> str:
    match event:
        case LeaderElected():
            return (
                f"{broker_name(event.leader)} leads {event.partition} in epoch {event.leader_epoch}"
                f"{after_previous_leader(event)}, isr {broker_names(event.isr)}: {elected_because(event)}"
            )
        case PartitionOffline():
            isr = broker_names(event.isr)
            return f"no replica may lead {event.partition}: {event.cause}; isr {isr}"
        case BecameLeader():
            return (
                f"leads {event.partition}: epoch {event.leader_epoch} begins at"
                f" {event.leader_epoch_start_offset}, high watermark {event.high_watermark}"
            )
        case BecameFollower():
            leader = broker_name(event.leader) if event.leader >= 0 else "no leader"
            return (
                f"follows {leader} in epoch {event.leader_epoch} of {event.partition},"
                f" its log ends at {event.log_end_offset}"
            )
        case IsrChangeProposed() if event.leaving:
            leaving = broker_names(event.leaving)
            return f"proposes {event.partition} without {leaving}: it {lagging(event)}"
        case IsrChangeProposed():
            return (
                f"proposes {event.partition} with {broker_names(event.joining)}: it has reached the"
                f" high watermark {event.high_watermark} in this leader epoch"
            )
        case IsrChangeRefused():
            return f"the controller refused an in-sync set of {event.partition}: {event.error}"
        case IsrChanged():
            before, after = broker_names(event.previous_isr), broker_names(event.isr)
            return f"in-sync set of {event.partition}: {before} -> {after}"
        case _:
            return ""


def _about_logs(event: Event) -> str:
    match event:
        case FollowerFetching():
            leader = broker_name(event.leader)
            return f"fetches {event.partition} from {event.fetch_offset} of {leader}"
        case FetchRefused():
            return (
                f"{broker_name(event.leader)} refuses its fetch of {event.partition} in epoch"
                f" {event.leader_epoch}: {event.error}; it asks again after a backoff"
            )
        case FetchResponseUnusable():
            others = f"; {event.left_out} more such responses before" if event.left_out else ""
            return (
                f"cannot use what {broker_name(event.leader)} answers to its fetch: {event.cause};"
                f" it asks again after a backoff{others}"
            )
        case LogTruncated():
            epoch = f" in leader epoch {event.leader_epoch}" if event.leader_epoch >= 0 else ""
            return (
                f"truncates {event.partition} from {event.from_offset} to {event.to_offset}{epoch}:"
                f" {TRUNCATIONS.get(event.cause, event.cause)};"
                f" its high watermark was {event.high_watermark}"
            )
        case HighWatermarkAdvanced():
            return (
                f"high watermark of {event.partition} is {event.high_watermark}:"
                f" every member of the maximal in-sync set has the records below it"
            )
        case FollowersBehind():
            return f"{broker_name(event.broker)} lacks {event.lag} records of {event.partition}"
        case LogRecovered():
            how = "was" if event.clean else "was not"
            return (
                f"opened {event.partition}, which {how} shut down in good order: it ends at"
                f" {event.log_end_offset}, {event.truncated_bytes} bytes were removed"
            )
        case PartitionFailed():
            return f"no longer fetches {event.partition}: {event.cause}"
        case LogDirectoryFailed():
            return f"the log directory {event.directory} is lost: {event.cause}"
        case DuplicateRecognised():
            return (
                f"recognises {event.partition} {event.base_offset} to {event.last_offset}, which the"
                f" producer has sent again: nothing is written"
            )
        case _:
            return ""


def _about_nodes(event: Event) -> str:
    match event:
        case BrokerFenced():
            return f"{broker_name(event.broker)} is fenced: {fenced_because(event)}"
        case BrokerUnfenced():
            return f"{broker_name(event.broker)} may lead again: it has caught up with the metadata"
        case BrokerRegistered():
            return f"{broker_name(event.broker)} is registered, in epoch {event.broker_epoch}"
        case BrokerStarted():
            return f"serves clients at {event.host}:{event.port}"
        case BrokerStopped():
            return "has shut down in good order" if event.clean else "has ended, not in good order"
        case ControlledShutdownStarted():
            return (
                f"{broker_name(event.broker)} is leaving: first, other brokers take over the"
                f" {event.leading} partitions that it leads"
            )
        case CertificatesRead() if event.refused:
            return f"keeps its certificates, because the new ones are refused: {event.refused}"
        case CertificatesRead():
            return "has read its certificates again"
        case TopicCreated():
            return (
                f"topic {event.topic} is created: {event.partitions} partitions,"
                f" {event.replication_factor} replicas each"
            )
        case TopicDeleted():
            return f"topic {event.topic} is deleted"
        case _:
            return ""


def _about_controllers(event: Event) -> str:
    match event:
        case RegistrationRefused():
            others = f"; {event.left_out} more refusals before" if event.left_out else ""
            return f"does not register {event.role} {event.node}: {event.cause}{others}"
        case PeerContradicted():
            others = f"; {event.left_out} more such claims before" if event.left_out else ""
            return f"does not believe another controller: {event.claim}{others}"
        case MetadataNotServed():
            others = f"; {event.left_out} more such fetches before" if event.left_out else ""
            return f"gets no metadata: {event.cause}, again and again{others}"
        case QuorumMisconfigured():
            others = f"; {event.left_out} more such causes before" if event.left_out else ""
            return f"cannot work with another controller: {event.cause}{others}"
        case _:
            return ""


def elected_because(event: LeaderElected) -> str:
    """Return why there was an election, as far as it is known, and why this replica leads."""
    names = {"leader": broker_name(event.leader), "previous": broker_name(event.previous_leader)}
    known = REASONS.get(event.reason, event.reason).format(**names)
    return "; ".join(filter(None, (known, ELECTIONS.get(event.cause, event.cause))))


def after_previous_leader(event: LeaderElected) -> str:
    """Return " after b1", or an empty string if there was no leader before."""
    return f" after {broker_name(event.previous_leader)}" if event.previous_leader >= 0 else ""


def lagging(event: IsrChangeProposed) -> str:
    """Return why the replicas leave, as a predicate."""
    return (
        f"lacked up to {event.lag} records for {event.lag_ms} ms,"
        f" longer than replica.lag.time.max.ms"
    )


def fenced_because(event: BrokerFenced) -> str:
    since = f", silent for {event.since_heartbeat_ms} ms" if event.since_heartbeat_ms >= 0 else ""
    return f"{event.cause}{since}"
