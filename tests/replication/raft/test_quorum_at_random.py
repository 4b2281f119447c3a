"""Whatever happens to a node, in whatever order: `step` never raises, and these laws hold.

The epoch never goes back, nor does the high watermark. In an epoch a node votes for one candidate,
and leads once, whenever it is killed and starts again. What its peers can notice is stored.
"""

from functools import cache

import attrs
from hypothesis import given, settings, strategies as st

from replication.errors import ErrorCode
from replication.raft.rules.log_view import BelowStart, Diverging, LogView, ReadOn
from replication.raft.rules.messages import (
    AddVoterReceived,
    AnswerChange,
    Answered,
    BeginCall,
    BeginReceived,
    Effect,
    EndCall,
    EndReceived,
    Event,
    FetchAnswered,
    FetchReceived,
    HighWatermark,
    Lead,
    LevelsAnswered,
    LogChanged,
    Persist,
    RemoveVoterReceived,
    Reply,
    ReportAnswered,
    ResignAsked,
    Send,
    ShutdownAsked,
    TimerExpired,
    Unanswered,
    UpdateVoterReceived,
    UpgradeAsked,
    VoteCall,
    VoteReceived,
    VotersChanged,
)
from replication.raft.rules.states import Candidate, Leading
from replication.raft.rules.types import NO_DIRECTORY_ID, NO_ENDPOINTS, ElectionState, ReplicaKey
from replication.raft.rules.voters import STATIC_ONLY, SUPPORTED, VoterNode
from storage.checkpoint import EpochEntry
from storage.types import OffsetAndEpoch
from tests.replication.raft.quorums import CLUSTER, Node, endpoints, key, node, voter_set

REQUESTS = (
    *(VoteReceived, BeginReceived, EndReceived, FetchReceived),
    *(UpdateVoterReceived, UpgradeAsked),
)

ids = st.integers(-1, 4)
offsets = st.integers(-1, 6)
clusters = st.sampled_from([None, CLUSTER, CLUSTER, CLUSTER, "another"])
replicas = st.builds(key, st.integers(0, 4)) | st.builds(ReplicaKey, ids, st.just(NO_DIRECTORY_ID))
places = st.builds(endpoints, st.integers(0, 4)) | st.just(NO_ENDPOINTS)
voters = st.lists(st.integers(0, 4), max_size=4, unique=True).map(lambda i: voter_set(*i))
voter_nodes = st.builds(VoterNode, replicas, places, st.sampled_from([STATIC_ONLY, SUPPORTED]))
errors = st.sampled_from(
    [
        *[ErrorCode.NONE] * 8,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_VOTER_KEY,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.SNAPSHOT_NOT_FOUND,
    ]
)


@cache
def epochs_near(epoch: int) -> st.SearchStrategy[int]:
    return st.just(epoch) | st.integers(epoch - 1, epoch + 2) | st.integers(-1, epoch)


@cache
def replies_near(epoch: int) -> st.SearchStrategy[Reply]:
    ends = st.builds(OffsetAndEpoch, offsets, epochs_near(epoch))
    return st.builds(
        Reply,
        error=errors,
        leader_epoch=epochs_near(epoch),
        leader_id=st.none() | st.integers(0, 4),
        leader_endpoints=places,
        vote_granted=st.booleans(),
        position=st.one_of(
            st.none(),
            st.just(ReadOn()),
            st.builds(Diverging, ends),
            st.builds(BelowStart, ends),
        ),
        high_watermark=st.none() | offsets,
    )


@cache
def events_near(epoch: int) -> st.SearchStrategy[Event]:
    """Return what may happen to a node in this epoch: what fits it, and what does not."""
    epochs = epochs_near(epoch)
    voter = st.none() | st.just(key(0)) | replicas
    begin_calls = st.builds(BeginCall, leader_epoch=epochs)
    end_calls = st.builds(
        EndCall, leader_epoch=epochs, successors=st.lists(replicas, max_size=3).map(tuple)
    )
    vote_calls = st.builds(
        VoteCall,
        leader_epoch=epochs,
        last_epoch=st.integers(-1, 5),
        end_offset=offsets,
        pre_vote=st.booleans(),
    )
    sends = st.builds(Send, replicas, vote_calls | begin_calls | end_calls)
    return st.one_of(
        st.just(TimerExpired()),
        st.builds(
            VoteReceived, candidate=replicas, call=vote_calls, voter=voter, cluster_id=clusters
        ),
        st.builds(
            BeginReceived,
            leader_id=ids,
            call=begin_calls,
            leader_endpoints=places,
            voter=voter,
            cluster_id=clusters,
        ),
        st.builds(
            EndReceived,
            leader_id=ids,
            call=end_calls,
            leader_endpoints=places,
            cluster_id=clusters,
        ),
        st.builds(
            FetchReceived,
            replica=replicas,
            leader_epoch=epochs,
            fetch_offset=st.none() | offsets,
            last_fetched_epoch=st.integers(-1, 5),
            cluster_id=clusters,
        ),
        st.builds(Answered, sends, replies_near(epoch)),
        st.builds(Unanswered, sends),
        st.builds(FetchAnswered, replies_near(epoch)),
        st.builds(LogChanged, st.none() | offsets),
        st.builds(
            VotersChanged,
            voters,
            offset=st.none() | offsets,
            kraft_version=st.integers(0, 1),
        ),
        st.builds(AddVoterReceived, voter=replicas, endpoints=places, cluster_id=clusters),
        st.builds(RemoveVoterReceived, voter=replicas, cluster_id=clusters),
        st.builds(UpdateVoterReceived, node=voter_nodes, leader_epoch=epochs, cluster_id=clusters),
        st.builds(UpgradeAsked, kraft_version=st.integers(0, 2), leader_epoch=epochs),
        st.builds(
            LevelsAnswered,
            voter_id=ids,
            error=errors,
            supported=st.sampled_from([None, STATIC_ONLY, SUPPORTED]),
        ),
        st.builds(ReportAnswered, replies_near(epoch)),
        st.builds(ResignAsked, epochs),
        st.just(ShutdownAsked()),
    )


@attrs.define
class Laws:
    """What must hold of one node, over all its lives."""

    epoch: int = 0
    high_watermark: int = 0
    votes: dict[int, int] = attrs.Factory(dict)
    led: set[int] = attrs.Factory(set)
    waiting: int = 0
    known: ElectionState = attrs.field(factory=lambda: ElectionState(leader_epoch=0))

    def check(self, one: Node, event: Event | None) -> None:
        state = one.quorum.state
        assert one.quorum.leader_epoch >= self.epoch, "an epoch never goes back"
        self.epoch = one.quorum.leader_epoch
        assert one.stored == state.election_state, "what a node is can be read from the disk"
        replies = [each for each in one.effects if isinstance(each, Reply)]
        later = (AddVoterReceived, RemoveVoterReceived)
        if not isinstance(event, later):
            assert len(replies) == isinstance(event, REQUESTS), "each request has one answer"
        assert len(replies) <= 1, "or waits for it"
        answered = sum(isinstance(each, AnswerChange) for each in one.effects)
        self.waiting += isinstance(event, later) and not replies
        self.waiting -= answered
        is_waiting = (
            isinstance(state, Leading) and state.change is not None and not state.change.is_answered
        )
        assert self.waiting == is_waiting, "a change of the voters is answered once"
        if isinstance(state, Candidate):
            self.vote(0)
        for effect in one.effects:
            self.look_at(effect, one, event)
        self.known = state.election_state

    def look_at(self, effect: Effect, one: Node, event: Event | None) -> None:
        match effect:
            case Persist():
                assert effect is one.effects[0], "nobody notices what is not stored"
            case Reply(vote_granted=True):
                assert isinstance(event, VoteReceived), "only a vote is granted"
                if not event.call.pre_vote:
                    self.vote(event.candidate.id)
                    if self.known.leader_epoch == self.epoch and self.known.leader_id is not None:
                        assert self.known.voted is not None, "who knows a leader gives no vote"
            case HighWatermark(offset):
                assert offset > self.high_watermark, "the high watermark only goes forward"
                self.high_watermark = offset
            case Lead(leader_epoch=epoch):
                assert epoch not in self.led, "a node leads once in an epoch"
                assert isinstance(one.quorum.state, Leading), "only a leader begins an epoch"
                self.led.add(epoch)
            case _:
                pass

    def vote(self, candidate_id: int) -> None:
        assert self.votes.setdefault(self.epoch, candidate_id) == candidate_id, "one vote an epoch"


@st.composite
def logs(draw: st.DrawFn) -> LogView:
    starts = sorted(draw(st.sets(st.integers(0, 5), max_size=3)))
    numbers = sorted(draw(st.sets(st.integers(0, 4), min_size=len(starts), max_size=3)))
    end = draw(st.integers(starts[-1] + 1, 7)) if starts else 0
    entries = tuple(EpochEntry(*each) for each in zip(numbers, starts, strict=False))
    flushed = draw(st.integers(0, end))
    return LogView(end_offset=end, flushed_end_offset=flushed, epochs=entries)


def granting(sent: Send) -> Answered:
    """Return the answer that a candidate hopes for."""
    reply = Reply(error=ErrorCode.NONE, leader_epoch=sent.call.leader_epoch, vote_granted=True)
    return Answered(sent, reply)


@settings(max_examples=100, deadline=None)
@given(st.data(), logs())
def test_the_laws_hold_whatever_happens(data: st.DataObject, log: LogView) -> None:
    one = node(log=log)
    laws = Laws()
    laws.check(one, None)
    sent: list[Send] = []
    for _ in range(data.draw(st.integers(1, 25))):
        choice = data.draw(st.integers(0, 19))
        if choice == 0:
            # A kill forgets all but the file and the log.
            one.quorum = attrs.evolve(
                one.quorum,
                is_shutting_down=False,
                high_watermark=None,
                report_ms=None,
                reported_epoch=None,
            )
            laws.high_watermark = laws.waiting = 0
            one.restart(one.stored)
            laws.check(one, None)
            continue
        if choice == 1:
            one.log = data.draw(logs())
        event: Event
        if choice < 6:
            event, late_ms = TimerExpired(), 60_000
        elif choice < 12 and sent:
            event, late_ms = granting(data.draw(st.sampled_from(sent))), 1
        elif choice < 14 and sent:
            late = data.draw(st.sampled_from(sent))
            event = Answered(late, data.draw(replies_near(one.quorum.leader_epoch)))
            late_ms = 1
        else:
            event = data.draw(events_near(one.quorum.leader_epoch))
            late_ms = data.draw(st.sampled_from([0, 1, 20_000]))
        one.step(event, after_ms=late_ms)
        laws.check(one, event)
        sent += one.sent


@settings(max_examples=60, deadline=None)
@given(st.lists(events_near(2), max_size=15))
def test_a_timer_that_has_expired_does_not_expire_for_ever(happened: list[Event]) -> None:
    one = node()
    for event in happened:
        one.step(event, after_ms=1_000)
    for _ in range(4):
        due_ms = one.quorum.deadline_ms
        if due_ms is None or due_ms > one.now_ms:
            return
        one.step(TimerExpired())
    raise AssertionError(f"{one.quorum} is due again and again")
