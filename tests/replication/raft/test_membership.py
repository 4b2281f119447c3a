"""Changes of the voters: one at a time, in the log, and answered once they are committed (KIP-853).

The file is long because it has all of Kafka's cases (KafkaRaftClientReconfigTest).
"""

import attrs
import pytest
from hypothesis import given, strategies as st

from replication.errors import ErrorCode
from replication.raft.rules.membership import CAUGHT_UP_MS, voters_at_start
from replication.raft.rules.messages import (
    AddVoterReceived,
    AnswerChange,
    AppendVoters,
    AskLeader,
    AskLevels,
    BeginCall,
    BeginReceived,
    Event,
    FetchAnswered,
    FetchReceived,
    Lead,
    LevelsAnswered,
    LogChanged,
    RemoveVoterReceived,
    Reply,
    ReportAnswered,
    TimerExpired,
    UpdateVoterReceived,
    UpgradeAsked,
    VoterChangeAsked,
    VotersChanged,
)
from replication.raft.rules.states import Follower, Leading, Resigned
from replication.raft.rules.types import Endpoints, ListenerAddress, ReplicaKey
from replication.raft.rules.voters import (
    BOOTSTRAP_OFFSET,
    SUPPORTED,
    VoterNode,
    VoterSet,
    static_voters,
)
from replication.wire.control_records import KRaftVersionFeature
from tests.replication.raft.quorums import CLUSTER, SETTINGS, Node, endpoints, key, log_to, node

conformance = pytest.mark.conformance
REQUEST_MS = SETTINGS.request_timeout_ms
OTHER_DISK = b"another disk    "


def named(*ids: int) -> VoterSet:
    """Return voters that support changes."""
    return VoterSet(tuple(VoterNode(key(each), endpoints(each), SUPPORTED) for each in ids))


def add(voter: int) -> AddVoterReceived:
    return AddVoterReceived(voter=key(voter), endpoints=endpoints(voter))


def remove(voter: int) -> RemoveVoterReceived:
    return RemoveVoterReceived(voter=key(voter))


def moved(voter: int) -> VoterNode:
    """Return a voter with one more address than it had."""
    more = (*endpoints(voter).addresses, ListenerAddress("ANOTHER", "localhost", 8990 + voter))
    return VoterNode(key(voter), Endpoints(more), SUPPORTED)


def update(voter: VoterNode) -> UpdateVoterReceived:
    return UpdateVoterReceived(node=voter, leader_epoch=1)


def supports(voter: int, supported: KRaftVersionFeature | None = SUPPORTED) -> LevelsAnswered:
    return LevelsAnswered(voter_id=voter, error=ErrorCode.NONE, supported=supported)


def leader(*others: int, kraft_version: int = 1, static: VoterSet | None = None) -> Node:
    """Return a node that leads in epoch 1, and has committed nothing in it yet."""
    voters = static or named(1, *others)
    one = node(1, voters=[1, *others])
    if others:
        one.step(TimerExpired(), after_ms=100_000)
        for epoch in (0, 1):
            for sent in one.sent[: (len(others) + 1) // 2]:
                one.answer(sent, epoch=epoch)
    assert one.is_now(Leading)
    one.log = log_to(2, epoch=1)
    offset = None if static else 1
    one.step(VotersChanged(voters, offset=offset, kraft_version=kraft_version))
    one.step(LogChanged())
    return one


def fetch(one: Node, *replicas: int) -> None:
    """Let each of these fetch from the end of the leader's log."""
    for replica in replicas:
        one.step(
            FetchReceived(
                replica=key(replica),
                leader_epoch=1,
                fetch_offset=one.log.end_offset,
                last_fetched_epoch=1,
            )
        )


def settled(*others: int) -> Node:
    """Return a leader that has committed the start of its epoch, with its voters."""
    one = leader(*others)
    fetch(one, *others)
    return one


def append(one: Node) -> VoterSet:
    """Write what the leader appends, and let it be flushed there. Return the voters."""
    (effect,) = [each for each in one.effects if isinstance(each, AppendVoters)]
    level = one.quorum.kraft_version if effect.kraft_version is None else effect.kraft_version
    one.log = log_to(one.log.end_offset + 1, epoch=1)
    changed = VotersChanged(effect.voters, offset=one.log.end_offset - 1, kraft_version=level)
    one.step(changed)
    return effect.voters


def flush(one: Node) -> None:
    one.step(LogChanged())


def answers(one: Node) -> list[ErrorCode]:
    """Return how the last step has answered a change that had waited."""
    return [each.error for each in one.effects if isinstance(each, AnswerChange)]


def error_of(reply: Reply | None) -> ErrorCode | None:
    return None if reply is None else reply.error


# --- adding --------------------------------------------------------------------------------


@conformance("KR-159")
def test_a_replica_that_has_caught_up_becomes_a_voter() -> None:
    one = settled(2)
    fetch(one, 3)
    assert one.step(add(3)) is None
    assert one.effects == (AskLevels(voter=key(3), endpoints=endpoints(3)),)
    one.step(supports(3))
    assert append(one) == one.quorum.voters == named(1, 2, 3)
    assert [each.to for each in one.sent] == [key(3)], "it learns who leads"
    flush(one)
    assert not answers(one)
    fetch(one, 2)
    assert answers(one) == [ErrorCode.NONE]
    fetch(one, 3)
    assert not answers(one)


def test_a_replica_that_adds_itself_is_answered_when_the_record_is_written() -> None:
    one = settled(2)
    fetch(one, 3)
    one.step(attrs.evolve(add(3), ack_when_committed=False))
    one.step(supports(3))
    append(one)
    assert answers(one) == [ErrorCode.NONE]
    assert error_of(one.step(remove(2))) == ErrorCode.REQUEST_TIMED_OUT, "it is not committed"
    flush(one)
    fetch(one, 3)
    assert not answers(one)
    assert one.step(remove(2)) is None


@conformance("KR-168")
def test_only_the_new_voter_says_what_it_supports() -> None:
    one = settled(2)
    fetch(one, 3)
    one.step(supports(3))
    one.step(add(3))
    one.step(supports(4))
    assert not one.effects
    one.step(supports(3))
    append(one)
    one.step(supports(3))
    assert not one.effects


@conformance("KR-169")
@pytest.mark.parametrize(
    "supported",
    [None, KRaftVersionFeature(), KRaftVersionFeature(min_supported_version=2)],
    ids=["nothing", "level 0 alone", "no range"],
)
def test_a_new_voter_supports_the_level_of_the_cluster(
    supported: KRaftVersionFeature | None,
) -> None:
    one = settled(2)
    fetch(one, 3)
    one.step(add(3))
    one.step(supports(3, supported))
    assert answers(one) == [ErrorCode.INVALID_REQUEST]


def test_a_new_voter_that_does_not_answer_is_not_added() -> None:
    one = settled(2)
    fetch(one, 3)
    one.step(add(3))
    one.step(LevelsAnswered(voter_id=3, error=ErrorCode.BROKER_NOT_AVAILABLE))
    assert answers(one) == [ErrorCode.REQUEST_TIMED_OUT]
    assert one.step(remove(2)) is None, "the next change may begin"


@conformance("KR-170")
@pytest.mark.parametrize("last_fetch", ["never", "behind", "long ago"])
def test_a_new_voter_has_caught_up(last_fetch: str) -> None:
    one = settled(2)
    if last_fetch == "behind":
        one.step(
            FetchReceived(replica=key(3), leader_epoch=1, fetch_offset=1, last_fetched_epoch=1)
        )
    elif last_fetch == "long ago":
        fetch(one, 3)
        one.now_ms += CAUGHT_UP_MS
        fetch(one, 2)
    one.step(add(3))
    one.step(supports(3))
    assert answers(one) == [ErrorCode.REQUEST_TIMED_OUT]


@conformance("KR-167", "KR-183")
@pytest.mark.parametrize("is_asked", [True, False])
def test_a_change_that_takes_too_long_is_given_up_and_may_be_committed_all_the_same(
    *, is_asked: bool
) -> None:
    one = settled(2, 3)
    fetch(one, 4)
    one.step(add(4) if is_asked else remove(3))
    if not is_asked:
        append(one)
        flush(one)
    one.step(TimerExpired(), after_ms=REQUEST_MS - 1)
    assert not answers(one)
    one.step(TimerExpired(), after_ms=1)
    assert answers(one) == [ErrorCode.REQUEST_TIMED_OUT]
    assert one.is_now(Leading)
    assert error_of(one.step(remove(2))) == (None if is_asked else ErrorCode.REQUEST_TIMED_OUT)
    if not is_asked:
        fetch(one, 2)
        assert not answers(one)
        assert one.step(add(3)) is None, "what is committed is in the way no more"


# --- removing ------------------------------------------------------------------------------


@conformance("KR-173")
def test_a_voter_is_removed() -> None:
    one = settled(2, 3)
    assert one.step(remove(3)) is None
    assert append(one) == named(1, 2)
    flush(one)
    assert not answers(one)
    fetch(one, 3)
    assert not answers(one), "it does not count any more"
    fetch(one, 2)
    assert answers(one) == [ErrorCode.NONE]
    assert one.is_now(Leading)


@conformance("KR-174")
@pytest.mark.parametrize("in_time", [True, False])
def test_a_leader_that_is_removed_leads_until_that_is_committed(*, in_time: bool) -> None:
    one = settled(2, 3)
    one.step(remove(1))
    assert append(one) == named(2, 3)
    flush(one)
    fetch(one, 2)
    assert one.is_now(Leading)
    if not in_time:
        one.step(TimerExpired(), after_ms=REQUEST_MS)
        assert answers(one) == [ErrorCode.REQUEST_TIMED_OUT]
    fetch(one, 3)
    assert answers(one) == ([ErrorCode.NONE] if in_time else [])
    assert one.is_now(Resigned)
    assert {each.to for each in one.sent} == {key(2), key(3)}


def test_a_change_waits_for_its_own_record() -> None:
    one = settled(2, 3)
    one.step(remove(3))
    one.log = log_to(one.log.end_offset + 1, epoch=1)
    one.step(LogChanged())
    fetch(one, 2)
    assert not answers(one), "what is committed is another record"


@conformance("KR-180", "KR-181", "KR-182")
@pytest.mark.parametrize(
    ("others", "voter"),
    [
        pytest.param((2,), key(9), id="unknown id"),
        pytest.param((2,), ReplicaKey(2, OTHER_DISK), id="another disk"),
        pytest.param((), key(1), id="the only one"),
    ],
)
def test_who_is_no_voter_or_the_last_one_is_not_removed(
    others: tuple[int, ...], voter: ReplicaKey
) -> None:
    one = settled(*others)
    assert error_of(one.step(RemoveVoterReceived(voter=voter))) == ErrorCode.VOTER_NOT_FOUND


# --- updating ------------------------------------------------------------------------------


@conformance("KR-187")
def test_a_voter_reports_its_addresses() -> None:
    one = settled(2)
    assert error_of(one.step(update(moved(2)))) == ErrorCode.NONE
    assert append(one).node(2) == moved(2)
    assert error_of(one.step(remove(2))) == ErrorCode.REQUEST_TIMED_OUT
    flush(one)
    fetch(one, 2)
    assert not answers(one)
    assert error_of(one.step(update(moved(2)))) == ErrorCode.NONE
    assert not any(isinstance(each, AppendVoters) for each in one.effects), "nothing is new"
    assert one.step(remove(2)) is None


@conformance("KR-194")
def test_at_level_0_what_voters_report_is_remembered_for_the_upgrade() -> None:
    static = static_voters("CONTROLLER", {each: ("localhost", 9990 + each) for each in (1, 2, 3)})
    one = leader(2, 3, kraft_version=0, static=static)
    fetch(one, 2, 3)
    asked = UpgradeAsked(kraft_version=1, leader_epoch=1)
    for each in (2, 3):
        assert error_of(one.step(asked)) == ErrorCode.INVALID_UPDATE_VERSION
        assert error_of(one.step(update(moved(each)))) == ErrorCode.NONE
        assert not any(isinstance(each, AppendVoters) for each in one.effects)
    assert error_of(one.step(attrs.evolve(asked, validate_only=True))) == ErrorCode.NONE
    assert not one.effects[:-1], "nothing is written"
    assert error_of(one.step(asked)) == ErrorCode.NONE
    assert append(one) == VoterSet((VoterNode(key(1), endpoints(1), SUPPORTED), moved(2), moved(3)))
    assert one.quorum.kraft_version == 1
    flush(one)
    fetch(one, 2)
    assert error_of(one.step(asked)) == ErrorCode.NONE, "there is nothing to do"
    lower = UpgradeAsked(kraft_version=0, leader_epoch=1)
    assert error_of(one.step(lower)) == ErrorCode.INVALID_UPDATE_VERSION


@conformance("KR-195", "KR-196")
@pytest.mark.parametrize("kraft_version", [0, 1])
def test_who_is_no_voter_is_not_updated(kraft_version: int) -> None:
    static = static_voters("CONTROLLER", {each: ("localhost", 9990 + each) for each in (1, 2)})
    one = leader(2, kraft_version=kraft_version, static=None if kraft_version else static)
    fetch(one, 2)
    assert error_of(one.step(update(moved(9)))) == ErrorCode.VOTER_NOT_FOUND
    other = attrs.evolve(moved(2), key=ReplicaKey(2, OTHER_DISK))
    expected = ErrorCode.VOTER_NOT_FOUND if kraft_version else ErrorCode.NONE
    assert error_of(one.step(update(other))) == expected


@pytest.mark.parametrize(("lowest", "highest"), [(2, 3), (0, 0), (1, 0), (-1, 1)], ids="{0}".format)
def test_a_voter_goes_on_supporting_the_level_of_the_cluster(lowest: int, highest: int) -> None:
    levels = KRaftVersionFeature(min_supported_version=lowest, max_supported_version=highest)
    narrow = attrs.evolve(moved(2), kraft_versions=levels)
    assert error_of(settled(2).step(update(narrow))) == ErrorCode.INVALID_REQUEST


def follower(voters: VoterSet, *, kraft_version: int) -> Node:
    """Return the voter 2, which has just begun to follow the leader 1."""
    two = node(2, voters=[1, 2, 3])
    offset = 1 if kraft_version else None
    two.step(VotersChanged(voters, offset=offset, kraft_version=kraft_version))
    two.step(BeginReceived(leader_id=1, call=BeginCall(leader_epoch=1)))
    assert two.is_now(Follower)
    return two


def fetch_and_wait(two: Node) -> list[AskLeader]:
    """Let almost a fetch timeout pass after a fetch, and the rest of it after the next one."""
    timeout_ms = SETTINGS.fetch_timeout_ms
    none = Reply(error=ErrorCode.NONE, leader_epoch=two.quorum.leader_epoch, leader_id=1)
    two.step(FetchAnswered(none), after_ms=timeout_ms - 1)
    two.step(TimerExpired(), after_ms=1)
    return [each for each in two.effects if isinstance(each, AskLeader)]


@conformance("KR-198")
def test_a_voter_reports_to_each_leader_where_voters_stand_in_no_log() -> None:
    static = static_voters("CONTROLLER", {each: ("localhost", 9990 + each) for each in (1, 2, 3)})
    two = follower(static, kraft_version=0)
    for _ in range(2):
        (report,) = fetch_and_wait(two)
        me = VoterNode(key(2), endpoints(2), SUPPORTED)
        assert report.leader_id == 1
        assert report.request == attrs.evolve(update(me), cluster_id=CLUSTER)
        assert report.endpoints == endpoints(1)
    two.step(ReportAnswered(Reply(error=ErrorCode.NONE, leader_epoch=1, leader_id=1)))
    assert not fetch_and_wait(two)
    two.step(BeginReceived(leader_id=1, call=BeginCall(leader_epoch=2)))
    assert len(fetch_and_wait(two)) == 1


@conformance("KR-199")
def test_a_voter_reports_what_the_log_does_not_say_of_it() -> None:
    assert not fetch_and_wait(follower(named(1, 2, 3), kraft_version=1))
    elsewhere = VoterSet((*named(1, 3).nodes, moved(2)))
    two = follower(elsewhere, kraft_version=1)
    assert len(fetch_and_wait(two)) == 1
    two.step(ReportAnswered(Reply(error=ErrorCode.REQUEST_TIMED_OUT, leader_epoch=1)))
    assert len(fetch_and_wait(two)) == 1
    two.step(VotersChanged(named(1, 2, 3), offset=2, kraft_version=1))
    assert not fetch_and_wait(two)


@conformance("KR-403")
def test_the_answer_to_a_report_may_name_another_leader() -> None:
    two = follower(VoterSet((*named(1, 3).nodes, moved(2))), kraft_version=1)
    fetch_and_wait(two)
    two.step(
        ReportAnswered(Reply(error=ErrorCode.FENCED_LEADER_EPOCH, leader_epoch=5, leader_id=3))
    )
    assert two.is_now(Follower)
    assert (two.quorum.leader_epoch, two.quorum.leader_id) == (5, 3)


@pytest.mark.parametrize("auto_join", [True, False])
def test_a_controller_joins_by_itself_and_lets_go_of_its_former_disk(*, auto_join: bool) -> None:
    former = attrs.evolve(named(2).nodes[0], key=ReplicaKey(2, OTHER_DISK))
    two = follower(VoterSet((*named(1, 3).nodes, former)), kraft_version=1)
    two.quorum = attrs.evolve(
        two.quorum, settings=attrs.evolve(two.quorum.settings, auto_join=auto_join)
    )
    two.step(FetchAnswered(Reply(error=ErrorCode.NONE, leader_epoch=1, leader_id=1)))
    wishes = [each.request for each in fetch_and_wait(two)]
    removal = RemoveVoterReceived(voter=former.key, cluster_id=CLUSTER)
    assert wishes == ([removal] if auto_join else [])
    two.step(VotersChanged(named(1, 3), offset=2, kraft_version=1))
    wishes = [each.request for each in fetch_and_wait(two)]
    joining = attrs.evolve(add(2), ack_when_committed=False, cluster_id=CLUSTER)
    assert wishes == ([joining] if auto_join else [])
    two.step(VotersChanged(named(1, 2, 3), offset=3, kraft_version=1))
    assert not fetch_and_wait(two)


def test_an_observer_of_voters_that_stand_in_no_log_does_not_join() -> None:
    static = static_voters("CONTROLLER", {1: ("localhost", 9991)})
    two = follower(static, kraft_version=0)
    two.quorum = attrs.evolve(
        two.quorum, settings=attrs.evolve(two.quorum.settings, auto_join=True)
    )
    assert not fetch_and_wait(two)
    assert not fetch_and_wait(two)


# --- every change --------------------------------------------------------------------------

EACH = pytest.mark.parametrize(
    "change",
    [
        pytest.param(add(3), id="add"),
        pytest.param(remove(2), id="remove"),
        pytest.param(update(moved(2)), id="update"),
    ],
)


@conformance("KR-164", "KR-178", "KR-193")
@EACH
def test_a_leader_changes_nothing_before_it_has_committed_in_its_epoch(
    change: VoterChangeAsked,
) -> None:
    one = leader(2)
    fetch(one, 3)
    assert error_of(one.step(change)) == ErrorCode.REQUEST_TIMED_OUT


def test_at_level_0_too_a_leader_first_commits_in_its_epoch() -> None:
    static = static_voters("CONTROLLER", {each: ("localhost", 9990 + each) for each in (1, 2)})
    one = leader(2, kraft_version=0, static=static)
    assert error_of(one.step(update(moved(2)))) == ErrorCode.REQUEST_TIMED_OUT


@conformance("KR-163", "KR-177", "KR-185", "KR-186", "KR-197")
@EACH
@pytest.mark.parametrize("first", [add(4), remove(3)], ids=["add", "remove"])
@pytest.mark.parametrize("is_written", [True, False])
def test_one_change_at_a_time(
    change: VoterChangeAsked, first: VoterChangeAsked, *, is_written: bool
) -> None:
    one = settled(2, 3)
    fetch(one, 4)
    one.step(first)
    if is_written:
        if isinstance(first, AddVoterReceived):
            one.step(supports(4))
        append(one)
    assert error_of(one.step(change)) == ErrorCode.REQUEST_TIMED_OUT
    assert not answers(one)


@conformance("KR-165", "KR-179")
@pytest.mark.parametrize("change", [add(3), remove(2)], ids=["add", "remove"])
def test_at_level_0_no_voter_is_added_or_removed(change: VoterChangeAsked) -> None:
    static = static_voters("CONTROLLER", {each: ("localhost", 9990 + each) for each in (1, 2)})
    one = leader(2, kraft_version=0, static=static)
    fetch(one, 2)
    assert error_of(one.step(change)) == ErrorCode.UNSUPPORTED_VERSION


@conformance("KR-166")
@pytest.mark.parametrize("disk", [key(2).directory_id, OTHER_DISK], ids=["the same", "another"])
def test_the_id_of_a_voter_is_not_added_again(disk: bytes) -> None:
    again = attrs.evolve(add(2), voter=ReplicaKey(2, disk))
    assert error_of(settled(2).step(again)) == ErrorCode.DUPLICATE_VOTER


@conformance("KR-162", "KR-172")
@pytest.mark.parametrize(
    "change",
    [
        attrs.evolve(add(3), endpoints=Endpoints(moved(3).endpoints.addresses[1:])),
        update(attrs.evolve(moved(2), endpoints=Endpoints())),
        attrs.evolve(add(3), voter=ReplicaKey(3)),
        attrs.evolve(remove(2), voter=ReplicaKey(2)),
        update(attrs.evolve(moved(2), key=ReplicaKey(2))),
    ],
    ids=["add: listener", "update: listener", "add: disk", "remove: disk", "update: disk"],
)
def test_a_change_names_the_disk_and_the_listener(change: VoterChangeAsked) -> None:
    assert error_of(settled(2).step(change)) == ErrorCode.INVALID_REQUEST


@conformance("KR-160", "KR-175", "KR-189")
@EACH
def test_a_change_is_for_this_cluster(
    change: AddVoterReceived | RemoveVoterReceived | UpdateVoterReceived,
) -> None:
    one = settled(2)
    stranger = one.step(attrs.evolve(change, cluster_id="another"))
    assert error_of(stranger) == ErrorCode.INCONSISTENT_CLUSTER_ID
    ours = one.step(attrs.evolve(change, cluster_id=CLUSTER))
    assert error_of(ours) in {None, ErrorCode.NONE}


@conformance("KR-161", "KR-176", "KR-192")
@EACH
def test_only_the_leader_changes_the_voters(change: VoterChangeAsked) -> None:
    follower = node(3, voters=[1, 2, 3])
    follower.step(
        BeginReceived(leader_id=1, call=BeginCall(leader_epoch=1), leader_endpoints=endpoints(1))
    )
    assert follower.is_now(Follower)
    reply = follower.step(change)
    assert reply is not None
    assert (reply.error, reply.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 1)


@conformance("KR-190", "KR-191")
@pytest.mark.parametrize(
    ("epoch", "error"),
    [(0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_an_update_names_the_epoch_of_the_leader(epoch: int, error: ErrorCode) -> None:
    change = attrs.evolve(update(moved(2)), leader_epoch=epoch)
    assert error_of(settled(2).step(change)) == error


@conformance("KR-171", "KR-184")
@pytest.mark.parametrize("change", [add(4), remove(3)], ids=["add", "remove"])
def test_a_change_is_not_answered_as_done_by_a_leader_that_was_deposed(
    change: VoterChangeAsked,
) -> None:
    one = settled(2, 3)
    fetch(one, 4)
    one.step(change)
    one.step(
        BeginReceived(leader_id=2, call=BeginCall(leader_epoch=2), leader_endpoints=endpoints(2))
    )
    assert answers(one) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


# --- the start of an epoch -----------------------------------------------------------------


@conformance("KR-157", "KR-158", "KR-188")
@pytest.mark.parametrize(
    ("me", "offset", "level", "written"),
    [
        pytest.param(1, BOOTSTRAP_OFFSET, 1, named(1, 2), id="a bootstrap snapshot"),
        pytest.param(1, None, 0, None, id="level 0"),
        pytest.param(1, 7, 1, None, id="nothing new"),
        pytest.param("moved", 7, 1, VoterSet((moved(1), *named(2).nodes)), id="a new address"),
    ],
)
def test_a_leader_writes_its_voters_at_the_start_if_the_log_lacks_them(
    me: int | str, offset: int | None, level: int, written: VoterSet | None
) -> None:
    node_1 = moved(1) if me == "moved" else named(1).nodes[0]
    made = voters_at_start(node_1, named(1, 2), voters_offset=offset, kraft_version=level)
    assert made == written


def test_a_new_leader_is_given_the_voters_to_write() -> None:
    one = node(1, voters=[1, 2])
    one.step(VotersChanged(named(1, 2), offset=BOOTSTRAP_OFFSET, kraft_version=1))
    one.step(TimerExpired(), after_ms=100_000)
    for epoch in (0, 1):
        one.answer(one.sent[0], epoch=epoch)
    (lead,) = [each for each in one.effects if isinstance(each, Lead)]
    assert (lead.new_voters, lead.kraft_version) == (named(1, 2), 1)


# --- at random -----------------------------------------------------------------------------

EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(add, st.integers(1, 5)),
    st.builds(remove, st.integers(1, 5)),
    st.integers(1, 5).map(lambda voter: update(moved(voter))),
    st.builds(supports, st.integers(1, 5)),
    st.just(LogChanged()),
    st.just(TimerExpired()),
)


@given(doings=st.lists(st.tuples(EVENTS | st.integers(2, 5), st.integers(0, 700)), max_size=60))
def test_changes_in_a_row_keep_a_majority_in_common_and_are_answered_once(
    doings: list[tuple[Event | int, int]],
) -> None:
    one = settled(2, 3)
    committed, waiting = one.quorum.voters, 0
    for doing, after_ms in doings:
        if not one.is_now(Leading):
            break
        one.now_ms += after_ms
        if isinstance(doing, int):
            fetch(one, doing)
        else:
            reply = one.step(doing)
            waiting += isinstance(doing, AddVoterReceived | RemoveVoterReceived) and reply is None
        waiting -= len(answers(one))
        if any(isinstance(each, AppendVoters) for each in one.effects):
            new = append(one)
            waiting -= len(answers(one))
            assert new.has_overlapping_majority(committed), "one change is committed at a time"
        quorum = one.quorum
        if (quorum.voters_offset or 0) < (quorum.high_watermark or 0):
            committed = quorum.voters
        assert waiting in {0, 1}
        state = quorum.state
        is_waiting = isinstance(state, Leading) and state.change is not None
        assert waiting <= is_waiting, "nobody waits for a change that there is not"
