"""A node of a simulated quorum: the rules, and tasks around them that are as simple as can be.

One event after the other goes through `step`, and its effects are carried out in their order. A
Persist is one: nothing more happens on the node before the disk has synced it.

    a follower    fetches, writes, syncs, and fetches again from where its synced log ends
    a leader      lets a fetch wait until there is something to answer it with
    a kill        leaves any version of each file that was written since its last sync

The file is long because it is one task, which leads and follows in turn.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import attrs

from replication.errors import ErrorCode
from replication.raft.rules.log_view import BelowStart, Diverging, LogView, ReadOn
from replication.raft.rules.messages import (
    Answered,
    AppendVoters,
    AskLeader,
    AskLevels,
    BeginCall,
    BeginReceived,
    Disagreement,
    Effect,
    EndCall,
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
    Reply,
    ReportAnswered,
    Send,
    StopFetching,
    StopLeading,
    TakeFetched,
    TimerExpired,
    Unanswered,
    UpdateVoterReceived,
    VoteCall,
    VoteReceived,
    VotersChanged,
)
from replication.raft.rules.quorum import Quorum, QuorumSettings
from replication.raft.rules.states import Leading
from replication.raft.rules.step import start, step
from replication.raft.rules.types import ElectionState, ReplicaKey
from replication.raft.rules.voters import SUPPORTED, VoterSet, VoterSetHistory
from replication.wire.control_records import KRaftVersionRecord, VotersRecord
from storage.types import OffsetAndEpoch
from tests.replication.raft.checkers import Checkers, require
from tests.replication.raft.disk import Entry, NaiveLog, UnsyncedDisk, flushed_end
from tests.replication.raft.network import Links, Schedule

REQUEST_TIMEOUT_MS = 1000
FETCH_WAIT_MS = 400
FETCH_ENTRIES = 5
"""The number of entries that one fetch brings at most."""
SETTINGS = QuorumSettings()


@attrs.frozen
class LeaderChange:
    """The value of the entry that each leader epoch begins with."""

    leader_id: int


@attrs.frozen
class Answer:
    """A peer's reply, and what came with it: entries after the fetch offset, or a snapshot."""

    reply: Reply
    entries: tuple[Entry, ...] = ()
    snapshot: NaiveLog | None = None


Answering = Callable[[Answer], None]


@attrs.frozen
class Item:
    """An event that waits for its turn, with what the rules do not have to see of it."""

    event: Event
    answering: Answering | None = None
    brought: Answer | None = None
    fetch_number: int | None = None
    """The number of our fetch that this answers."""
    known_high_watermark: int = -1
    """The high watermark that a fetch names: the answer waits until there is a later one."""
    answered_by_ms: int = 0
    has_waited: bool = False
    snapshot: OffsetAndEpoch | None = None
    """The snapshot that is asked for."""


@attrs.define
class Surroundings:
    """What the nodes of a run share: time, links, chance, and the judges of every move."""

    schedule: Schedule
    links: Links
    chance: Random
    checkers: Checkers
    sync_ms: int
    jitter_ms: int
    first_voters: VoterSetHistory
    """The voters before any are in a log: of the configuration, or of a bootstrap snapshot."""
    processes: dict[int, "Process"] = attrs.field(factory=dict)
    """The running nodes by id."""
    disks: dict[int, "NodeDisk"] = attrs.field(factory=dict)
    logs: dict[ReplicaKey, UnsyncedDisk[NaiveLog]] = attrs.field(factory=dict)
    """The logs of all replicas there ever were, those of lost disks included."""


@attrs.define
class NodeDisk:
    """The two files of a node: what it remembers of elections, and its log."""

    directory_id: bytes
    election: UnsyncedDisk[ElectionState | None]
    log: UnsyncedDisk[NaiveLog]


@attrs.define(eq=False)
class Process:
    """One life of a node, from its start to its kill."""

    me: ReplicaKey
    around: Surroundings
    disk: NodeDisk
    quorum: Quorum
    history: VoterSetHistory
    high_watermark: int = 0
    paused_until_ms: int = 0
    is_alive: bool = True
    _inbox: deque[Item] = attrs.field(factory=deque)
    _is_syncing_election: bool = False
    _is_working: bool = False
    _waiting: list[Item] = attrs.field(factory=list)
    _fetch_from: FetchFrom | None = None
    _fetch_number: int = 0
    _wanted_snapshot: OffsetAndEpoch | None = None
    _alternative: int | None = None
    _alarm_ms: int | None = None
    _view: tuple[NaiveLog, int, LogView] | None = None

    @property
    def log(self) -> NaiveLog:
        return self.disk.log.read

    @property
    def is_leader(self) -> bool:
        """Whether it leads, and the entry is written that its epoch begins with."""
        is_begun = self.log.last_epoch == self.quorum.leader_epoch
        return isinstance(self.quorum.state, Leading) and is_begun

    @property
    def voters(self) -> VoterSet:
        return self.quorum.voters

    # --- events -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Take the first step, from what is on the disk."""
        first = start(
            self.quorum,
            self.disk.election.read,
            self._log_view(),
            now_ms=self.around.schedule.now_ms,
            jitter_ms=self._jitter(),
        )
        self.quorum = first.quorum
        self._carry_out(Item(TimerExpired()), iter(first.effects))

    def _jitter(self) -> int:
        return self.around.chance.randrange(self.around.jitter_ms)

    def happens(self, event: Event) -> None:
        self.take(Item(event))

    def take(self, item: Item) -> None:
        self._inbox.append(item)
        self.work()

    def work(self) -> None:
        """Take what waits for its turn, until the disk has to sync or the node is paused."""
        if self._is_working:
            return
        self._is_working = True
        while self._inbox and self._is_ready:
            self._step(self._inbox.popleft())
        if self.is_leader and self._is_ready:
            self.around.checkers.leads_on(
                self.me,
                self.quorum.leader_epoch,
                self.history,
                high_watermark=self.high_watermark,
                now_ms=self.around.schedule.now_ms,
            )
        self._is_working = False

    @property
    def _is_ready(self) -> bool:
        is_paused = self.paused_until_ms > self.around.schedule.now_ms
        return self.is_alive and not self._is_syncing_election and not is_paused

    def pause(self, milliseconds: int) -> None:
        self.paused_until_ms = self.around.schedule.now_ms + milliseconds
        self.later(milliseconds, self.work)

    def later(self, milliseconds: int, action: Callable[[], None]) -> None:
        """Do something after some time, in this life of the node only."""
        self.around.schedule.after(milliseconds, lambda: action() if self.is_alive else None)

    def _step(self, item: Item) -> None:
        if item.fetch_number not in {None, self._fetch_number}:
            return  # it has fetched again since
        self._hear(item.event)
        done = step(
            self.quorum,
            item.event,
            self._log_view(),
            now_ms=self.around.schedule.now_ms,
            jitter_ms=self._jitter(),
        )
        self.quorum = done.quorum
        self._carry_out(item, iter(done.effects))

    def _hear(self, event: Event) -> None:
        """Note when a voter has shown that it lives; a fetch that has waited shows nothing more."""
        match event:
            case FetchReceived(has_waited=False, replica=voter):
                pass
            case UpdateVoterReceived(node=node):
                voter = node.key
            case _:
                return
        epoch, now_ms = self.quorum.leader_epoch, self.around.schedule.now_ms
        self.around.checkers.hears(self.me.id, epoch, voter.id, now_ms)

    def _log_view(self) -> LogView:
        flushed = flushed_end(self.disk.log)
        if self._view is None or self._view[0] is not self.log or self._view[1] != flushed:
            self._view = (self.log, flushed, self.log.view(flushed))
        return self._view[2]

    # --- effects ----------------------------------------------------------------------------

    def _carry_out(self, item: Item, effects: Iterator[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Persist):
                self._is_syncing_election = True
                self.disk.election.write(effect.election)
                self._sync(self.disk.election, lambda: self._go_on(item, effects))
                return
            self._do(effect, item)
        self._set_alarm()

    def _go_on(self, item: Item, effects: Iterator[Effect]) -> None:
        self._is_syncing_election = False
        self._carry_out(item, effects)
        self.work()

    def _do(self, effect: Effect, item: Item) -> None:  # noqa: PLR0912 (one for each effect)
        match effect:
            case Send():
                self._send(effect)
            case Reply():
                self._reply(effect, item)
            case Lead():
                self._lead(effect)
            case StopLeading():
                self._release_fetches()
            case FetchFrom():
                self._fetch_from = effect
                self._alternative = self._wanted_snapshot = None
                self._fetch()
            case StopFetching():
                self._fetch_from = None
                self._fetch_number += 1
            case TakeFetched():
                assert item.brought is not None, "only an answer is taken"
                self._take_fetched(item.brought)
            case HighWatermark():
                self._know_committed(effect.offset)
            case AppendVoters():
                self._append_voters(effect)
            case AskLevels():
                self._ask_levels(effect)
            case AskLeader():
                self._ask_leader(effect)
            case Disagreement():
                self._disagree(effect.sentence)
            case _:
                pass

    def _disagree(self, sentence: str) -> None:
        """Judge what cannot be true: the others may speak of what this node was, with another disk."""
        lives = [key for key in self.around.logs if key.id == self.me.id]
        require(
            len(lives) > 1,
            "no node hears what cannot be true",
            *(self.me.id, "heard:", sentence),
        )

    def _set_alarm(self) -> None:
        due = self.quorum.deadline_ms
        if due is not None and due != self._alarm_ms:
            self._alarm_ms = due
            self.later(max(due - self.around.schedule.now_ms, 0), lambda: self._ring(due))

    def _ring(self, due: int) -> None:
        if self._alarm_ms == due:
            self._alarm_ms = None
            self.happens(TimerExpired())

    def _sync(self, disk: UnsyncedDisk[Any], then: Callable[[], None]) -> None:
        written = disk.written
        milliseconds = self.around.chance.randint(0, 2 * self.around.sync_ms)

        def synced() -> None:
            disk.synced(written)
            then()

        self.later(milliseconds, synced)

    # --- requests ---------------------------------------------------------------------------

    def _ask(self, peer: int, item: Item, then: Callable[[Answer | None], None]) -> None:
        """Send a request. What comes back, or None after the timeout, comes once."""
        around = self.around
        is_open = True

        def end(answer: Answer | None) -> None:
            nonlocal is_open
            if is_open and self.is_alive:
                is_open = False
                then(answer)

        def arrive() -> None:
            receiver = around.processes.get(peer)
            if receiver is not None:
                receiver.take(attrs.evolve(item, answering=answer))

        def answer(given: Answer) -> None:
            around.links.carry(peer, self.me.id, lambda: end(given))

        around.links.carry(self.me.id, peer, arrive)
        self.later(REQUEST_TIMEOUT_MS, lambda: end(None))

    def _send(self, sent: Send) -> None:
        event: Event
        self.around.checkers.sent(self.me, sent.call.leader_epoch)
        match sent.call:
            case VoteCall() as call:
                if not call.pre_vote:
                    self.around.checkers.voted(self.me, call.leader_epoch, self.me)
                event = VoteReceived(candidate=self.me, call=call, voter=sent.to)
            case BeginCall() as call:
                event = BeginReceived(
                    leader_id=self.me.id,
                    call=call,
                    leader_endpoints=self.quorum.endpoints,
                    voter=sent.to,
                )
            case EndCall() as call:
                event = EndReceived(
                    leader_id=self.me.id, call=call, leader_endpoints=self.quorum.endpoints
                )

        def then(answer: Answer | None) -> None:
            self.happens(Unanswered(sent) if answer is None else Answered(sent, answer.reply))

        self._ask(sent.to.id, Item(event), then)

    def _reply(self, reply: Reply, item: Item) -> None:
        checkers = self.around.checkers
        checkers.sent(self.me, reply.leader_epoch)
        match item.event:
            case VoteReceived() as vote if reply.vote_granted and not vote.call.pre_vote:
                checkers.voted(self.me, vote.call.leader_epoch, vote.candidate)
            case _:
                pass
        if item.answering is None:
            return
        answer = self._filled(reply, item)
        if self._may_wait(answer, item):
            if not item.has_waited:
                self.later(item.answered_by_ms - self.around.schedule.now_ms, self._wake)
            assert isinstance(item.event, FetchReceived), "only a fetch waits"
            event = attrs.evolve(item.event, has_waited=True)
            self._waiting.append(attrs.evolve(item, event=event, has_waited=True))
        else:
            item.answering(answer)

    # --- leading ----------------------------------------------------------------------------

    def _lead(self, effect: Lead) -> None:
        now_ms = self.around.schedule.now_ms
        self.around.checkers.leads(self.me.id, effect.leader_epoch, self.log, now_ms)
        require(
            effect.epoch_start_offset == self.log.end,
            "an epoch starts at the end of the log",
            *(self.me.id, effect),
        )
        values: list[object] = [LeaderChange(self.me.id)]
        if effect.new_voters is not None:
            values.append(KRaftVersionRecord(version=0, kraft_version=effect.kraft_version))
            values.append(effect.new_voters.to_record())
        self.append(values)

    def append(self, values: Sequence[object]) -> None:
        """Append entries in the epoch of this leader; they are synced some time later."""
        epoch = self.quorum.leader_epoch
        self._extend(*(Entry(epoch, value) for value in values))
        self._sync(self.disk.log, lambda: self.happens(LogChanged()))
        self._release_fetches()
        self.happens(LogChanged())

    def _write(self, log: NaiveLog, history: VoterSetHistory) -> None:
        self.disk.log.write(log)
        before, self.history = self.history, history
        require(
            history.voters == log.history(self.around.first_voters).voters,
            "the voters are the newest of the log",
            *(self.me.id, history.voters),
        )
        if (history.voters, history.voters_offset) != (before.voters, before.voters_offset):
            changed = VotersChanged(history.voters, history.voters_offset, history.kraft_version)
            self._inbox.appendleft(Item(changed))

    def _extend(self, *entries: Entry) -> None:
        history = self.history
        for offset, entry in enumerate(entries, self.log.end):
            if isinstance(entry.value, KRaftVersionRecord | VotersRecord):
                history = history.after(entry.value, offset)
        self._write(self.log.with_entries(*entries), history)

    def _append_voters(self, effect: AppendVoters) -> None:
        known = self.history
        self.around.checkers.changes_voters(known.voters, effect.voters)
        require(
            known.voters_offset is None or known.voters_offset < self.high_watermark,
            "one change of the voters at a time",
            *(self.me.id, "changes those of", known.voters_offset),
        )
        records: list[object] = [effect.voters.to_record()]
        if effect.kraft_version is not None:
            records.insert(0, KRaftVersionRecord(version=0, kraft_version=effect.kraft_version))
        self.append(records)

    def _ask_levels(self, effect: AskLevels) -> None:
        """Ask a replica for its levels, which is not a matter of its rules: it answers if it runs."""
        links, me, voter = self.around.links, self.me.id, effect.voter
        known = LevelsAnswered(voter_id=voter.id, error=ErrorCode.NONE, supported=SUPPORTED)

        def arrive() -> None:
            asked = self.around.processes.get(voter.id)
            if asked is not None and asked.me == voter:
                links.carry(voter.id, me, lambda: self.happens(known))

        links.carry(me, voter.id, arrive)

    def _ask_leader(self, effect: AskLeader) -> None:
        def then(answer: Answer | None) -> None:
            if answer is not None and isinstance(effect.request, UpdateVoterReceived):
                self.happens(ReportAnswered(answer.reply))

        self._ask(effect.leader_id, Item(effect.request), then)

    def _filled(self, reply: Reply, item: Item) -> Answer:
        """Return the answer to a request, with what a fetch gets of the log."""
        match item.event:
            case FetchReceived(fetch_offset=None) if reply.error == ErrorCode.NONE:
                log = self.log
                if not log.start or log.snapshot != item.snapshot:
                    return Answer(attrs.evolve(reply, error=ErrorCode.SNAPSHOT_NOT_FOUND))
                return Answer(reply, snapshot=NaiveLog(log.entries[: log.start], log.start))
            case FetchReceived(fetch_offset=int() as offset) if reply.position == ReadOn():
                end = min(self._readable_end(item.event), offset + FETCH_ENTRIES)
                return Answer(reply, entries=self.log.entries[offset:end])
            case _:
                return Answer(reply)

    def _readable_end(self, fetch: FetchReceived) -> int:
        """Return where reading ends: for voters the log's end, for observers what is committed."""
        return self.log.end if self.voters.is_voter(fetch.replica) else self.high_watermark

    def _may_wait(self, answer: Answer, item: Item) -> bool:
        reply = answer.reply
        return (
            isinstance(item.event, FetchReceived)
            and reply.error == ErrorCode.NONE
            and reply.position == ReadOn()
            and not answer.entries
            and (reply.high_watermark or 0) <= item.known_high_watermark
            and self.around.schedule.now_ms < item.answered_by_ms
        )

    def _release_fetches(self) -> None:
        """Let the fetches that wait be answered anew."""
        self._inbox += self._waiting
        self._waiting.clear()

    def _wake(self) -> None:
        self._release_fetches()
        self.work()

    def _know_committed(self, offset: int) -> None:
        around = self.around
        around.checkers.high_watermark(
            self.me.id, self.log, self.quorum.leader_epoch, self.high_watermark, offset
        )
        self.high_watermark = offset
        if self.is_leader:
            logs = {key: log.versions for key, log in around.logs.items()}
            epoch = self.quorum.leader_epoch
            around.checkers.commits(self.me.id, epoch, offset, self.voters, logs)
        self._release_fetches()

    # --- following --------------------------------------------------------------------------

    def _fetch(self) -> None:
        """Fetch from the leader, or in turn from the others where it is not known or silent."""
        target = self._fetch_from
        if target is None:
            return
        self._fetch_number += 1
        number = self._fetch_number
        if flushed_end(self.disk.log) < self.log.end:
            self._sync(self.disk.log, lambda: self._fetch_again(number))
            return
        peer = target.leader_id if self._alternative is None else self._alternative
        others = sorted((self.around.first_voters.voters.ids | self.voters.ids) - {self.me.id})
        if peer is None:
            peer = self.around.chance.choice(others) if others else None
        if peer is None or peer == self.me.id:
            self.later(REQUEST_TIMEOUT_MS, lambda: self._fetch_again(number))
            return
        self.around.checkers.sent(self.me, target.leader_epoch)
        log, wanted = self.log, self._wanted_snapshot
        item = Item(
            FetchReceived(
                replica=self.me,
                leader_epoch=target.leader_epoch,
                fetch_offset=None if wanted else log.end,
                last_fetched_epoch=log.last_epoch,
            ),
            known_high_watermark=self.high_watermark,
            answered_by_ms=self.around.schedule.now_ms + FETCH_WAIT_MS,
            snapshot=wanted,
        )

        def then(answer: Answer | None) -> None:
            if number != self._fetch_number:
                return
            wait_ms = SETTINGS.retry_backoff_ms
            if answer is None:
                self._alternative = self.around.chance.choice(others) if others else None
            else:
                if answer.reply.error == ErrorCode.NONE:
                    wait_ms = REQUEST_TIMEOUT_MS  # it fetches sooner, if it takes this
                self._alternative = self._wanted_snapshot = None
                event = FetchAnswered(answer.reply)
                self.take(Item(event, brought=answer, fetch_number=number))
            self.later(wait_ms, lambda: self._fetch_again(number))

        self._ask(peer, item, then)

    def _fetch_again(self, number: int) -> None:
        if number == self._fetch_number:
            self._fetch()

    def _take_fetched(self, answer: Answer) -> None:
        reply = answer.reply
        if answer.snapshot is not None:
            self._load(answer.snapshot)
        elif isinstance(reply.position, Diverging):
            self._truncate(reply.position.end)
        elif isinstance(reply.position, BelowStart):
            self._wanted_snapshot = reply.position.snapshot
        elif answer.entries:
            self._extend(*answer.entries)
        self._fetch_number += 1  # a fetch that is under way began from the log as it was
        number = self._fetch_number

        def flushed() -> None:
            committed = reply.high_watermark if reply.position == ReadOn() else None
            self.happens(LogChanged(answer.snapshot.start if answer.snapshot else committed))
            self._fetch_again(number)

        self._sync(self.disk.log, flushed)

    def _truncate(self, end: OffsetAndEpoch) -> None:
        log = self.log
        local = log.view(log.end).end_of_epoch(end.leader_epoch)
        offset = min(local.offset, end.offset)
        self.around.checkers.truncates(self.me.id, log, offset, self.high_watermark)
        self._write(log.truncated(offset), self.history.truncated(offset))

    def _load(self, snapshot: NaiveLog) -> None:
        self.around.checkers.loads(self.me.id, snapshot, self.high_watermark)
        self._write(snapshot, snapshot.history(self.around.first_voters))
