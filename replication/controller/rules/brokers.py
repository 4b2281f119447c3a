"""Brokers come, are heard of, and go (KIP-631, KIP-841, KIP-903).

    (unknown) ── registers ──> FENCED ── caught up ──> UNFENCED ── wants to leave ──> CONTROLLED_
                                 ^                        │                           SHUTDOWN
                                 └── session expired ─────┘                               │
                                 └──────────── SHUTDOWN_NOW: all know, nothing led ───────┘

A fenced broker leads nothing and is in no ISR (without KIP-966: but as its last member). It
may fetch, and must, to catch up. It is unfenced when it has applied its own registration: by then it
knows of everything that was decided while it was away.

(BrokerHeartbeatManager.calculateNextBrokerState, ReplicationControlManager.)
"""

import enum

import attrs

from replication.controller.rules.decisions import (
    Decision,
    RulesOf,
    elections_with,
    elections_without,
    is_current_incarnation,
    leads_any,
)
from replication.controller.rules.directories import lose_directories
from replication.controller.rules.sessions import BrokerSessions
from replication.errors import ErrorCode
from replication.metadata.rules import (
    BrokerDirectoriesRecord,
    BrokerRegistration,
    BrokerRegistrationChangeRecord,
    Endpoint,
    MetadataImage,
    MetadataRecord,
    RegisterBrokerRecord,
)
from replication.wire.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from replication.wire.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)


class BrokerControlState(enum.Enum):
    """What the controller makes of a broker (BrokerControlState)."""

    FENCED = enum.auto()
    UNFENCED = enum.auto()
    CONTROLLED_SHUTDOWN = enum.auto()
    SHUTDOWN_NOW = enum.auto()


def register(
    image: MetadataImage,
    request: BrokerRegistrationRequest,
    *,
    sessions: BrokerSessions,
    rules_of: RulesOf,
    now_ms: int,
) -> Decision[BrokerRegistrationResponse]:
    error = _refusal(image, request, sessions, now_ms)
    if error is not ErrorCode.NONE:
        return Decision(BrokerRegistrationResponse(error_code=error))
    known = image.broker(request.broker_id)
    same = known is not None and known.incarnation_id == request.incarnation_id
    # The record goes first in its batch, so its offset is the next one: the broker's epoch.
    epoch = known.broker_epoch if known is not None and same else image.offset + 1
    records: list[MetadataRecord] = [
        RegisterBrokerRecord(
            broker_id=request.broker_id,
            broker_epoch=epoch,
            incarnation_id=request.incarnation_id,
            endpoints=tuple(
                Endpoint(each.name, each.host, each.port) for each in request.listeners
            ),
            rack=request.rack,
            fenced=known.fenced if known is not None and same else True,
            in_controlled_shutdown=(
                known.in_controlled_shutdown if known is not None and same else False
            ),
        )
    ]
    if request.log_dirs:
        records.append(BrokerDirectoriesRecord(request.broker_id, epoch, tuple(request.log_dirs)))
    if not same:
        # Its former self was in sync; this one has yet to show what it still holds. Where
        # the last thing its former self did was to sync all of it, it is as eligible as it was.
        clean = known is not None and request.previous_broker_epoch == known.broker_epoch
        records += elections_without(image, request.broker_id, rules_of, lost_its_tail=not clean)
    answer = BrokerRegistrationResponse(broker_epoch=epoch)
    return Decision(answer, tuple(records), cause="registered again")


def _refusal(
    image: MetadataImage,
    request: BrokerRegistrationRequest,
    sessions: BrokerSessions,
    now_ms: int,
) -> ErrorCode:
    # A broker that belongs to no cluster yet joins the one it finds.
    if request.cluster_id and request.cluster_id != image.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if request.broker_id < 0 or not request.listeners:
        return ErrorCode.INVALID_REGISTRATION
    known = image.broker(request.broker_id)
    if known is None or known.incarnation_id == request.incarnation_id:
        return ErrorCode.NONE
    # Its former self may be killed or cut off. While its session lasts nobody can tell
    # which, and two brokers of one number must not both serve.
    if sessions.is_valid(known, now_ms) and not known.in_controlled_shutdown:
        return ErrorCode.DUPLICATE_BROKER_REGISTRATION
    return ErrorCode.NONE


def heartbeat(
    image: MetadataImage,
    request: BrokerHeartbeatRequest,
    *,
    sessions: BrokerSessions,
    rules_of: RulesOf,
) -> Decision[BrokerHeartbeatResponse]:
    """Touch the session afterwards, if the answer has no error."""
    broker = image.broker(request.broker_id)
    if broker is None or not is_current_incarnation(image, request.broker_id, request.broker_epoch):
        return Decision(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    now, then = _state(broker), _next_state(image, broker, request, sessions)
    cause = "asked to be fenced"
    records: tuple[MetadataRecord, ...] = ()
    if now is not then:
        match then:
            case BrokerControlState.UNFENCED:
                records = unfence(image, broker, rules_of)
            case BrokerControlState.CONTROLLED_SHUTDOWN:
                records = begin_shutdown(image, broker, rules_of)
            case BrokerControlState.FENCED | BrokerControlState.SHUTDOWN_NOW:
                records = () if broker.fenced else fence(image, broker, rules_of)
        if then is BrokerControlState.SHUTDOWN_NOW:
            cause = "controlled shutdown"
    if not records:  # one thing at a time: every heartbeat repeats it
        records = lose_directories(image, broker, request.offline_log_dirs, rules_of)
        cause = "log directory offline"
    answer = BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= broker.broker_epoch,
        is_fenced=then in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW),
        should_shut_down=then is BrokerControlState.SHUTDOWN_NOW,
    )
    return Decision(answer, records, cause)


def _state(broker: BrokerRegistration) -> BrokerControlState:
    if broker.fenced:
        return BrokerControlState.FENCED
    if broker.in_controlled_shutdown:
        return BrokerControlState.CONTROLLED_SHUTDOWN
    return BrokerControlState.UNFENCED


def _next_state(
    image: MetadataImage,
    broker: BrokerRegistration,
    request: BrokerHeartbeatRequest,
    sessions: BrokerSessions,
) -> BrokerControlState:
    match _state(broker):
        case BrokerControlState.FENCED:
            if request.want_shut_down:
                return BrokerControlState.SHUTDOWN_NOW
            caught_up = request.current_metadata_offset >= broker.broker_epoch
            fenced = request.want_fence or not caught_up
            return BrokerControlState.FENCED if fenced else BrokerControlState.UNFENCED
        case BrokerControlState.UNFENCED:
            if request.want_fence:
                return (
                    BrokerControlState.SHUTDOWN_NOW
                    if request.want_shut_down
                    else BrokerControlState.FENCED
                )
            if not request.want_shut_down:
                return BrokerControlState.UNFENCED
            leads = leads_any(image, broker.broker_id)
            return (
                BrokerControlState.CONTROLLED_SHUTDOWN if leads else BrokerControlState.SHUTDOWN_NOW
            )
        case _:
            known = sessions.shutdown_is_known(broker.broker_id, image)
            may_go = known and not leads_any(image, broker.broker_id)
            return (
                BrokerControlState.SHUTDOWN_NOW
                if may_go
                else BrokerControlState.CONTROLLED_SHUTDOWN
            )


def fence(
    image: MetadataImage, broker: BrokerRegistration, rules_of: RulesOf
) -> tuple[MetadataRecord, ...]:
    change = BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch, fenced=True)
    return change, *elections_without(image, broker.broker_id, rules_of)


def unfence(
    image: MetadataImage, broker: BrokerRegistration, rules_of: RulesOf
) -> tuple[MetadataRecord, ...]:
    change = BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch, fenced=False)
    # One that is fenced in the middle of its shutdown does not come back to lead.
    if broker.in_controlled_shutdown:
        return (change,)
    return change, *elections_with(image, broker.broker_id, rules_of)


def begin_shutdown(
    image: MetadataImage, broker: BrokerRegistration, rules_of: RulesOf
) -> tuple[MetadataRecord, ...]:
    change = BrokerRegistrationChangeRecord(
        broker.broker_id, broker.broker_epoch, in_controlled_shutdown=True
    )
    return change, *elections_without(image, broker.broker_id, rules_of)


@attrs.frozen
class Fencing:
    """A broker whose session has expired, and what follows from that."""

    broker: BrokerRegistration
    records: tuple[MetadataRecord, ...]


def fence_expired(
    image: MetadataImage, *, sessions: BrokerSessions, rules_of: RulesOf, now_ms: int
) -> Fencing | None:
    """Return what fences the longest silent broker; call again, with its records applied."""
    for broker_id in sessions.expired(image, now_ms):
        broker = image.brokers[broker_id]
        return Fencing(broker, fence(image, broker, rules_of))
    return None
