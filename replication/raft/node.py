"""One node of the quorum: the task that carries out what the rules of KRaft say.

    requests of peers ──┐                       ┌──> quorum-state, synced
    answers of peers ───┼─> events ─> step ─────┼──> requests to peers, the fetcher
    the log, the time ──┘   (one at a time)     └──> the log: LeaderChange, the high watermark

Rule 1: one step is carried out at a time. An event waits until all effects of the one before it are
carried out, and the task that brought it gets its effects (`happened`). A task of the node carries
them out, because the one that brought the event may be cancelled. A step of which nothing can be lost
so, such as a fetch, is carried out by the task that brings it.

Rule 2: the leader's records count as its own once they are flushed; a follower flushes what it has
fetched before it fetches again, because that fetch is its acknowledgement.

Rule 3: a node is active once it leads and the start of its epoch is committed. By then everything
before that is committed too, and applied to the image. It decides in no other state.

Rule 4: a quorum of one elects itself in its first step. It sends nothing, and waits for no timer.
What it has synced is committed, so it is active at once, and the start of its epoch is synced
together with its first decision.

The file is long because one task carries out what one value asks for: half of it would not be seen.

(Kafka: KafkaRaftClient. A voter is served up to the log's end, an observer up to the high
watermark, `log_service.py`.)
"""

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from itertools import cycle
from typing import Any

import attrs
import trio

from replication.config import BrokerConfig
from replication.errors import ErrorCode, KafkaError, OnBug, PeerUnavailableError, ProtocolError
from replication.events import (
    EventSink,
    PeerContradicted,
    QuorumMisconfigured,
    RareReporter,
    ignore,
)
from replication.follower.fetcher import FetcherConfig, ReplicaFetcher
from replication.follower.partitions import FetcherStats
from replication.follower.rules.fetch_state import BrokerEndPoint, InitialFetchState
from replication.metadata.cache import MetadataCache
from replication.metadata.follower import MetadataFollower
from replication.metadata.log import MetadataLog
from replication.metadata.rules.records import METADATA_PARTITION, METADATA_TOPIC_ID
from replication.metrics import MetricsRegistry
from replication.net.controller_channel import PeerChannel
from replication.net.pace import Turns
from replication.net.seams import Seams
from replication.raft.endpoint import EpochEndpoint, fetch_reply, first_fetch
from replication.raft.envelopes import (
    QuorumRequest,
    QuorumResponse,
    event_of,
    reply_of,
    request_of,
    response_of,
)
from replication.raft.quorum_state import write_quorum_state
from replication.raft.rules.log_view import LogView
from replication.raft.rules.messages import (
    AddVoterReceived,
    AnswerChange,
    Answered,
    AppendVoters,
    AskLeader,
    AskLevels,
    Disagreement,
    Effect,
    EndCall,
    Event,
    FetchAnswered,
    FetchFrom,
    HighWatermark,
    Lead,
    LeaderChanged,
    LogChanged,
    Misconfiguration,
    Persist,
    RemoveVoterReceived,
    Reply,
    ReportAnswered,
    ResignAsked,
    Send,
    ShutdownAsked,
    StopFetching,
    StopLeading,
    TimerExpired,
    Unanswered,
    VotersChanged,
)
from replication.raft.rules.quorum import Quorum, QuorumSettings, fresh
from replication.raft.rules.step import QuorumStep, start, step
from replication.raft.rules.types import ElectionState, Endpoints, ListenerAddress, ReplicaKey
from replication.raft.rules.voters import (
    NO_VOTERS,
    VoterNode,
    VoterSet,
    VoterSetHistory,
    static_voters,
)
from replication.raft.voter_changes import (
    VoterRequest,
    VoterResponse,
    levels_in,
    report_reply,
    voter_event,
    voter_request,
    voter_response,
)
from replication.wire.api_versions import ApiVersionsRequest
from replication.wire.control_records import (
    ControlRecord,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
)
from replication.wire.update_raft_voter import UpdateRaftVoterResponse
from storage.attributes import define
from storage.checkpoint import EpochEntry
from storage.errors import ShortageError
from storage.types import LeaderEpoch, Offset

FETCHER_NAME = "raft-fetcher"
FETCH_WAIT_MS = 500
SHORTAGE_PAUSE_SECONDS = 0.1
NOT_ANSWERED = AnswerChange(error=ErrorCode.UNKNOWN_SERVER_ERROR)


@define(eq=False)
class _Happening:
    """An event, and its effects once they are carried out."""

    event: Event
    effects: tuple[Effect, ...] = ()
    done: trio.Event = attrs.field(factory=trio.Event)
    answer: AnswerChange = NOT_ANSWERED
    """The answer to a change of the voters that is not answered at once."""
    settled: trio.Event = attrs.field(factory=trio.Event)


@define(eq=False, repr=False, kw_only=True)
class RaftNode:
    """One incarnation of a node of the quorum, which runs once."""

    config: BrokerConfig
    cluster_id: str
    directory_id: bytes
    election: ElectionState | None
    """What the file `quorum-state` says; None where there is none yet."""
    listener: ListenerAddress
    """Where the other nodes reach this one."""
    log: MetadataLog
    seams: Seams
    """The seams toward the other controllers."""
    metrics: MetricsRegistry
    on_bug: OnBug
    sink: EventSink = ignore
    on_committed: Callable[[], Awaitable[None]]
    """Called when the high watermark has moved, before the next event is carried out."""
    quorum: Quorum = attrs.field(init=False)
    active_epoch: LeaderEpoch | None = attrs.field(default=None, init=False)
    """The leader epoch in which this node may decide (rule 3); None while it may not."""
    cache: MetadataCache = attrs.field(init=False)
    """The committed image, while this node follows; at a node with both roles also while it leads."""
    _follower: MetadataFollower = attrs.field(init=False)
    _inbox: deque[_Happening] = attrs.field(factory=deque, init=False)
    _wake: trio.Event = attrs.field(factory=trio.Event, init=False)
    _stepping: Turns = attrs.field(factory=Turns, init=False)
    """Taken while a step is carried out."""
    _known_voters: VoterSetHistory | None = attrs.field(default=None, init=False)
    """The voters of the log that the Quorum has."""
    _timer_ms: int | None = attrs.field(default=None, init=False)
    """When the task that takes events looks at the time."""
    _role_changed: trio.Event = attrs.field(factory=trio.Event, init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    _fetcher: ReplicaFetcher | None = attrs.field(default=None, init=False)
    _fetching: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _one_fetcher: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _search: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _peers: dict[int, PeerChannel] = attrs.field(factory=dict, init=False)
    appending: Turns = attrs.field(factory=Turns, init=False)
    """Taken by the task that decides what is appended next, so that no other comes between."""
    _changing: _Happening | None = attrs.field(default=None, init=False)
    _ending: set[int] = attrs.field(factory=set, init=False)
    """The voters that an EndQuorumEpoch of this node is on its way to."""
    _contradictions: RareReporter = attrs.field(init=False)
    _misconfigurations: RareReporter = attrs.field(init=False)
    _stopped: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        config, log = self.config, self.log
        self.cache = MetadataCache(self.seams.clock, log.committed_image)
        self._follower = MetadataFollower(
            log=log, cache=self.cache, sink=self.sink, on_failure=self._fail
        )
        self._contradictions = RareReporter(self.sink, self.seams.clock.now_ms)
        self._misconfigurations = RareReporter(self.sink, self.seams.clock.now_ms)
        log.voters = attrs.evolve(log.voters, static=self._configured_voters())
        self.quorum = fresh(
            ReplicaKey(config.node_id, self.directory_id),
            endpoints=self.endpoints,
            cluster_id=self.cluster_id,
            voters=log.voters.voters,
            voters_offset=log.voters.voters_offset,
            kraft_version=log.voters.kraft_version,
            settings=QuorumSettings(
                election_timeout_ms=config.controller_quorum_election_timeout_ms,
                election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
                fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
                retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
                request_timeout_ms=config.controller_quorum_request_timeout_ms,
                auto_join=config.controller_quorum_auto_join_enable,
            ),
        )

    def _configured_voters(self) -> VoterSet:
        """Return the voters before the log names any, which counts again if it is truncated.

        Without a list this node is the only one; but with bootstrap servers, and from kraft.version 1
        on, only the log says who votes: perhaps nobody that is known yet.
        """
        named = self.config.controller_quorum_voters
        if self.config.names_no_voters or (not named and self.log.voters.kraft_version > 0):
            return NO_VOTERS
        if not named:
            return VoterSet(
                (VoterNode(ReplicaKey(self.config.node_id), Endpoints((self.listener,))),)
            )
        addresses = {each.node_id: (each.host, each.port) for each in named}
        return static_voters(self.listener.listener, addresses)

    @property
    def endpoints(self) -> Endpoints:
        """Where this node is reached."""
        return Endpoints((self.listener,))

    # What others ask of it.

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take part in the quorum until cancelled; raise StorageError if the disk fails.

        It has started when its first step is carried out.
        """
        try:
            async with trio.open_nursery() as self._nursery:
                async with self._stepping:
                    await self._begin()
                self._nursery.start_soon(self._flush_appends)
                self._nursery.start_soon(self.log.take_snapshots)
                task_status.started()
                await self._take_events()
        finally:
            self._stopped = True
            for peer in self._peers.values():
                peer.close()
            for waiting in self._inbox:
                waiting.done.set()
            self._answer_change(NOT_ANSWERED)

    async def happened(self, event: Event) -> tuple[Effect, ...]:
        """Carry out what `event` asks for, and return its effects.

        Raise PeerUnavailableError once the node has stopped.
        """
        is_idle = not (self._stopped or self._stepping.taken or self._inbox)
        if is_idle and self._new_voters() is None:
            made = self._stepped(event)
            if all(isinstance(each, HighWatermark | Reply) for each in made.effects):
                await self._at_once(made)
                return made.effects
        happening = _Happening(event)
        await self._wait_for(happening)
        return happening.effects

    async def _at_once(self, made: QuorumStep) -> None:
        """Carry out a step of which nothing is lost where its task is cancelled."""
        async with self._stepping:
            await self._carry_out(made)
        deadline_ms, timer_ms = self.quorum.deadline_ms, self._timer_ms
        if deadline_ms is not None and (timer_ms is None or deadline_ms < timer_ms):
            self._wake.set()

    async def _wait_for(self, happening: "_Happening") -> None:
        if not self._stopped:
            self._inbox.append(happening)
            self._wake.set()
            await happening.done.wait()
        if self._stopped:
            raise PeerUnavailableError("this controller has stopped")

    async def replied(self, event: Event) -> Reply:
        """Return the reply to an event that a request of a peer has brought."""
        return next(each for each in await self.happened(event) if isinstance(each, Reply))

    async def answer(self, request: QuorumRequest) -> QuorumResponse:
        """Answer Vote, BeginQuorumEpoch or EndQuorumEpoch."""
        event = event_of(request)
        reply = None if event is None else await self.replied(event)
        return response_of(request, reply, self.listener.listener)

    async def change_voters(self, request: VoterRequest) -> VoterResponse:
        """Answer AddRaftVoter, RemoveRaftVoter or UpdateRaftVoter; a change of the set once it is
        committed.
        """
        asked = _Happening(voter_event(request))
        await self._wait_for(asked)
        answer = next((each for each in asked.effects if isinstance(each, Reply)), None)
        if answer is None:
            await asked.settled.wait()
            if self._stopped:
                raise PeerUnavailableError("this controller has stopped")
        return voter_response(request, answer or asked.answer, self.listener.listener)

    async def wait_until_active(self) -> LeaderEpoch:
        """Wait until this node may decide, and return its leader epoch."""
        while self.active_epoch is None:
            await self._role_changed.wait()
        return self.active_epoch

    async def wait_until_inactive(self, leader_epoch: LeaderEpoch) -> None:
        """Wait until this node no longer leads in `leader_epoch`."""
        while self.active_epoch == leader_epoch:
            await self._role_changed.wait()

    async def wait_until_others_vote(self) -> None:
        """Wait until this node is not the only voter."""
        while self.quorum.is_only_voter:
            await self._role_changed.wait()

    async def ask_leader(self, request: object) -> Any:
        """Return what the leader answers; None where it is not known, or does not in time."""
        quorum = self.quorum
        if quorum.leader_id is None:
            return None
        return await self._asked(quorum.leader_id, quorum.leader_endpoints, request)

    def report_misconfiguration(self, cause: str) -> None:
        """Report that another controller stands in the way of this one, once in ten seconds."""
        self._misconfigurations.report(
            lambda left_out: QuorumMisconfigured(cause=cause, left_out=left_out)
        )

    def resign(self, leader_epoch: LeaderEpoch) -> None:
        """Give up the leadership of `leader_epoch`: this node cannot go on as the leader."""
        self._note(ResignAsked(leader_epoch))

    @property
    def leader_address(self) -> ListenerAddress | None:
        """Where the leader of this epoch is reached; None while that is not known."""
        if self.quorum.leader_id == self.config.node_id:
            return self.listener
        return next(iter(self.quorum.leader_endpoints.addresses), None)

    async def wait_for_change_of_role(self) -> None:
        """Wait until there may be another leader, or another state of this node."""
        await self._role_changed.wait()

    @property
    def leads_others(self) -> bool:
        """Whether this node leads, and others vote that may lead after it."""
        return self.log.leading_epoch is not None and not self.quorum.is_only_voter

    async def leave(self) -> None:
        """Give up the leadership for good, and return once each other voter has answered that it
        knows, or could not be asked: those that know elect the next leader at once.

        Raise PeerUnavailableError once the node has stopped.
        """
        await self.happened(ShutdownAsked())
        while self._ending:
            await self._role_changed.wait()

    # Steps.

    def log_view(self) -> LogView:
        """Return what the rules have to know of the log, as it is now."""
        log, snapshot = self.log, self.log.snapshot
        # A bootstrap snapshot stands for no record of the log.
        snapshot_id = snapshot.id if snapshot is not None and snapshot.end_offset else None
        return LogView(
            end_offset=log.log_end_offset,
            flushed_end_offset=log.flushed_end_offset,
            start_offset=log.log.log_start_offset,
            epochs=self._epochs(),
            earliest_snapshot=snapshot_id,
            latest_snapshot=snapshot_id,
        )

    def _epochs(self) -> tuple[EpochEntry, ...]:
        return tuple(self.log.log.leader_epoch_cache.entries)

    @property
    def _now_ms(self) -> int:
        return self.seams.clock.now_ms()

    def _jitter_ms(self) -> int:
        if self.quorum.is_only_voter:
            return 0
        return self.seams.chance.randrange(max(1, self.quorum.settings.election_timeout_ms))

    async def _begin(self) -> None:
        if self.quorum.is_only_voter:
            self.log.commit(self.log.flushed_end_offset)
            await self.log.apply_committed()
        first = start(
            self.quorum,
            self.election,
            self.log_view(),
            now_ms=self._now_ms,
            jitter_ms=self._jitter_ms(),
        )
        await self._carry_out(first)

    async def _take_events(self) -> None:
        while True:
            while self._inbox:
                happening = self._inbox.popleft()
                async with self._stepping:
                    await self._handle(happening)
                happening.done.set()
            self._wake = trio.Event()
            deadline_ms = self._timer_ms = self.quorum.deadline_ms
            if deadline_ms is None:
                await self._wake.wait()
                continue
            with self.seams.clock.move_on_after((deadline_ms - self._now_ms) / 1000):
                await self._wake.wait()
            if self._now_ms >= deadline_ms:
                async with self._stepping:
                    await self._step(TimerExpired())

    async def _handle(self, happening: _Happening) -> None:
        await self._take_voters()
        made = self._stepped(happening.event)
        happening.effects = made.effects
        is_change = isinstance(happening.event, AddVoterReceived | RemoveVoterReceived)
        if is_change and not any(isinstance(each, Reply) for each in made.effects):
            self._changing = happening
        await self._carry_out(made)

    async def _step(self, event: Event) -> None:
        await self._take_voters()
        await self._carry_out(self._stepped(event))

    async def _take_voters(self) -> None:
        """Step with the voters of the log where these are others now."""
        newest = self._new_voters()
        if newest is not None:
            await self._carry_out(self._stepped(newest))
            self._notify()

    def _new_voters(self) -> VotersChanged | None:
        """Return the voters of the log, where these are others than those of the last step."""
        known, quorum = self.log.voters, self.quorum
        if known is self._known_voters:
            return None
        newest = (known.voters, known.voters_offset, known.kraft_version)
        if newest == (quorum.voters, quorum.voters_offset, quorum.kraft_version):
            self._known_voters = known
            return None
        return VotersChanged(*newest)

    def _stepped(self, event: Event) -> QuorumStep:
        return step(
            self.quorum,
            event,
            self.log_view(),
            now_ms=self._now_ms,
            jitter_ms=self._jitter_ms(),
        )

    def _note(self, event: Event) -> None:
        """Carry `event` out later: nobody waits for its effects."""
        self._inbox.append(_Happening(event))
        self._wake.set()

    # Effects.

    async def _carry_out(self, made: QuorumStep) -> None:
        self.quorum = made.quorum
        for effect in made.effects:
            match effect:
                case Persist():
                    await self._persist(effect)
                case StopLeading():
                    self.log.step_down()
                    self._become_active(None)
                case Lead():
                    self._lead(effect)
                    await self._step(LogChanged())
                case HighWatermark(offset):
                    self.log.commit(min(offset, self.log.log_end_offset))
                    self._show()
                    await self.on_committed()
                case LeaderChanged():
                    self._notify()
                case AppendVoters():
                    await self._append_voters(effect)
                case AnswerChange():
                    self._answer_change(effect)
                case _:
                    self._talk(effect)

    def _talk(self, effect: Effect) -> None:
        """Carry out an effect that other nodes see; what it needs of them goes on meanwhile."""
        match effect:
            case StopFetching():
                self._stop_fetching()
            case FetchFrom():
                self._stop_fetching()
                self._start_fetching(effect)
            case Send():
                if isinstance(effect.call, EndCall):
                    self._ending.add(effect.to.id)
                self._tasks.start_soon(self._send, effect)
            case AskLevels():
                self._tasks.start_soon(self._ask_levels, effect)
            case AskLeader():
                self._tasks.start_soon(self._ask_leader, effect)
            case Disagreement(claim):
                self._contradictions.report(
                    lambda left_out: PeerContradicted(claim=claim, left_out=left_out)
                )
            case Misconfiguration(cause):
                self.report_misconfiguration(cause)
            case _:
                pass  # the task that brought the event does the rest

    @property
    def _tasks(self) -> trio.Nursery:
        assert self._nursery is not None, "it runs"
        return self._nursery

    async def _persist(self, effect: Persist) -> None:
        write = partial(
            write_quorum_state,
            self.seams.file_system,
            self.log.log.directory,
            effect.election,
            kraft_version=self.quorum.kraft_version,
            voters=self.quorum.voters.ids,
        )
        is_kept = False
        while not is_kept:
            try:
                await self.seams.offload(write)
                is_kept = True
            except ShortageError:
                await self.seams.clock.sleep(SHORTAGE_PAUSE_SECONDS)
            except OSError as error:
                raise self.log.log.fail(error) from error

    def _lead(self, lead: Lead) -> None:
        assert lead.epoch_start_offset == self.log.log_end_offset, "it leads from the log's end on"
        voters = [
            LeaderChangeVoter(voter_id=each.key.id, voter_directory_id=each.key.directory_id)
            for each in lead.voters.nodes
        ]
        beginning: list[ControlRecord] = [
            LeaderChangeMessage(
                version=0,
                leader_id=self.config.node_id,
                voters=voters,
                granting_voters=[each for each in voters if each.voter_id in lead.granting],
            )
        ]
        if lead.new_voters is not None:
            beginning += [_level(lead.kraft_version), lead.new_voters.to_record()]
        try:
            self.log.lead(lead.leader_epoch, beginning)
        except ShortageError:
            self.resign(lead.leader_epoch)
            return
        is_all_applied = self.log.committed_image.offset + 1 == lead.epoch_start_offset
        if self.quorum.is_only_voter and is_all_applied:
            self._become_active(lead.leader_epoch)
        else:
            self._tasks.start_soon(self._activate, lead.leader_epoch, lead.epoch_start_offset)

    async def _activate(self, leader_epoch: LeaderEpoch, epoch_start_offset: Offset) -> None:
        try:
            await self.log.wait_until_committed(epoch_start_offset + 1, leader_epoch)
            await self.log.apply_committed()
        except KafkaError:
            return  # another node leads
        self._show()
        if self.log.leading_epoch == leader_epoch:
            self._become_active(leader_epoch)

    def _show(self) -> None:
        """Publish what is committed by now, to the broker of this node."""
        if self.config.is_broker:
            self._follower.show()

    def _become_active(self, leader_epoch: LeaderEpoch | None) -> None:
        self.active_epoch = leader_epoch
        self._notify()

    def _notify(self) -> None:
        self._role_changed.set()
        self._role_changed = trio.Event()

    async def _flush_appends(self) -> None:
        while True:
            await self.log.wait_for_appends()
            try:
                await self.log.flush()
            except ShortageError:
                await self.seams.clock.sleep(SHORTAGE_PAUSE_SECONDS)
                continue
            await self.happened(LogChanged())

    # Changes of the voters (KIP-853).

    async def _append_voters(self, effect: AppendVoters) -> None:
        records: list[ControlRecord] = [effect.voters.to_record()]
        if effect.kraft_version is not None:
            records.insert(0, _level(effect.kraft_version))
        async with self.appending:
            leader_epoch = self.log.leading_epoch
            if leader_epoch is None:
                return
            try:
                self.log.append_control(records, leader_epoch)
            except ShortageError:
                self.resign(leader_epoch)
        await self._step(LogChanged())

    def _answer_change(self, answer: AnswerChange) -> None:
        changing, self._changing = self._changing, None
        if changing is not None:
            changing.answer = answer
            changing.settled.set()

    async def _ask_levels(self, effect: AskLevels) -> None:
        request = ApiVersionsRequest(
            client_software_name="understudy", client_software_version="raft"
        )
        response = await self._asked(effect.voter.id, effect.endpoints, request)
        self._note(levels_in(effect.voter.id, response))

    async def _ask_leader(self, effect: AskLeader) -> None:
        timeout_ms = self.config.controller_quorum_request_timeout_ms
        request = voter_request(effect.request, timeout_ms=timeout_ms)
        response = await self._asked(effect.leader_id, effect.endpoints, request)
        if isinstance(response, UpdateRaftVoterResponse):
            self._note(ReportAnswered(report_reply(response, self.listener.listener)))

    # Peers.

    async def _asked(self, node_id: int, endpoints: Endpoints, request: object) -> Any:
        """Return what a node answers; None where it does not in time."""
        if not endpoints.addresses:
            return None
        peer = self._peer(node_id, endpoints.addresses[0])
        try:
            return await peer.call(
                request, timeout_ms=self.config.controller_quorum_request_timeout_ms
            )
        except (PeerUnavailableError, ProtocolError):
            return None

    async def _send(self, send: Send) -> None:
        where = self.quorum.voters.endpoints(send.to.id)
        response = await self._asked(send.to.id, where, request_of(send, self.quorum))
        event: Event = Unanswered(send)
        if response is not None:
            with suppress(ProtocolError):
                event = Answered(send, reply_of(response, self.listener.listener))
        self._note(event)
        if isinstance(send.call, EndCall):
            self._ending.discard(send.to.id)
            self._notify()

    def _peer(self, voter_id: int, where: ListenerAddress) -> PeerChannel:
        peer = self._peers.get(voter_id)
        if peer is None or (peer.host, peer.port) != (where.host, where.port):
            if peer is not None:
                peer.close()
            client_id = f"raft-client-{self.config.node_id}"
            peer = self._peers[voter_id] = PeerChannel(
                where.host, where.port, client_id, self.seams
            )
        return peer

    # The fetcher.

    def _stop_fetching(self) -> None:
        self._search.cancel()
        if self._fetcher is not None:
            self._fetcher.initiate_shutdown()
            self._fetching.cancel()
            self._fetcher = None

    def _start_fetching(self, source: FetchFrom) -> None:
        where = source.endpoints.addresses
        if source.leader_id is None or not where:
            self._search = trio.CancelScope()
            if not self.quorum.is_only_voter:
                self._tasks.start_soon(self._search_leader, self._search)
            return
        self._fetcher = self._new_fetcher(
            BrokerEndPoint(source.leader_id, where[0].host, where[0].port), source.leader_epoch
        )
        self._fetching = trio.CancelScope()
        self._tasks.start_soon(self._fetch, self._fetcher, self._fetching)

    async def _fetch(self, fetcher: ReplicaFetcher, scope: trio.CancelScope) -> None:
        """Run a fetcher once the one before has ended, which may still write to a snapshot."""
        with scope:
            async with self._one_fetcher:
                await fetcher.run()

    async def _search_leader(self, scope: trio.CancelScope) -> None:
        """Ask the other voters in turn who leads, until one knows."""
        with scope:
            for node_id, endpoints in cycle(self._others()):
                await self.seams.clock.sleep(self._retry_seconds)
                request = first_fetch(self.quorum, self.log_view())
                response = await self._asked(node_id, endpoints, request)
                if response is not None:
                    with suppress(ProtocolError):
                        reply = fetch_reply(response, self.listener.listener)
                        self._note(FetchAnswered(reply))

    def _others(self) -> list[tuple[int, Endpoints]]:
        """Return the other voters, and the addresses of which only the configuration knows."""
        name = self.listener.listener
        bootstrap = [
            Endpoints((ListenerAddress(name, each.host, each.port),))
            for each in self.config.controller_quorum_bootstrap_servers
        ]
        voters = [(each.key.id, each.endpoints) for each in self.quorum.voters.nodes]
        others = [each for each in voters if each[0] != self.config.node_id]
        return others + [(-2 - number, where) for number, where in enumerate(bootstrap)]

    @property
    def _retry_seconds(self) -> float:
        return self.config.controller_quorum_retry_backoff_ms / 1000

    def _new_fetcher(self, leader: BrokerEndPoint, leader_epoch: LeaderEpoch) -> ReplicaFetcher:
        config, follower = self.config, self._follower
        fetcher = ReplicaFetcher(
            name=FETCHER_NAME,
            leader=EpochEndpoint(
                node=self,
                leader_epoch=leader_epoch,
                cluster_id=self.cluster_id,
                directory_id=self.quorum.me.directory_id,
                follower=follower,
                broker=leader,
                replica_id=config.node_id,
                client_id=f"raft-client-{config.node_id}",
                transport=self.seams.transport,
                clock=self.seams.clock,
                connect_timeout_ms=config.controller_quorum_request_timeout_ms,
                request_timeout_ms=FETCH_WAIT_MS + config.controller_quorum_request_timeout_ms,
                snapshot_max_bytes=config.controller_quorum_fetch_snapshot_max_bytes,
            ),
            replicas=follower,
            config=FetcherConfig(
                replica_id=config.node_id,
                max_wait_ms=FETCH_WAIT_MS,
                max_bytes=config.controller_quorum_fetch_max_bytes,
                partition_max_bytes=config.controller_quorum_fetch_max_bytes,
                backoff_ms=config.controller_quorum_retry_backoff_ms,
            ),
            clock=self.seams.clock,
            failed=set(),
            stats=FetcherStats(self.metrics, FETCHER_NAME, leader),
            on_bug=self.on_bug,
        )
        beginning = InitialFetchState(
            topic_id=METADATA_TOPIC_ID,
            leader=leader,
            current_leader_epoch=leader_epoch,
            init_offset=self.log.log_end_offset,
        )
        fetcher.partitions.add({METADATA_PARTITION: beginning})
        return fetcher

    def _fail(self, error: Exception) -> None:
        """End the node: its log cannot be kept, or only a newer release knows a record."""
        self._tasks.start_soon(partial(_raise, error))


def _level(kraft_version: int) -> KRaftVersionRecord:
    return KRaftVersionRecord(version=0, kraft_version=kraft_version)


async def _raise(error: Exception) -> None:
    raise error
