"""The effects of a group: answers, writes and events, which the coordinator carries out.

request ──ticket──> ClassicGroup ──> Answer(ticket, ...)     now, or rebalances later
                                └──> Store(record, purpose) ── appended ──> on_stored
"""

from typing import TypeAlias

from replication.coordinator.rules import KeyAndValue
from replication.errors import ErrorCode
from replication.events import Event
from replication.wire.join_group import NO_GENERATION
from storage.attributes import frozen

NO_MEMBER_ID = ""


@frozen(kw_only=True)
class Moment:
    """The two times that a rule gets: a monotonic one for deadlines, and the wall clock's."""

    now_ms: int
    wall_ms: int


@frozen(kw_only=True)
class JoinedMember:
    """A member, as the answer to the leader describes it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@frozen(kw_only=True)
class JoinResult:
    error: ErrorCode = ErrorCode.NONE
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER_ID
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@frozen(kw_only=True)
class SyncResult:
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@frozen
class Answer:
    """The answer to the request with this ticket."""

    ticket: int
    result: JoinResult | SyncResult


@frozen
class AssignmentStored:
    """The leader's assignment of a generation; once it is stored the group is stable."""

    generation: int


@frozen
class EmptyStored:
    """A generation without members; no request waits for it."""


@frozen(kw_only=True)
class ReplacementStored:
    """A static member under its new id, with its former state, which a failed write restores."""

    ticket: int
    generation: int
    old_member_id: str
    new_member_id: str
    protocols: tuple[tuple[str, bytes], ...]
    rebalance_timeout_ms: int
    session_timeout_ms: int
    old_leader: str
    may_skip_assignment: bool


Purpose: TypeAlias = AssignmentStored | EmptyStored | ReplacementStored


@frozen
class Store:
    """A record to append; the group is called back with the outcome."""

    record: KeyAndValue
    purpose: Purpose


@frozen
class Emit:
    """An event to be emitted."""

    event: Event


Effect: TypeAlias = Answer | Store | Emit
