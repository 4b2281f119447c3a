"""Nodes whose voters change while messages are lost, timers run and nodes restart.

Five nodes share the rules and a network; each has a log of its own, synced as soon as it is written.
Three are voters at first; then anybody is added and removed. After each step an epoch has one leader,
and what was committed once is in its place in every log that reaches it.
"""

from collections.abc import Iterable
from random import Random

import attrs
import pytest

from replication.errors import ErrorCode
from replication.raft.rules.log_view import Diverging, LogView, ReadOn
from replication.raft.rules.messages import (
    AddVoterReceived,
    Answered,
    AppendVoters,
    AskLevels,
    BeginCall,
    BeginReceived,
    Effect,
    EndReceived,
    Event,
    FetchAnswered,
    FetchFrom,
    FetchReceived,
    HighWatermark,
    Lead,
    LevelsAnswered,
    LogChanged,
    Persist,
    RemoveVoterReceived,
    Reply,
    Send,
    StopFetching,
    TakeFetched,
    TimerExpired,
    VoteCall,
    VoteReceived,
    VotersChanged,
)
from replication.raft.rules.quorum import Quorum, QuorumSettings, fresh
from replication.raft.rules.states import Leading
from replication.raft.rules.step import start, step
from replication.raft.rules.types import ElectionState
from replication.raft.rules.voters import (
    BOOTSTRAP_OFFSET,
    SUPPORTED,
    VoterNode,
    VoterSet,
    VoterSetHistory,
)
from storage.checkpoint import EpochEntry
from tests.replication.raft.quorums import CLUSTER, endpoints, key

IDS = range(1, 6)
FIRST = VoterSet(tuple(VoterNode(key(each), endpoints(each), SUPPORTED) for each in (1, 2, 3)))
SETTINGS = QuorumSettings()
Entry = tuple[int, VoterSet | str]


@attrs.define
class Member:
    """One node, with its log and what it has stored."""

    node_id: int
    quorum: Quorum
    entries: list[Entry] = attrs.Factory(list)
    stored: ElectionState | None = None
    source: FetchFrom | None = None

    def view(self) -> LogView:
        epochs: list[EpochEntry] = []
        for offset, (epoch, _) in enumerate(self.entries):
            if not epochs or epochs[-1].epoch != epoch:
                epochs.append(EpochEntry(epoch, offset))
        end = len(self.entries)
        return LogView(end_offset=end, flushed_end_offset=end, epochs=tuple(epochs))

    def voters(self) -> VotersChanged:
        """Return the newest voters of the log."""
        history = VoterSetHistory().after(FIRST.to_record(), BOOTSTRAP_OFFSET)
        for offset, (_, value) in enumerate(self.entries):
            if isinstance(value, VoterSet):
                history = history.after(value.to_record(), offset)
        return VotersChanged(history.voters, offset=history.voters_offset, kraft_version=1)


def beginning(node_id: int) -> Quorum:
    return fresh(
        key(node_id),
        endpoints=endpoints(node_id),
        cluster_id=CLUSTER,
        voters=FIRST,
        settings=SETTINGS,
        voters_offset=BOOTSTRAP_OFFSET,
        kraft_version=1,
    )


@attrs.define
class Together:
    """The nodes, the messages under way, and what must never change."""

    chance: Random
    now_ms: int = 0
    members: dict[int, Member] = attrs.Factory(dict)
    under_way: list[tuple[int, Event, tuple[int, Send] | None]] = attrs.Factory(list)
    committed: list[Entry] = attrs.Factory(list)
    leaders: dict[int, int] = attrs.Factory(dict)
    apart: frozenset[int] = frozenset()

    def begin(self, node_id: int) -> None:
        """Start a node, with what it has stored."""
        member = self.members.setdefault(node_id, Member(node_id, beginning(node_id)))
        changed = member.voters()
        member.quorum = attrs.evolve(
            beginning(node_id),
            voters=changed.voters,
            voters_offset=changed.offset,
        )
        member.source = None
        first = start(
            member.quorum, member.stored, member.view(), now_ms=self.now_ms, jitter_ms=self.jitter
        )
        member.quorum = first.quorum
        self.carry_out(member, first.effects)

    @property
    def jitter(self) -> int:
        return self.chance.randrange(SETTINGS.election_timeout_ms)

    def happens(self, member: Member, event: Event) -> tuple[Effect, ...]:
        made = step(member.quorum, event, member.view(), now_ms=self.now_ms, jitter_ms=self.jitter)
        member.quorum = made.quorum
        self.carry_out(member, made.effects)
        return made.effects

    def carry_out(self, member: Member, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Persist(election):
                    member.stored = election
                case Send():
                    asked = request(member, effect)
                    self.under_way.append((effect.to.id, asked, (member.node_id, effect)))
                case FetchFrom():
                    member.source = effect
                case StopFetching():
                    member.source = None
                case Lead():
                    leader_id = self.leaders.setdefault(effect.leader_epoch, member.node_id)
                    assert leader_id == member.node_id, "an epoch has one leader"
                    self.append(member, "leader", *filter(None, [effect.new_voters]))
                case AskLevels():
                    levels = LevelsAnswered(
                        voter_id=effect.voter.id, error=ErrorCode.NONE, supported=SUPPORTED
                    )
                    self.under_way.append((member.node_id, levels, None))
                case AppendVoters():
                    self.append(member, effect.voters)
                case HighWatermark(offset):
                    self.commit(member, offset)
                case _:
                    pass

    def append(self, member: Member, *values: VoterSet | str) -> None:
        epoch = member.quorum.leader_epoch
        member.entries += [(epoch, each) for each in values]
        self.log_changed(member)

    def log_changed(self, member: Member, high_watermark: int | None = None) -> None:
        changed = member.voters()
        if (changed.voters, changed.offset) != (member.quorum.voters, member.quorum.voters_offset):
            self.happens(member, changed)
        self.happens(member, LogChanged(high_watermark))

    def commit(self, member: Member, offset: int) -> None:
        known = member.entries[:offset]
        both = min(len(known), len(self.committed))
        assert known[:both] == self.committed[:both], "what is committed does not change"
        self.committed += known[both:]

    # --- what may happen ----------------------------------------------------------------------

    def any_step(self) -> None:
        member = self.members[self.chance.choice(IDS)]
        self.now_ms += self.chance.randrange(5)
        is_leading = isinstance(member.quorum.state, Leading)
        match self.chance.randrange(200):
            case 0:
                self.begin(member.node_id)
            case 1 | 2 | 3 | 4:
                self.wait()
            case 5 | 6 | 7:
                self.apart = frozenset(self.chance.sample(IDS, self.chance.randrange(4)))
            case choice if choice < 30 and is_leading:
                self.append(member, f"record {self.now_ms}")
            case choice if choice < 80 and is_leading:
                self.change(member)
            case choice if choice < 130:
                self.fetch(member)
            case _ if self.under_way:
                self.deliver(self.under_way.pop(self.chance.randrange(len(self.under_way))))
            case _:
                pass

    def wait(self) -> None:
        """Let time pass until the first timer expires."""
        due = [each.quorum.deadline_ms for each in self.members.values()]
        self.now_ms = max(self.now_ms, min((each for each in due if each is not None), default=0))
        for each in self.members.values():
            self.happens(each, TimerExpired())

    def deliver(self, message: tuple[int, Event, tuple[int, Send] | None]) -> None:
        to, event, sent = message
        if self.chance.randrange(10) == 0 or (sent and self.is_cut(to, sent[0])):
            return
        effects = self.happens(self.members[to], event)
        reply = next((each for each in effects if isinstance(each, Reply)), None)
        if sent is not None and reply is not None:
            self.under_way.append((sent[0], Answered(sent[1], reply), None))

    def is_cut(self, one: int, other: int) -> bool:
        return (one in self.apart) != (other in self.apart)

    def change(self, member: Member) -> None:
        voter = self.chance.choice(IDS)
        event: Event = RemoveVoterReceived(voter=key(voter))
        if self.chance.randrange(2):
            event = AddVoterReceived(voter=key(voter), endpoints=endpoints(voter))
        self.happens(member, event)

    def fetch(self, member: Member) -> None:
        """Fetch from the leader, or ask anybody who leads."""
        if member.source is None:
            return
        leader_id = member.source.leader_id or self.chance.choice(IDS)
        leader, log = self.members[leader_id], member.view()
        asked = FetchReceived(
            replica=key(member.node_id),
            leader_epoch=member.quorum.leader_epoch,
            fetch_offset=log.end_offset,
            last_fetched_epoch=log.last_epoch,
        )
        if leader is member or self.is_cut(leader_id, member.node_id):
            return
        (reply,) = [each for each in self.happens(leader, asked) if isinstance(each, Reply)]
        taken = self.happens(member, FetchAnswered(reply))
        if not any(isinstance(each, TakeFetched) for each in taken):
            return
        match reply.position:
            case Diverging(end):
                own = log.end_of_epoch(end.leader_epoch)
                del member.entries[min(end.offset, own.offset) :]
            case ReadOn():
                more = leader.entries[log.end_offset :][: self.chance.randrange(1, 4)]
                member.entries += more
            case _:
                pass
        self.log_changed(member, reply.high_watermark)


def request(member: Member, sent: Send) -> Event:
    """Return the event at the receiver of what a node sends."""
    match sent.call:
        case VoteCall() as call:
            return VoteReceived(candidate=key(member.node_id), call=call, voter=sent.to)
        case BeginCall() as call:
            return BeginReceived(
                leader_id=member.node_id,
                call=call,
                leader_endpoints=endpoints(member.node_id),
                voter=sent.to,
            )
        case call:
            return EndReceived(
                leader_id=member.node_id, call=call, leader_endpoints=endpoints(member.node_id)
            )


@pytest.mark.parametrize(
    "seed",
    [
        *range(12),
        *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(12, 60)),
    ],
)
def test_what_is_committed_outlives_every_change_of_the_voters(seed: int) -> None:
    together = Together(Random(seed))
    for node_id in IDS:
        together.begin(node_id)
    for _ in range(1500):
        together.any_step()
    assert any(isinstance(value, VoterSet) for _, value in together.committed), "voters change"
