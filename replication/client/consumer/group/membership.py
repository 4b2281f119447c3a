"""The state of a member of a group, and what the coordinator's responses mean for it.

    UNJOINED ── JoinGroup ──> PREPARING ── its answer ──> COMPLETING ── SyncGroup's ──> STABLE
        ^                                                                                 │
        └──────────────── an error of a heartbeat, a commit or a join ────────────────────┘

    verdict      what follows
    RETRY        ask again after a pause
    REDISCOVER   the coordinator has moved or is away: find it, and ask again
    REJOIN       join again with our member id
    RESET        join as a new member: our partitions are lost. An old generation keeps its
                 member id, an unknown member gets another one
    FENCED       another member has our instance id (KIP-345): raised, and not tried again
    FATAL        raised

(Kafka: AbstractCoordinator, its handlers' tables.)
"""

import enum
from typing import Protocol

from replication.client.consumer.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    RebalanceInProgressError,
    RetriableCommitFailedError,
)
from replication.client.coordinators import CoordinatorFinder
from replication.client.errors import GroupAuthorizationFailedError
from replication.errors import ErrorCode, KafkaError
from replication.wire.join_group import NO_GENERATION, NO_MEMBER
from storage.attributes import define

LEAVE_ATTEMPTS = 3
"""The number of attempts to leave a group; a silent member is dropped anyway."""


class MemberState(enum.Enum):
    """The states of the picture above."""

    UNJOINED = "unjoined"
    PREPARING = "preparing rebalance"
    COMPLETING = "completing rebalance"
    STABLE = "stable"


class MemberVerdict(enum.Enum):
    """The verdicts of the table above."""

    RETRY = "retry"
    REDISCOVER = "rediscover"
    REJOIN = "rejoin"
    RESET = "reset"
    FENCED = "fenced"
    FATAL = "fatal"


_COORDINATOR = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: MemberVerdict.REDISCOVER,
    ErrorCode.NOT_COORDINATOR: MemberVerdict.REDISCOVER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: MemberVerdict.RETRY,
    ErrorCode.FENCED_INSTANCE_ID: MemberVerdict.FENCED,
    ErrorCode.UNKNOWN_MEMBER_ID: MemberVerdict.RESET,
    ErrorCode.ILLEGAL_GENERATION: MemberVerdict.RESET,
}
JOIN = _COORDINATOR | {ErrorCode.REBALANCE_IN_PROGRESS: MemberVerdict.RETRY}
HEARTBEAT = _COORDINATOR | {ErrorCode.REBALANCE_IN_PROGRESS: MemberVerdict.REJOIN}
SYNC = HEARTBEAT | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: MemberVerdict.REJOIN}
CONSUMER_HEARTBEAT = _COORDINATOR | {
    ErrorCode.FENCED_MEMBER_EPOCH: MemberVerdict.RESET,
    # A member that was away for so long that its whole group is gone begins it anew.
    ErrorCode.GROUP_ID_NOT_FOUND: MemberVerdict.RESET,
}
COMMIT = HEARTBEAT | {
    ErrorCode.REQUEST_TIMED_OUT: MemberVerdict.REDISCOVER,
    # The next heartbeat brings the newer epoch, or fences us (KIP-848).
    ErrorCode.STALE_MEMBER_EPOCH: MemberVerdict.RETRY,
    ErrorCode.GROUP_ID_NOT_FOUND: MemberVerdict.RESET,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: MemberVerdict.RETRY,
    ErrorCode.UNSTABLE_OFFSET_COMMIT: MemberVerdict.RETRY,
}


def judge(table: dict[ErrorCode, MemberVerdict], error: ErrorCode) -> MemberVerdict:
    """Return the verdict on an error; one that is not in the table is raised."""
    return table.get(error, MemberVerdict.FATAL)


class CommittingMember(Protocol):
    """A member of either protocol, as its commits and the errors of the coordinator see it."""

    @property
    def group_id(self) -> str: ...
    @property
    def group_instance_id(self) -> str | None: ...
    @property
    def member_id(self) -> str: ...
    @property
    def generation_id(self) -> int:
        """The generation, or the member epoch, under which it commits; -1 outside the group."""

    @property
    def last_joined(self) -> tuple[int, str]:
        """The generation and member id that it had last, and may have lost; -1 and "" before."""

    @property
    def may_commit(self) -> bool: ...
    @property
    def is_named_in_fetches(self) -> bool:
        """Whether OffsetFetch names the member, so that the coordinator checks its epoch."""

    @property
    def is_lost(self) -> bool: ...
    def request_rejoin(self, reason: str) -> None: ...
    def reset(self, reason: str, *, keep_member_id: bool = False) -> None: ...


@define(eq=False)
class Membership:
    """The identity and state of this member in its group."""

    group_id: str
    group_instance_id: str | None = None
    state: MemberState = MemberState.UNJOINED
    generation_id: int = NO_GENERATION
    member_id: str = NO_MEMBER
    protocol_name: str = ""
    rejoin_needed: bool = True
    rejoin_reason: str = "it has not joined yet"
    last_joined: tuple[int, str] = (NO_GENERATION, NO_MEMBER)
    """The generation and member id of the last join that ended, which it may have lost since."""

    @property
    def may_commit(self) -> bool:
        """Whether the group takes commits of this generation."""
        return self.state is MemberState.STABLE

    @property
    def is_named_in_fetches(self) -> bool:
        """Whether OffsetFetch names this member: that of a classic group is never checked."""
        return False

    @property
    def is_dynamic(self) -> bool:
        return self.group_instance_id is None

    @property
    def is_lost(self) -> bool:
        """Whether the group no longer knows us: our partitions have gone to others."""
        return self.generation_id == NO_GENERATION and self.member_id == NO_MEMBER

    @property
    def has_joined(self) -> bool:
        """Whether heartbeats are due."""
        return self.state in (MemberState.COMPLETING, MemberState.STABLE)

    def request_rejoin(self, reason: str) -> None:
        self.rejoin_needed, self.rejoin_reason = True, reason

    def preparing(self) -> None:
        self.state, self.rejoin_needed = MemberState.PREPARING, False

    def joined(self, *, generation_id: int, member_id: str, protocol_name: str) -> None:
        assert self.state is MemberState.PREPARING, "an answer to a join comes while it joins"
        self.state = MemberState.COMPLETING
        self.generation_id, self.member_id = generation_id, member_id
        self.protocol_name = protocol_name

    def synced(self) -> None:
        assert self.state is MemberState.COMPLETING, "only a member that has joined can sync"
        self.state = MemberState.STABLE
        self.last_joined = self.generation_id, self.member_id

    def given_id(self, member_id: str) -> None:
        """Take a member id with which to join again (KIP-394)."""
        self.member_id, self.state = member_id, MemberState.UNJOINED
        self.request_rejoin("it has been given a member id")

    def failed(self, reason: str) -> None:
        self.state = MemberState.UNJOINED
        self.request_rejoin(reason)

    def reset(self, reason: str, *, keep_member_id: bool = False) -> None:
        self.generation_id = NO_GENERATION
        if not keep_member_id:
            self.member_id = NO_MEMBER
        self.failed(reason)


def act_upon(
    table: dict[ErrorCode, MemberVerdict],
    error: ErrorCode,
    member: CommittingMember,
    finder: CoordinatorFinder,
    *,
    request: str,
) -> None:
    """Do what the verdict on `error` says; raise it if the verdict is FENCED or FATAL."""
    reason = f"a {request} got {error.name}"
    match judge(table, error):
        case MemberVerdict.RETRY:
            pass
        case MemberVerdict.REDISCOVER:
            finder.forget()
        case MemberVerdict.REJOIN:
            member.request_rejoin(reason)
        case MemberVerdict.RESET:
            member.reset(reason, keep_member_id=error is ErrorCode.ILLEGAL_GENERATION)
        case MemberVerdict.FENCED:
            member.reset(reason)
            raise error_of(error, member.group_id)
        case MemberVerdict.FATAL:
            raise error_of(error, member.group_id)


def error_of(error: ErrorCode, group_id: str) -> KafkaError:
    """Return the error that a program gets."""
    match error:
        case ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return GroupAuthorizationFailedError(group_id)
        case ErrorCode.FENCED_INSTANCE_ID:
            return FencedInstanceIdError(f"another member of {group_id} has this group.instance.id")
        case _:
            return KafkaError(error, f"group {group_id}")


def commit_error_of(error: ErrorCode, group_id: str) -> KafkaError:
    """Return the error of a commit that failed."""
    match judge(COMMIT, error):
        case MemberVerdict.RETRY | MemberVerdict.REDISCOVER:
            return RetriableCommitFailedError(error, f"group {group_id}")
        case MemberVerdict.REJOIN:
            return RebalanceInProgressError(f"group {group_id}: poll, and commit after")
        case MemberVerdict.RESET:
            return CommitFailedError(error)
        case _:
            return error_of(error, group_id)
