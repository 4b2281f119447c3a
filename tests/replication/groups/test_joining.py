"""A group comes together, changes and falls apart: the classic protocol, step by step.

The file is long because each state of a group has its cases for each request.
"""

from typing import Any

import attrs
import pytest

from replication.errors import ErrorCode
from replication.events import GroupMemberLeft, GroupStabilized
from replication.groups.rules.classic import NEW_MEMBER_JOIN_TIMEOUT_MS, SHORTEST_WAIT_MS
from replication.groups.rules.group import GroupState, Protocol
from replication.groups.rules.presence import commit, heartbeat, leave
from tests.replication.groups.desk import LIMITS, RANGE, REBALANCE_MS, SESSION_MS, Desk

ROBIN = Protocol("roundrobin", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff")
STICKY = Protocol("sticky", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff")


@pytest.fixture
def desk() -> Desk:
    return Desk()


def beat(desk: Desk, member_id: str, **how: Any) -> ErrorCode:
    asked: dict[str, Any] = {"group_instance_id": None, "generation": desk.group.generation} | how
    error = heartbeat(desk.machine, member_id=member_id, at=desk.at, **asked)
    desk.settle()
    return error


def go(desk: Desk, member_id: str, instance: str | None = None) -> ErrorCode:
    error = leave(desk.machine, member_id=member_id, group_instance_id=instance, at=desk.at)
    desk.settle()
    return error


# Coming together.


def test_a_generation_has_one_leader_which_gets_all_members() -> None:
    desk = Desk(limits=attrs.evolve(LIMITS, initial_rebalance_delay_ms=3000))
    tickets = [desk.join() for _ in range(3)]
    assert not desk.answers
    desk.pass_time(6000)
    results = [desk.joined(ticket) for ticket in tickets]
    leader = results[0].member_id
    assert {(each.leader, each.generation, each.protocol_name) for each in results} == {
        (leader, 1, "range")
    }
    assert [len(each.members) for each in results] == [3, 0, 0]


def test_each_member_has_its_part_once_the_assignment_is_stored(desk: Desk) -> None:
    tickets = [desk.join(), desk.join()]
    desk.pass_time(0)
    leader, other = (desk.joined(each).member_id for each in tickets)
    waits = desk.sync(other)
    leads = desk.sync(leader, {leader: b"L", other: b"O"})
    assert waits not in desk.answers
    desk.finish_writes()
    assert desk.state is GroupState.STABLE
    assert (desk.synced(waits).assignment, desk.synced(leads).assignment) == (b"O", b"L")
    assert isinstance(desk.events[-1], GroupStabilized)
    later = desk.sync(other, protocol_type="consumer", protocol_name="range")
    assert desk.synced(later).assignment == b"O"


def test_an_assignment_that_cannot_be_stored_starts_a_rebalance(desk: Desk) -> None:
    ticket = desk.join()
    desk.pass_time(0)
    leads = desk.sync(desk.joined(ticket).member_id, {})
    desk.finish_writes(ErrorCode.NOT_COORDINATOR)
    assert desk.synced(leads).error is ErrorCode.NOT_COORDINATOR
    assert desk.state is GroupState.PREPARING_REBALANCE


def test_a_stored_assignment_of_a_generation_that_is_over_changes_nothing(desk: Desk) -> None:
    desk.join()
    desk.pass_time(0)
    desk.sync("m1", {"m1": b"old"})
    desk.join()  # and so they all begin again
    desk.finish_writes()
    assert desk.state is GroupState.PREPARING_REBALANCE
    assert desk.synced(2).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_the_leader_left_out_has_an_empty_assignment(desk: Desk) -> None:
    tickets = [desk.join(), desk.join()]
    desk.pass_time(0)
    leader, other = (desk.joined(each).member_id for each in tickets)
    waits = desk.sync(other)
    desk.sync(leader, {leader: b"all"})
    desk.finish_writes()
    assert (desk.synced(waits).error, desk.synced(waits).assignment) == (ErrorCode.NONE, b"")


def test_the_first_rebalance_waits_again_for_each_newcomer() -> None:
    desk = Desk(limits=attrs.evolve(LIMITS, initial_rebalance_delay_ms=3000))
    first = desk.join()
    desk.pass_time(2000)
    second = desk.join()
    desk.pass_time(1000)
    assert not desk.answers, "a member came, so it waits once more"
    desk.pass_time(2999)
    assert not desk.answers
    desk.pass_time(1)
    assert {desk.joined(first).generation, desk.joined(second).generation} == {1}


def test_the_first_rebalance_waits_no_longer_than_the_rebalance_timeout() -> None:
    desk = Desk(limits=attrs.evolve(LIMITS, initial_rebalance_delay_ms=3000))
    tickets = [desk.join(rebalance_timeout_ms=7000)]
    for _ in range(6):
        desk.pass_time(1500)
        tickets.append(desk.join(rebalance_timeout_ms=7000))
    assert desk.joined(tickets[0]).generation == 1
    assert len(desk.joined(tickets[0]).members) < len(tickets)


def test_a_dynamic_newcomer_comes_back_with_the_id_it_is_given(desk: Desk) -> None:
    asked = desk.joined(desk.join(must_know_its_id=True))
    assert (asked.error, asked.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "m1")
    static = desk.joined(desk.join("m1", group_instance_id="i"))
    assert static.error is ErrorCode.UNKNOWN_MEMBER_ID
    back = desk.join("m1")
    desk.pass_time(0)
    assert desk.joined(back).generation == 1
    desk.joined(desk.join(must_know_its_id=True))
    desk.pass_time(SESSION_MS)
    assert not desk.machine.pending
    assert desk.joined(desk.join("m4")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_is_out_is_waited_for_as_a_member_is(desk: Desk) -> None:
    (member,) = desk.stable(None)
    desk.join(must_know_its_id=True)
    again = desk.join(member)
    assert again not in desk.answers
    assert go(desk, "m3") is ErrorCode.NONE
    assert desk.joined(again).generation == 2


@pytest.mark.parametrize(
    ("protocols", "expected"),
    [
        pytest.param([(RANGE, ROBIN), (ROBIN, RANGE), (ROBIN, RANGE)], "roundrobin", id="votes"),
        pytest.param([(RANGE, ROBIN), (ROBIN, RANGE)], "range", id="a tie is the first one's"),
        pytest.param([(STICKY, RANGE), (RANGE,)], "range", id="only what all know"),
    ],
)
def test_the_protocol_is_voted_for(
    desk: Desk, protocols: list[tuple[Protocol, ...]], expected: str
) -> None:
    tickets = [desk.join(protocols=each) for each in protocols]
    desk.pass_time(0)
    assert {desk.joined(ticket).protocol_name for ticket in tickets} == {expected}


@pytest.mark.parametrize(
    "how", [{"protocols": (STICKY,)}, {"protocol_type": "connect"}, {"protocols": ()}]
)
def test_a_member_without_a_common_protocol_is_refused(desk: Desk, how: dict[str, Any]) -> None:
    desk.join(protocols=(RANGE, ROBIN))
    refused = desk.joined(desk.join(**how))
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("how", [{"protocol_type": ""}, {"protocols": ()}])
def test_the_first_one_has_to_know_something(desk: Desk, how: dict[str, Any]) -> None:
    assert desk.joined(desk.join(**how)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# Joining again.


def test_joining_again_as_before_changes_nothing_for_a_follower(desk: Desk) -> None:
    _, follower = desk.stable(None, None)
    again = desk.joined(desk.join(follower))
    assert (again.error, again.generation, again.members) == (ErrorCode.NONE, 1, ())
    assert desk.state is GroupState.STABLE


def test_a_leader_that_joins_again_wants_to_assign_anew(desk: Desk) -> None:
    leader, follower = desk.stable(None, None)
    again = desk.join(leader)
    assert desk.state is GroupState.PREPARING_REBALANCE
    assert beat(desk, follower) is ErrorCode.REBALANCE_IN_PROGRESS
    desk.join(follower)
    assert desk.joined(again).generation == 2


def test_a_member_that_wants_something_else_starts_a_rebalance(desk: Desk) -> None:
    leader, follower = desk.stable(None, None)
    changed = desk.join(follower, protocols=(Protocol("range", b"other"),))
    desk.join(leader)
    assert desk.joined(changed).generation == 2


def test_a_lost_answer_is_given_again_while_the_group_waits_for_its_leader(desk: Desk) -> None:
    tickets = [desk.join(), desk.join()]
    desk.pass_time(0)
    leader, follower = (desk.joined(each).member_id for each in tickets)
    assert len(desk.joined(desk.join(leader)).members) == 2
    assert desk.joined(desk.join(follower)).members == ()
    assert desk.group.generation == 1


def test_a_second_join_of_a_member_ends_the_first(desk: Desk) -> None:
    leader, follower = desk.stable(None, None)
    first = desk.join(leader)
    second = desk.join(leader)
    assert desk.joined(first).error is ErrorCode.REBALANCE_IN_PROGRESS
    desk.join(follower)
    assert desk.joined(second).generation == 2


# Falling apart.


def test_a_member_that_does_not_rejoin_in_time_is_removed_and_another_leads(desk: Desk) -> None:
    leader, follower = desk.stable(None, None)
    back = desk.join(follower, protocols=(Protocol("range", b"other"),))
    for _ in range(7):
        desk.pass_time(REBALANCE_MS // 7)
        beat(desk, leader)  # alive, but never back
    desk.pass_time(10)
    assert list(desk.group.members) == [follower]
    assert desk.joined(back).leader == follower
    assert any(
        isinstance(each, GroupMemberLeft)
        and (each.member, each.cause) == (leader, "did not rejoin")
        for each in desk.events
    )


def test_a_silent_member_is_out_when_its_session_is_over(desk: Desk) -> None:
    one, other = desk.stable(None, None)
    desk.pass_time(SESSION_MS - 1)
    assert beat(desk, one) is ErrorCode.NONE
    desk.pass_time(1)
    assert list(desk.group.members) == [one]
    assert beat(desk, other) is ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(desk, one) is ErrorCode.REBALANCE_IN_PROGRESS


def test_the_session_of_a_waiting_member_does_not_expire(desk: Desk) -> None:
    one, other = desk.stable(None, None)
    waiting = desk.join(one)
    for _ in range(5):
        desk.pass_time(SESSION_MS - 1)
        beat(desk, other)
    assert waiting not in desk.answers
    desk.join(other)
    assert desk.joined(waiting).generation == 2


def test_a_newcomer_without_an_answer_is_removed_after_five_minutes(desk: Desk) -> None:
    (member,) = desk.stable(None)
    newcomer = desk.join(rebalance_timeout_ms=NEW_MEMBER_JOIN_TIMEOUT_MS * 2)
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // SESSION_MS + 1):
        desk.pass_time(SESSION_MS - 1)
        beat(desk, member)
    desk.pass_time(SESSION_MS // 2)
    assert desk.joined(newcomer).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_sync_is_removed(desk: Desk) -> None:
    tickets = [desk.join(), desk.join()]
    desk.pass_time(0)
    leader, silent = (desk.joined(each).member_id for each in tickets)
    desk.sync(leader, {})
    desk.finish_writes()
    for _ in range(7):
        desk.pass_time(REBALANCE_MS // 7)
        beat(desk, leader), beat(desk, silent)
    desk.pass_time(100)
    assert silent not in desk.group.members
    assert desk.state is GroupState.PREPARING_REBALANCE


def test_the_last_to_leave_leaves_an_empty_group_which_is_written_down(desk: Desk) -> None:
    one, other = desk.stable(None, None)
    assert go(desk, one) is ErrorCode.NONE
    assert go(desk, one) is ErrorCode.UNKNOWN_MEMBER_ID
    assert go(desk, other) is ErrorCode.NONE
    assert (desk.state, desk.group.generation, desk.group.leader_id) == (GroupState.EMPTY, 2, None)
    assert len(desk.writes) == 1


def test_a_full_group_refuses_newcomers_and_keeps_the_first_to_rejoin() -> None:
    desk = Desk(limits=attrs.evolve(LIMITS, max_size=2))
    one, other = desk.stable(None, None)
    assert desk.joined(desk.join()).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    desk.machine.limits = attrs.evolve(LIMITS, max_size=1)
    back = desk.join(one)
    assert desk.joined(desk.join(other)).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert desk.joined(back).generation == 2
    assert list(desk.group.members) == [one]


def test_requests_of_another_generation_are_refused(desk: Desk) -> None:
    (member,) = desk.stable(None)
    assert beat(desk, member, generation=7) is ErrorCode.ILLEGAL_GENERATION
    assert desk.synced(desk.sync(member, generation=7)).error is ErrorCode.ILLEGAL_GENERATION
    others: list[dict[str, Any]] = [{"protocol_type": "connect"}, {"protocol_name": "sticky"}]
    for how in others:
        error = desk.synced(desk.sync(member, **how)).error
        assert error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert desk.synced(desk.sync("stranger")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_unloaded_group_answers_every_waiting_request(desk: Desk) -> None:
    one, _ = desk.stable(None, None)
    waiting = desk.join(one)
    desk.machine.unload(ErrorCode.NOT_COORDINATOR, desk.at)
    desk.settle()
    assert desk.joined(waiting).error is ErrorCode.NOT_COORDINATOR
    assert desk.machine.next_deadline_ms is None
    assert beat(desk, one) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert desk.joined(desk.join()).error is ErrorCode.COORDINATOR_NOT_AVAILABLE


# Static members (KIP-345).


@pytest.mark.parametrize("may_skip", [False, True])
def test_a_static_member_takes_its_place_again_without_a_rebalance(
    desk: Desk, may_skip: bool
) -> None:
    old, other = desk.stable("i", "j")
    back = desk.join(group_instance_id="i", may_skip_assignment=may_skip)
    assert back not in desk.answers, "first its new id is written down"
    desk.finish_writes()
    result = desk.joined(back)
    assert (result.error, result.generation, desk.state) == (ErrorCode.NONE, 1, GroupState.STABLE)
    assert (result.skip_assignment, len(result.members)) == ((True, 2) if may_skip else (False, 0))
    assert result.leader == (result.member_id if may_skip else old)
    assert beat(desk, old, group_instance_id="i") is ErrorCode.FENCED_INSTANCE_ID
    assert beat(desk, old) is ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(desk, result.member_id, group_instance_id="i") is ErrorCode.NONE
    again = desk.sync(result.member_id, group_instance_id="i")
    assert desk.synced(again).assignment == old.encode(), "what its place was given"
    assert list(desk.group.members) == [result.member_id, other]


def test_a_replacement_that_cannot_be_written_did_not_happen(desk: Desk) -> None:
    (old,) = desk.stable("i")
    back = desk.join(group_instance_id="i", session_timeout_ms=1)
    desk.finish_writes(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert desk.joined(back).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert beat(desk, old, group_instance_id="i") is ErrorCode.NONE
    assert desk.group.members[old].session_timeout_ms == SESSION_MS


def test_a_replacement_while_the_leader_assigns_begins_again(desk: Desk) -> None:
    tickets = [desk.join(group_instance_id="i"), desk.join(group_instance_id="j")]
    desk.pass_time(0)
    waiting = desk.sync(desk.joined(tickets[0]).member_id, group_instance_id="i")
    back = desk.join(group_instance_id="i")
    assert desk.synced(waiting).error is ErrorCode.FENCED_INSTANCE_ID
    assert back not in desk.answers
    desk.join(desk.joined(tickets[1]).member_id, group_instance_id="j")
    assert desk.joined(back).generation == 2


def test_a_replacement_during_a_rebalance_waits_for_it_and_fences_the_old_one(desk: Desk) -> None:
    one, other = desk.stable("i", "j")
    waiting = desk.join(one, group_instance_id="i")
    back = desk.join(group_instance_id="i")
    assert desk.joined(waiting).error is ErrorCode.FENCED_INSTANCE_ID
    desk.join(other, group_instance_id="j")
    assert desk.joined(back).generation == 2


def test_a_rebalance_overtakes_a_replacement_that_is_being_written(desk: Desk) -> None:
    _, other = desk.stable("i", "j")
    back = desk.join(group_instance_id="i")
    desk.join(other, group_instance_id="j", protocols=(Protocol("range", b"other"),))
    desk.finish_writes()
    assert desk.joined(back).generation == 2


def test_a_replacement_that_votes_otherwise_starts_a_rebalance(desk: Desk) -> None:
    first = desk.join(group_instance_id="i", protocols=(RANGE, ROBIN))
    desk.pass_time(0)
    desk.sync(desk.joined(first).member_id, {}, group_instance_id="i")
    desk.finish_writes()
    back = desk.join(group_instance_id="i", protocols=(ROBIN,))
    assert (desk.joined(back).generation, desk.joined(back).protocol_name) == (2, "roundrobin")


def test_static_members_keep_their_place_until_their_session_is_over(desk: Desk) -> None:
    _, other = desk.stable("i", "j")
    desk.group.members["m1"].rebalance_timeout_ms = 1
    waiting = desk.join(
        other, group_instance_id="j", rebalance_timeout_ms=1, protocols=(Protocol("range", b"x"),)
    )
    desk.pass_time(5000)
    assert desk.joined(waiting).generation == 2
    assert len(desk.joined(waiting).members) == 2
    desk.pass_time(SESSION_MS)
    assert "m1" not in desk.group.members


def test_a_group_of_absent_static_members_keeps_its_generation(desk: Desk) -> None:
    _, other = desk.stable("i", "j")
    desk.group.members["m1"].rebalance_timeout_ms = desk.group.members[
        other
    ].rebalance_timeout_ms = 1
    go(desk, other, "j")
    desk.pass_time(5000)
    assert (desk.state, desk.group.generation) == (GroupState.PREPARING_REBALANCE, 1)
    desk.pass_time(SESSION_MS)
    assert (desk.state, desk.group.generation) == (GroupState.EMPTY, 2)


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_rebalance_timeout_of_0_costs_no_busy_loop(desk: Desk, timeout_ms: int) -> None:
    leader, other = desk.stable("i", "j")
    for member, instance in (leader, "i"), (other, "j"):
        desk.join(member, group_instance_id=instance, rebalance_timeout_ms=timeout_ms)
    for member, instance in (other, "j"), (leader, "i"):
        desk.sync(member, {}, group_instance_id=instance)
    desk.finish_writes()
    go(desk, "", "i")
    ticks = 0
    while (due := desk.machine.next_deadline_ms) is not None:
        desk.now_ms = max(due, desk.now_ms)
        desk.machine.tick(desk.at)
        desk.settle()
        ticks += 1
        assert ticks < 2 * SESSION_MS / SHORTEST_WAIT_MS, "as fast as it can be asked"
    assert desk.state is GroupState.EMPTY


def test_an_administrator_sends_a_static_member_away_by_its_instance_id(desk: Desk) -> None:
    desk.stable("i", "j")
    assert go(desk, "", "k") is ErrorCode.UNKNOWN_MEMBER_ID
    assert go(desk, "", None) is ErrorCode.UNKNOWN_MEMBER_ID
    assert go(desk, "stranger", "i") is ErrorCode.FENCED_INSTANCE_ID
    assert go(desk, "", "i") is ErrorCode.NONE
    assert list(desk.group.members) == ["m2"]


# Committing.


def may_commit(desk: Desk, member_id: str = "", generation: int = -1) -> ErrorCode:
    return commit(
        desk.machine, member_id=member_id, group_instance_id=None, generation=generation, at=desk.at
    )


def test_only_members_commit_unless_there_are_none(desk: Desk) -> None:
    assert may_commit(desk) is ErrorCode.NONE
    assert may_commit(desk, "m", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    (member,) = desk.stable(None)
    assert may_commit(desk) is ErrorCode.UNKNOWN_MEMBER_ID
    assert may_commit(desk, member, 1) is ErrorCode.NONE
    assert may_commit(desk, member, 0) is ErrorCode.ILLEGAL_GENERATION
    desk.join()
    assert may_commit(desk, member, 1) is ErrorCode.NONE, "it has yet to hear of the rebalance"
    desk.join(member)
    assert desk.state is GroupState.COMPLETING_REBALANCE
    assert may_commit(desk, member, 2) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_is_as_good_as_a_heartbeat(desk: Desk) -> None:
    (member,) = desk.stable(None)
    desk.pass_time(SESSION_MS - 1)
    may_commit(desk, member, 1)
    desk.pass_time(SESSION_MS - 1)
    assert desk.state is GroupState.STABLE
