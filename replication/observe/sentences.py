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
    PartitionFailed,
    PartitionOffline,
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
    "preferred": "the preferred replica is in sync again and leads",
    "unclean": "no replica in sync is alive, and unclean.leader.election.enable lets another one"
    " lead: committed records may be lost",
}
_KINDS: dict[type[Event], str] = {
    LogDirectoryFailed: FAULT,
    PartitionFailed: FAULT,
    BugCaught: FAULT,
    LeaderElected: DECISION,
    PartitionOffline: DECISION,
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
    """Return the sentence of `event`, or its fields if it has none."""
    facts = attrs.asdict(event, recurse=False)
    return ", ".join(
        f"{name} {value}" for name, value in facts.items() if not isinstance(value, bytes)
    )


@sentence.register
def _(event: LeaderElected) -> str:
    return (
        f"{broker_name(event.leader)} leads {event.partition} in epoch {event.leader_epoch}"
        f"{after_whom(event)}, isr {broker_names(event.isr)}: {elected_because(event)}"
    )


def elected_because(event: LeaderElected) -> str:
    return ELECTIONS.get(event.cause, event.cause)


def after_whom(event: LeaderElected) -> str:
    """Return " after b1", or an empty string if there was no leader before."""
    return f" after {broker_name(event.previous_leader)}" if event.previous_leader >= 0 else ""


@sentence.register
def _(event: PartitionOffline) -> str:
    return f"no replica may lead {event.partition}: {event.cause}; isr {broker_names(event.isr)}"


@sentence.register
def _(event: BecameLeader) -> str:
    return (
        f"leads {event.partition}: epoch {event.leader_epoch} begins at"
        f" {event.leader_epoch_start_offset}, high watermark {event.high_watermark}"
    )


@sentence.register
def _(event: BecameFollower) -> str:
    leader = broker_name(event.leader) if event.leader >= 0 else "no leader"
    return (
        f"follows {leader} in epoch {event.leader_epoch} of {event.partition},"
        f" its log ends at {event.log_end_offset}"
    )


@sentence.register
def _(event: FollowerFetching) -> str:
    return f"fetches {event.partition} from {event.fetch_offset} of {broker_name(event.leader)}"


@sentence.register
def _(event: FetchRefused) -> str:
    return (
        f"{broker_name(event.leader)} refuses its fetch of {event.partition} in epoch"
        f" {event.leader_epoch}: {event.error}; it asks again after a backoff"
    )


@sentence.register
def _(event: LogTruncated) -> str:
    return (
        f"truncates {event.partition} from {event.from_offset} to {event.to_offset}: {event.cause};"
        f" its high watermark was {event.high_watermark}"
    )


@sentence.register
def _(event: HighWatermarkAdvanced) -> str:
    return (
        f"high watermark of {event.partition} is {event.high_watermark}:"
        f" every member of the maximal in-sync set has the records below it"
    )


@sentence.register
def _(event: FollowersBehind) -> str:
    return f"{broker_name(event.broker)} lacks {event.lag} records of {event.partition}"


@sentence.register
def _(event: IsrChangeProposed) -> str:
    if event.leaving:
        return (
            f"proposes {event.partition} without {broker_names(event.leaving)}: it {lagging(event)}"
        )
    return (
        f"proposes {event.partition} with {broker_names(event.joining)}: it has reached the high"
        f" watermark {event.high_watermark} in this leader epoch"
    )


def lagging(event: IsrChangeProposed) -> str:
    """Return why the replicas leave, as a predicate."""
    return (
        f"lacked up to {event.lag} records for {event.lag_ms} ms,"
        f" longer than replica.lag.time.max.ms"
    )


@sentence.register
def _(event: IsrChangeRefused) -> str:
    return f"the controller refused an in-sync set of {event.partition}: {event.error}"


@sentence.register
def _(event: IsrChanged) -> str:
    before, after = broker_names(event.previous_isr), broker_names(event.isr)
    return f"in-sync set of {event.partition}: {before} -> {after}"


@sentence.register
def _(event: BrokerFenced) -> str:
    return f"{broker_name(event.broker)} is fenced: {fenced_because(event)}"


def fenced_because(event: BrokerFenced) -> str:
    since = f", silent for {event.since_heartbeat_ms} ms" if event.since_heartbeat_ms >= 0 else ""
    return f"{event.cause}{since}"


@sentence.register
def _(event: BrokerUnfenced) -> str:
    return f"{broker_name(event.broker)} may lead again: it has caught up with the metadata"


@sentence.register
def _(event: BrokerRegistered) -> str:
    return f"{broker_name(event.broker)} is registered, in epoch {event.broker_epoch}"


@sentence.register
def _(event: BrokerStarted) -> str:
    return f"serves clients at {event.host}:{event.port}"


@sentence.register
def _(event: CertificatesRead) -> str:
    if event.refused:
        return f"keeps its certificates, because the new ones are refused: {event.refused}"
    return "has read its certificates again"


@sentence.register
def _(event: BrokerStopped) -> str:
    return "has shut down in good order" if event.clean else "has ended, not in good order"


@sentence.register
def _(event: ControlledShutdownStarted) -> str:
    return (
        f"{broker_name(event.broker)} is leaving: first, other brokers take over the"
        f" {event.leading} partitions that it leads"
    )


@sentence.register
def _(event: LogRecovered) -> str:
    how = "was shut down in good order" if event.clean else "was not shut down in good order"
    return (
        f"opened {event.partition}, which {how}: it ends at {event.log_end_offset},"
        f" {event.truncated_bytes} bytes were removed"
    )


@sentence.register
def _(event: PartitionFailed) -> str:
    return f"no longer fetches {event.partition}: {event.cause}"


@sentence.register
def _(event: LogDirectoryFailed) -> str:
    return f"the log directory {event.directory} is lost: {event.cause}"


@sentence.register
def _(event: DuplicateRecognised) -> str:
    return (
        f"recognises {event.partition} {event.base_offset} to {event.last_offset}, which the producer"
        f" has sent again: nothing is written"
    )


@sentence.register
def _(event: TopicCreated) -> str:
    return (
        f"topic {event.topic} is created: {event.partitions} partitions,"
        f" {event.replication_factor} replicas each"
    )


@sentence.register
def _(event: TopicDeleted) -> str:
    return f"topic {event.topic} is deleted"
