"""Registration, heartbeats, sessions and fencing of brokers (KIP-631, KIP-841, KIP-903).

    (unknown) ── registers ──> FENCED ── caught up ──> UNFENCED ── wants to leave ──> CONTROLLED_
                                 ^                        │                           SHUTDOWN
                                 └── session expired ─────┘                               │
                                 └──────────── SHUTDOWN_NOW: all know, nothing led ───────┘

Rule 1: a fenced broker leads nothing and is in no ISR (without KIP-966, it may be the last member
of one). It may fetch, and must, to catch up. It is unfenced when it has applied its own
registration: then it knows every decision that was made while it was away.

Rule 2: a session is in the controller's memory, not in the log. A controller that comes back gives
every broker that is not fenced a full session before it fences any: they may all have been well
without a controller to send heartbeats to.

Rule 3: only an unfenced broker has a session. A fenced one may register again at once.

A controller of a quorum with other voters registers too (KIP-919), and has no session.

Rule 4: a node that does not support a finalized level of a feature is not registered: it could not
read the log.

(Kafka: BrokerHeartbeatManager, ReplicationControlManager.)
"""

import enum
from collections.abc import Callable, Iterable
from functools import partial

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
from replication.controller.rules.features import unsupported
from replication.errors import ErrorCode
from replication.metadata.rules.image import BrokerRegistration, MetadataImage
from replication.metadata.rules.levels import REGISTERED_CONTROLLERS
from replication.wire.api_versions import METADATA_VERSION
from replication.wire.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from replication.wire.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from replication.wire.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from replication.wire.metadata_records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from replication.wire.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from storage.attributes import define, frozen
from storage.types import Offset

_EVERYTHING = 2**63 - 1


@frozen
class FetchedMetadata:
    """A broker's last fetch of the metadata log (LeaderState.ReplicaState); times in epoch ms."""

    offset: Offset
    log_end: Offset
    fetch_ms: int
    caught_up_ms: int
    """The last time at which the broker had everything that was in the log; -1 for never."""


@define
class BrokerSessions:
    """The heartbeats and fetches of each broker, in the memory of the controller."""

    session_timeout_ms: int
    _heard_ms: dict[int, int] = attrs.field(factory=dict, init=False)
    _metadata_offset: dict[int, Offset] = attrs.field(factory=dict, init=False)
    _shutdown_offset: dict[int, Offset] = attrs.field(factory=dict, init=False)
    _fetched: dict[int, "FetchedMetadata"] = attrs.field(factory=dict, init=False)

    def restart(self, image: MetadataImage, now_ms: int) -> None:
        """Begin a full session for each broker that is not fenced."""
        for broker in _unfenced(image):
            self._heard_ms[broker.broker_id] = now_ms

    def touch(self, broker_id: int, *, now_ms: int, metadata_offset: Offset) -> None:
        self._heard_ms[broker_id] = now_ms
        self._metadata_offset[broker_id] = metadata_offset

    def begin(self, broker_id: int) -> None:
        """Begin the session of a new incarnation, without what the last one had sent."""
        self._heard_ms.pop(broker_id, None)
        self._metadata_offset.pop(broker_id, None)
        self._shutdown_offset.pop(broker_id, None)
        self._fetched.pop(broker_id, None)

    def is_valid(self, broker: BrokerRegistration, now_ms: int) -> bool:
        return not broker.fenced and now_ms <= self._expires_ms(broker)

    def expired(self, image: MetadataImage, now_ms: int) -> list[int]:
        """Return the brokers whose session has expired, the longest silent first."""
        stale = [broker for broker in _unfenced(image) if not self.is_valid(broker, now_ms)]
        stale.sort(key=lambda broker: (self._expires_ms(broker), broker.broker_id))
        return [broker.broker_id for broker in stale]

    def next_expiry_ms(self, image: MetadataImage) -> int | None:
        return min((self._expires_ms(broker) for broker in _unfenced(image)), default=None)

    def silent_ms(self, broker_id: int, now_ms: int) -> int:
        return now_ms - self._heard_ms.get(broker_id, now_ms)

    # Controlled shutdown: a broker may stop once the others know that it is shutting down.

    def shutdown_began(self, broker_id: int, offset: Offset) -> None:
        """Note the offset of the last record that moved leaderships away from a broker."""
        self._shutdown_offset[broker_id] = offset

    def shutdown_is_known(self, broker_id: int, image: MetadataImage) -> bool:
        """Return whether every active broker has applied the records that moved its leaderships."""
        active = [each.broker_id for each in _unfenced(image) if not each.in_controlled_shutdown]
        lowest = min((self._metadata_offset.get(each, -1) for each in active), default=_EVERYTHING)
        return self._shutdown_offset.get(broker_id, -1) <= lowest

    # The metadata log: how far each broker's copy reaches.

    def fetches_from(
        self, broker_id: int, offset: Offset, *, log_end: Offset = 0, wall_ms: int = -1
    ) -> None:
        """Note that a broker has all of the metadata log, which ends at `log_end`, below `offset`."""
        before = self._fetched.get(broker_id)
        caught_up_ms = -1 if before is None else before.caught_up_ms
        if offset >= log_end:
            caught_up_ms = wall_ms
        elif before is not None and offset >= before.log_end:
            caught_up_ms = max(caught_up_ms, before.fetch_ms)
        self._fetched[broker_id] = FetchedMetadata(offset, log_end, wall_ms, caught_up_ms)

    def fetched(self, broker_id: int) -> "FetchedMetadata | None":
        """Return the last fetch of a broker; None before the first."""
        return self._fetched.get(broker_id)

    def all_have(self, offset: Offset, image: MetadataImage) -> bool:
        """Return whether every unfenced broker has all of the metadata log below `offset`."""
        fetches = [self._fetched.get(each.broker_id) for each in _unfenced(image)]
        return all(each is not None and each.offset >= offset for each in fetches)

    def _expires_ms(self, broker: BrokerRegistration) -> int:
        return self._heard_ms.get(broker.broker_id, -_EVERYTHING) + self.session_timeout_ms


def _unfenced(image: MetadataImage) -> Iterable[BrokerRegistration]:
    return (broker for broker in image.brokers.values() if not broker.fenced)


class BrokerControlState(enum.Enum):
    """The state of a broker, as the controller sees it (BrokerControlState)."""

    FENCED = enum.auto()
    UNFENCED = enum.auto()
    CONTROLLED_SHUTDOWN = enum.auto()
    SHUTDOWN_NOW = enum.auto()


def register(
    image: MetadataImage,
    request: BrokerRegistrationRequest,
    *,
    cluster_id: str,
    sessions: BrokerSessions,
    rules_of: RulesOf,
    now_ms: int,
) -> Decision[BrokerRegistrationResponse]:
    """Decide about a broker's registration. The cause of a refusal is in the decision, and empty
    for one that may soon be over.
    """
    # A broker that belongs to no cluster yet joins the one it finds.
    if request.cluster_id not in ("", cluster_id):
        return _refused(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}",
        )
    error = _refusal(image, request, sessions, now_ms)
    if error is not ErrorCode.NONE:
        return _refused(error)
    if METADATA_VERSION not in (each.name for each in request.features):
        missing = f"Request features do not contain '{METADATA_VERSION}'"
        return _refused(ErrorCode.INVALID_REGISTRATION, missing)
    if fault := unsupported(image, "broker", request.features):
        return _refused(ErrorCode.UNSUPPORTED_VERSION, fault)
    known = image.broker(request.broker_id)
    same = known is not None and known.incarnation_id == request.incarnation_id
    # The record goes first in its batch, so its offset is the next one: the broker's epoch.
    epoch = known.broker_epoch if known is not None and same else image.offset + 1
    records: list[MetadataRecord] = [
        RegisterBrokerRecord(
            broker_id=request.broker_id,
            broker_epoch=epoch,
            incarnation_id=request.incarnation_id,
            end_points=request.listeners,
            features=request.features,
            rack=request.rack,
            fenced=known.fenced if known is not None and same else True,
            in_controlled_shutdown=(
                known.in_controlled_shutdown if known is not None and same else False
            ),
            log_dirs=request.log_dirs,
        )
    ]
    if not same:
        # The former incarnation was in sync; this one may have lost records. It is as eligible as
        # before only if the former one shut down cleanly, which syncs everything.
        clean = known is not None and request.previous_broker_epoch == known.broker_epoch
        records += elections_without(image, request.broker_id, rules_of, lost_its_tail=not clean)
    answer = BrokerRegistrationResponse(broker_epoch=epoch)
    return Decision(answer, tuple(records), cause="registered again")


def _refused(error: ErrorCode, fault: str = "") -> Decision[BrokerRegistrationResponse]:
    return Decision(BrokerRegistrationResponse(error_code=error), cause=fault)


def register_controller(
    image: MetadataImage, request: ControllerRegistrationRequest
) -> Decision[ControllerRegistrationResponse]:
    """Decide about a controller's incarnation, addresses and features."""
    fault = unsupported(image, "controller", request.features)
    if image.metadata_version < REGISTERED_CONTROLLERS:
        fault = "The current MetadataVersion is too old to support controller registrations."
    if fault:
        answer = ControllerRegistrationResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=fault
        )
        return Decision(answer, cause=fault)
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=False,
        end_points=request.listeners,
        features=request.features,
    )
    return Decision(ControllerRegistrationResponse(), (record,), cause="controller registered")


def _refusal(
    image: MetadataImage,
    request: BrokerRegistrationRequest,
    sessions: BrokerSessions,
    now_ms: int,
) -> ErrorCode:
    if request.broker_id < 0 or not request.listeners:
        return ErrorCode.INVALID_REGISTRATION
    known = image.broker(request.broker_id)
    if known is None or known.incarnation_id == request.incarnation_id:
        return ErrorCode.NONE
    # The former incarnation may be killed or only cut off; while its session lasts the
    # controller cannot know, and two brokers of one id must not both serve.
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
    """Decide the next state of the broker; touch its session if the answer has no error."""
    broker = image.broker(request.broker_id)
    if broker is None or not is_current_incarnation(image, request.broker_id, request.broker_epoch):
        return Decision(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    then = _next_state(image, broker, request, sessions)
    answer = BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= broker.broker_epoch,
        is_fenced=then in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW),
        should_shut_down=then is BrokerControlState.SHUTDOWN_NOW,
    )
    change = _change(broker, request, then)
    if change is None:
        return Decision(answer)
    return Decision(answer, change.records(image, broker, rules_of), change.cause)


def is_change(
    image: MetadataImage, request: BrokerHeartbeatRequest, *, sessions: BrokerSessions
) -> bool:
    """Return whether the decision about a heartbeat has records, without making them."""
    broker = image.broker(request.broker_id)
    if broker is None or not is_current_incarnation(image, request.broker_id, request.broker_epoch):
        return False
    return _change(broker, request, _next_state(image, broker, request, sessions)) is not None


@frozen
class _Change:
    """The change that a heartbeat causes: a function that makes its records, and the cause in events."""

    records: Callable[[MetadataImage, BrokerRegistration, RulesOf], tuple[MetadataRecord, ...]]
    cause: str


def _change(
    broker: BrokerRegistration, request: BrokerHeartbeatRequest, then: BrokerControlState
) -> _Change | None:
    if then is not _state(broker):
        match then:
            case BrokerControlState.UNFENCED:
                return _Change(unfence, "asked to be fenced")
            case BrokerControlState.CONTROLLED_SHUTDOWN:
                return _Change(begin_shutdown, "asked to be fenced")
            case BrokerControlState.FENCED:
                return _Change(fence, "asked to be fenced")
            case BrokerControlState.SHUTDOWN_NOW:
                if not broker.fenced:
                    return _Change(fence, "controlled shutdown")
    # One change at a time: the next heartbeat repeats the request.
    if set(broker.directories).isdisjoint(request.offline_log_dirs):
        return None
    lose = partial(lose_directories, offline=request.offline_log_dirs)
    return _Change(lose, "log directory offline")


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


def unregister(
    image: MetadataImage, request: UnregisterBrokerRequest, *, rules_of: RulesOf
) -> Decision[UnregisterBrokerResponse]:
    """Remove a registration, and the broker from every ISR (ClusterControlManager).

    The broker may be alive: it stays unregistered until it starts again.
    """
    broker = image.broker(request.broker_id)
    if broker is None:
        message = f"Broker ID {request.broker_id} is not currently registered"
        error = ErrorCode.BROKER_ID_NOT_REGISTERED
        return Decision(UnregisterBrokerResponse(error_code=error, error_message=message))
    records: tuple[MetadataRecord, ...] = (
        *elections_without(image, broker.broker_id, rules_of, lost_its_tail=True),
        UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch),
    )
    return Decision(UnregisterBrokerResponse(), records, "unregistered")


def fence(
    image: MetadataImage, broker: BrokerRegistration, rules_of: RulesOf
) -> tuple[MetadataRecord, ...]:
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, fenced=1
    )
    return change, *elections_without(image, broker.broker_id, rules_of)


def unfence(
    image: MetadataImage, broker: BrokerRegistration, rules_of: RulesOf
) -> tuple[MetadataRecord, ...]:
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, fenced=-1
    )
    # A broker that was fenced during its shutdown leads nothing again.
    if broker.in_controlled_shutdown:
        return (change,)
    return change, *elections_with(image, broker.broker_id, rules_of)


def begin_shutdown(
    image: MetadataImage, broker: BrokerRegistration, rules_of: RulesOf
) -> tuple[MetadataRecord, ...]:
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, in_controlled_shutdown=1
    )
    return change, *elections_without(image, broker.broker_id, rules_of)
