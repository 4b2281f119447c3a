"""The state of a member after the coordinator's responses, and the errors of its program."""

import pytest

from replication.client.consumer.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    RebalanceInProgressError,
    RetriableCommitFailedError,
)
from replication.client.consumer.group.membership import (
    COMMIT,
    HEARTBEAT,
    JOIN,
    SYNC,
    Membership,
    MemberState,
    MemberVerdict,
    commit_error_of,
    error_of,
    judge,
)
from replication.client.errors import GroupAuthorizationFailedError
from replication.errors import ErrorCode, KafkaError


def test_a_member_goes_from_unjoined_to_stable_and_back() -> None:
    member = Membership("g")
    assert (member.is_lost, member.rejoin_needed) == (True, True)
    member.preparing()
    assert (member.state, member.rejoin_needed) == (MemberState.PREPARING, False)
    member.given_id("m")
    assert (member.state, member.member_id, member.rejoin_needed) == (
        MemberState.UNJOINED,
        "m",
        True,
    )
    member.preparing()
    member.joined(generation_id=4, member_id="m", protocol_name="range")
    assert member.has_joined
    member.synced()
    member.request_rejoin("a reason")
    assert (member.state, member.rejoin_needed) == (MemberState.STABLE, True)
    member.reset("an old generation", keep_member_id=True)
    assert (member.generation_id, member.member_id) == (-1, "m"), "the id is still ours"
    member.reset("unknown")
    assert (member.is_lost, member.has_joined) == (True, False)


@pytest.mark.parametrize("table", [JOIN, SYNC, HEARTBEAT, COMMIT])
def test_in_every_table_a_coordinator_that_moved_is_looked_for(
    table: dict[ErrorCode, MemberVerdict],
) -> None:
    for error in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
        assert judge(table, error) is MemberVerdict.REDISCOVER
    assert judge(table, ErrorCode.UNKNOWN_MEMBER_ID) is MemberVerdict.RESET
    assert judge(table, ErrorCode.FENCED_INSTANCE_ID) is MemberVerdict.FENCED
    assert judge(table, ErrorCode.GROUP_AUTHORIZATION_FAILED) is MemberVerdict.FATAL
    assert judge(table, ErrorCode.of(12345)) is MemberVerdict.FATAL


@pytest.mark.parametrize(
    ("code", "raised", "retriable"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, RetriableCommitFailedError, True),
        (ErrorCode.NOT_COORDINATOR, RetriableCommitFailedError, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, RetriableCommitFailedError, True),
        (ErrorCode.REBALANCE_IN_PROGRESS, RebalanceInProgressError, False),
        (ErrorCode.UNKNOWN_MEMBER_ID, CommitFailedError, False),
        (ErrorCode.ILLEGAL_GENERATION, CommitFailedError, False),
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstanceIdError, False),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationFailedError, False),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, KafkaError, False),
    ],
)
def test_a_commit_that_failed_says_whether_it_is_worth_another_try(
    code: ErrorCode, raised: type[KafkaError], retriable: bool
) -> None:
    error = commit_error_of(code, "g")
    assert type(error) is raised
    assert error.retriable is retriable
    assert error.code in (code, ErrorCode.REBALANCE_IN_PROGRESS)


def test_errors_carry_kafkas_name_and_number() -> None:
    error = error_of(ErrorCode.INVALID_SESSION_TIMEOUT, "g")
    assert str(error) == "INVALID_SESSION_TIMEOUT: group g"
    assert error.code == 26
