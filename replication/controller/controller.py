"""The controller: the node that elects leaders, and writes each decision down first.

    request ──> decision ──> append, apply to the image ──> committed ──> answer, events
                   ^                  │
                   └── the next one ──┘   decides from what this one has made

Rule 1: decisions are pure (`replication/controller/rules`) and made one at a time: no other
decision comes between reading the image and appending the records. A decision about many items is
made in a worker thread, and the others wait for it, except heartbeats that change nothing.

Rule 2: nothing is answered or reported before a majority of the voters has synced it, not even that
nothing changes: an answer must not be undone. One that is undecided when this node stops leading is
NOT_CONTROLLER.

Rule 3: a controller decides only while its node is active (`raft/node.py`), and the others are warm
standbys. In each leader epoch it begins with a new session for every broker that is not fenced; a
broker that stays silent is fenced.

Rule 4: an administrator's change is answered when every unfenced broker has fetched it, but after
`FETCH_WAIT_SECONDS` at the latest: then every broker shows it. A broker that is silent and not
fenced yet costs that much. Kafka's controller answers without waiting for brokers.

Rule 5: leaving in good order loses nothing more than being killed does: everything that was answered
is synced. A leader that leaves says so to the other voters, which elect at once. A log that cannot be written ends the controller: `run` raises KafkaStorageError.

The file is long because these rules are about the order of the same few steps.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias, TypeVar

import attrs
import trio

from replication.config import BrokerConfig, ListenerConfig
from replication.controller.directory import ControllerDirectory
from replication.controller.features import (
    OwnRegistration,
    quorum_level,
    raise_kraft_version,
)
from replication.controller.forwarded import envelopes
from replication.controller.metrics import ControllerMetrics, register_raft_metrics
from replication.controller.rules.acls import create_acls, delete_acls
from replication.controller.rules.brokers import (
    BrokerSessions,
    fence,
    heartbeat,
    is_change,
    register,
    register_controller,
    unregister,
)
from replication.controller.rules.client_quotas import alter_client_quotas
from replication.controller.rules.configs import (
    alter_configs,
    election_rules,
    incremental_alter_configs,
    one_minimum,
)
from replication.controller.rules.decisions import Decision, elections_of_leaderless
from replication.controller.rules.directories import assign_replicas
from replication.controller.rules.election import ElectionRules
from replication.controller.rules.events import events_of
from replication.controller.rules.features import (
    first_levels,
    level_of_quorum,
    update_features,
)
from replication.controller.rules.isr_changes import alter_partition
from replication.controller.rules.partitions import balanced, create_partitions, elect_leaders
from replication.controller.rules.reassignment_requests import (
    alter_partition_reassignments,
    list_partition_reassignments,
)
from replication.controller.rules.scram import alter_user_scram_credentials, first_credentials
from replication.controller.rules.topics import allocate_producer_ids, create_topics, delete_topics
from replication.errors import ErrorCode, KafkaError, OnBug, PeerUnavailableError
from replication.events import (
    Event,
    EventSink,
    LogDirectoryFailed,
    RareReporter,
    RegistrationRefused,
    ignore,
)
from replication.faults.node_faults import FaultGate, Faults
from replication.metadata.log import MetadataLog
from replication.metadata.rules.image import MetadataImage, TopicImage
from replication.metadata.rules.records import MAX_RECORDS
from replication.metrics import MetricsRegistry
from replication.net.idle import idle_limit_seconds
from replication.net.pace import in_steps
from replication.net.raising import raising_only_one, raising_the_first
from replication.net.seams import Listener, Seams
from replication.net.secure import introduced, listen
from replication.raft import log_service
from replication.raft.node import SHORTAGE_PAUSE_SECONDS, RaftNode
from replication.raft.rules.types import ListenerAddress
from replication.security.rules.acls import Authorizer
from replication.security.rules.scram import SALT_BYTES
from replication.server.authentication import Gate, gate
from replication.server.connection_quotas import ConnectionLimits, ConnectionQuotas
from replication.server.guards import for_brokers
from replication.server.limits import (
    LIMITED,
    TooManyRecordsError,
    limited,
    size_of,
    too_large,
    work_of,
)
from replication.server.request_metrics import RequestMetrics
from replication.server.server import AdvertisedFeatures, Handler, RequestContext, Server
from replication.steps import STEP, Steps, at_once
from replication.wire.api_versions import METADATA_VERSION
from replication.wire.apis import ApiKey, api_of
from replication.wire.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from replication.wire.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from replication.wire.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from replication.wire.describe_quorum import (
    QUORUM_TOPIC,
    DescribedQuorumTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumPartition,
)
from replication.wire.fetch import FetchRequest, FetchResponse
from replication.wire.metadata_records import (
    AbortTransactionRecord,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
)
from replication.wire.refusals import each_refused, refused_whole_in_steps
from replication.wire.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from storage.attributes import define
from storage.errors import (
    KafkaStorageError,
    ShortageError,
    StorageError,
)
from storage.types import LeaderEpoch, Offset, TopicId

A = TypeVar("A")
Decide: TypeAlias = Callable[[MetadataImage, Any], Decision[Any]]
Method: TypeAlias = Callable[[Any], Awaitable[Any]]
FETCH_WAIT_SECONDS = 0.5


@define(eq=False, repr=False, kw_only=True)
class Controller:
    """One incarnation of the controller, which runs once."""

    config: BrokerConfig
    seams: Seams
    on_bug: OnBug
    sink: EventSink = ignore
    faults: Faults | None = None
    metrics: MetricsRegistry = attrs.field(init=False)
    sessions: BrokerSessions = attrs.field(init=False)
    _counted: ControllerMetrics = attrs.field(init=False)
    listener: Listener | None = attrs.field(default=None, init=False)
    """The listener for brokers; None before `run` has started."""
    _directory: ControllerDirectory = attrs.field(init=False)
    _log: MetadataLog | None = attrs.field(default=None, init=False)
    _node: RaftNode | None = attrs.field(default=None, init=False)
    _leading_epoch: LeaderEpoch | None = attrs.field(default=None, init=False)
    """The leader epoch in which this controller decides; None while it does not."""
    _events: deque[tuple[Offset, Event]] = attrs.field(factory=deque, init=False)
    _fetched: trio.Event = attrs.field(factory=trio.Event, init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _leaving: trio.Event = attrs.field(factory=trio.Event, init=False)
    _has_started: bool = attrs.field(init=False, default=False)
    _refusals: RareReporter = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        now = self.seams.clock.now
        self.metrics = MetricsRegistry(now)
        self._counted = ControllerMetrics(
            self.metrics, lambda: self.image, lambda: self.is_active, now
        )
        self.sessions = BrokerSessions(self.config.broker_session_timeout_ms)
        self._refusals = RareReporter(self.sink, self.seams.clock.now_ms)
        self._directory = ControllerDirectory(config=self.config, seams=self.seams)

    @property
    def log(self) -> MetadataLog:
        assert self._log is not None, "a running controller has its log"
        return self._log

    @property
    def image(self) -> MetadataImage:
        """The image of all decisions, synced or not."""
        return self.log.image

    @property
    def synced_image(self) -> MetadataImage:
        """The image of all synced decisions; an empty one before the controller listens."""
        return self.log.committed_image if self.port else MetadataImage()

    @property
    def port(self) -> int:
        """The port that brokers connect to; 0 before the controller listens."""
        return 0 if self.listener is None else self.listener.port

    @property
    def node(self) -> RaftNode:
        assert self._node is not None, "a running controller is a node of its quorum"
        return self._node

    @property
    def cluster_id(self) -> str:
        return self.node.cluster_id

    @property
    def is_active(self) -> bool:
        """Whether this controller decides; in a quorum the others only follow it."""
        return self._leading_epoch is not None and self._leading_epoch == self.log.leading_epoch

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Recover, listen and decide until `shut_down` or cancelled.

        It has started once brokers can be answered, or when it was shut down before.
        """
        # A failing disk may fail the log's sync and a snapshot's, which run side by side.
        with raising_only_one(), raising_the_first(StorageError), self._scope:
            await self._run(task_status)
        if not self._has_started:
            task_status.started()

    def shut_down(self) -> None:
        """Stop; `run` returns when that is done.

        A controller that leads others first tells them so, for a request timeout at most.
        """
        if self._node is not None and self._node.leads_others:
            self._leaving.set()
        else:
            self._scope.cancel()

    async def _leave_when_asked(self) -> None:
        await self._leaving.wait()
        patience_ms = self.config.controller_quorum_request_timeout_ms
        with suppress(PeerUnavailableError), self.seams.clock.move_on_after(patience_ms / 1000):
            await self.node.leave()
        self._scope.cancel()

    async def _run(self, task_status: trio.TaskStatus[None]) -> None:
        self._log = await MetadataLog.open(
            self.seams,
            self.config.metadata_directory,
            node_id=self.config.node_id,
            admit=self._directory.admit,
            snapshot_bytes=self.config.metadata_log_max_record_bytes_between_snapshots,
            index_bytes=self.config.log_index_size_max_bytes,
        )
        try:
            async with trio.open_nursery() as nursery:
                where = self._listener_config()
                self.listener = await listen(self.seams.transport, where, self.config)
                await self._join_quorum(nursery, self.listener.port)
                server = self._server()
                nursery.start_soon(
                    partial(server.serve, self.listener, name=where.name, gate=self._gate())
                )
                nursery.start_soon(self._leave_when_asked)
                registration = OwnRegistration(node=self.node, decide=self._register_controller)
                nursery.start_soon(registration.run)
                task_status.started()
                self._has_started = True
        finally:
            if self.listener is not None:
                self.listener.close()
            self._log.close()

    async def _join_quorum(self, nursery: trio.Nursery, port: int) -> None:
        """Start the node of the quorum, which others reach at `port`; a controller that is the only
        voter leads at once.
        """
        where = self._listener_config()
        self._node = RaftNode(
            config=self.config,
            cluster_id=self._directory.cluster_id,
            directory_id=self._directory.directory_id,
            election=self._directory.election,
            listener=ListenerAddress(where.name, where.host or "localhost", port),
            log=self.log,
            seams=introduced(self.seams, self.config.controller_introduction),
            metrics=self.metrics,
            on_bug=self.on_bug,
            sink=self.sink,
            on_committed=self._report_committed,
        )
        register_raft_metrics(self.metrics, self._node)
        await nursery.start(self._take_part)
        await nursery.start(self._lead)

    async def _take_part(self, task_status: trio.TaskStatus[None]) -> None:
        try:
            with raising_only_one(), raising_the_first(StorageError):
                await self.node.run(task_status)
        except KafkaStorageError as error:
            self.sink(
                LogDirectoryFailed(directory=self.config.metadata_directory, cause=str(error))
            )
            raise

    async def _lead(self, task_status: trio.TaskStatus[None]) -> None:
        """Decide while this node is active; the other tasks of a controller run only then.

        It has started at once where others vote too, and else when it leads.
        """
        if not self.node.quorum.is_only_voter:
            task_status.started()
            task_status = trio.TASK_STATUS_IGNORED
        while True:
            leader_epoch = await self.node.wait_until_active()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._decide, leader_epoch, task_status)
                await self.node.wait_until_inactive(leader_epoch)
                nursery.cancel_scope.cancel()
            self._leading_epoch = None
            self._events.clear()  # what is not committed by now may never be
            task_status = trio.TASK_STATUS_IGNORED

    async def _decide(self, leader_epoch: LeaderEpoch, task_status: trio.TaskStatus[None]) -> None:
        try:
            await self._begin_epoch(leader_epoch)
        except KafkaError:
            return  # another controller leads already
        task_status.started()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._fence_silent_brokers)
            if self.config.auto_leader_rebalance_enable:
                nursery.start_soon(self._balance_leaders)

    def _server(self) -> Server:
        return Server(
            handlers=self._for_brokers_alone(self.handlers()),
            clock=self.seams.clock,
            sink=self.sink,
            on_bug=self.on_bug,
            max_request_bytes=self.config.socket_request_max_bytes,
            max_idle_seconds=idle_limit_seconds(self.config.connections_max_idle_ms),
            faults=self._fault_gate(),
            metrics=RequestMetrics(self.metrics),
            quotas=ConnectionQuotas(
                clock=self.seams.clock,
                sink=self.sink,
                limits=partial(ConnectionLimits.of, self.config),
            ),
            features=lambda: AdvertisedFeatures.of(
                self.synced_image, self.node.quorum.kraft_version
            ),
        )

    def _fault_gate(self) -> FaultGate | None:
        if self.faults is None:
            return None
        return self.faults.gate(
            self.config.node_id,
            self.seams,
            self.sink,
            name_of=self._topic_name,
        )

    def _topic_name(self, topic_id: TopicId) -> str | None:
        return self.image.topic_names_by_id.get(topic_id)

    def _for_brokers_alone(self, handlers: dict[ApiKey, Handler]) -> dict[ApiKey, Handler]:
        if (authorizer := self.config.authorizer) is None:
            return handlers
        return for_brokers(handlers, Authorizer(*authorizer), lambda: self.image)

    def _gate(self) -> Gate:
        security = self.config.security_of(self._listener_config().name)
        return gate(
            security,
            self.config,
            seams=self.seams,
            credential_of=lambda name, kind: self.image.security.credentials.get((name, kind)),
        )

    def _listener_config(self) -> ListenerConfig:
        return self.config.controller_listeners[0]

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handler of each API that the controller serves."""

        def of(method: Method) -> Handler:
            async def handle(_: RequestContext, request: Any) -> Any:
                return await method(request)

            return handle

        def decided_by(decide: Decide) -> Handler:
            async def handle(_: RequestContext, request: Any) -> Any:
                size = await in_steps(size_of(request))
                return await self._carry_out(lambda image: decide(image, request), size.items)

            return handle

        def read_by(read: Callable[[RaftNode, Any], Awaitable[Any]]) -> Handler:
            async def handle(_: RequestContext, request: Any) -> Any:
                return await read(self.node, request)

            return handle

        rules_of = self._election_rules
        handlers = {
            ApiKey.BROKER_REGISTRATION: of(self.broker_registration),
            ApiKey.BROKER_HEARTBEAT: of(self.broker_heartbeat),
            ApiKey.CONTROLLER_REGISTRATION: of(self._register_controller),
            ApiKey.ALTER_PARTITION: decided_by(partial(alter_partition, rules_of=rules_of)),
            ApiKey.ALLOCATE_PRODUCER_IDS: decided_by(allocate_producer_ids),
            ApiKey.ASSIGN_REPLICAS_TO_DIRS: decided_by(partial(assign_replicas, rules_of=rules_of)),
            ApiKey.DESCRIBE_CLUSTER: read_by(log_service.describe_cluster),
            ApiKey.FETCH: of(self.fetch),
            ApiKey.FETCH_SNAPSHOT: read_by(log_service.fetch_snapshot),
            ApiKey.VOTE: read_by(RaftNode.answer),
            ApiKey.BEGIN_QUORUM_EPOCH: read_by(RaftNode.answer),
            ApiKey.END_QUORUM_EPOCH: read_by(RaftNode.answer),
            ApiKey.ADD_RAFT_VOTER: read_by(RaftNode.change_voters),
            ApiKey.REMOVE_RAFT_VOTER: read_by(RaftNode.change_voters),
            ApiKey.UPDATE_RAFT_VOTER: read_by(RaftNode.change_voters),
        }
        handlers |= {key: limited(key, of(self.answer_client)) for key in LIMITED}
        authorizer = self.config.authorizer
        handlers[ApiKey.ENVELOPE] = envelopes(
            handlers,
            None if authorizer is None else Authorizer(*authorizer),
            lambda: self.image,
        )
        return {key: _refusing(handler) for key, handler in handlers.items()}

    def _client_decisions(self) -> dict[ApiKey, Decide]:
        """Return the decision of each API whose requests brokers forward for their clients."""
        config, chance, rules_of = self.config, self.seams.chance, self._election_rules
        new_id = partial(chance.randbytes, 16)
        return {
            ApiKey.CREATE_TOPICS: partial(create_topics, config=config, chance=chance),
            ApiKey.DELETE_TOPICS: partial(delete_topics, config=config),
            ApiKey.ALTER_CONFIGS: partial(alter_configs, config=config),
            ApiKey.INCREMENTAL_ALTER_CONFIGS: partial(incremental_alter_configs, config=config),
            ApiKey.CREATE_PARTITIONS: partial(create_partitions, chance=chance),
            ApiKey.ELECT_LEADERS: partial(elect_leaders, rules_of=rules_of),
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: partial(
                alter_partition_reassignments, rules_of=rules_of
            ),
            ApiKey.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
            ApiKey.CREATE_ACLS: partial(create_acls, new_id=new_id),
            ApiKey.DELETE_ACLS: delete_acls,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials,
            ApiKey.ALTER_CLIENT_QUOTAS: alter_client_quotas,
            ApiKey.DESCRIBE_QUORUM: self._describe_quorum,
            ApiKey.UPDATE_FEATURES: partial(
                update_features, config=config, quorum=quorum_level(self.node)
            ),
            ApiKey.UNREGISTER_BROKER: partial(unregister, rules_of=rules_of),
        }

    # Requests.

    async def broker_registration(
        self, request: BrokerRegistrationRequest
    ) -> BrokerRegistrationResponse:
        now_ms = self.seams.clock.now_ms()

        def decide(image: MetadataImage) -> Decision[BrokerRegistrationResponse]:
            return register(
                image,
                request,
                cluster_id=self.cluster_id,
                sessions=self.sessions,
                rules_of=self._election_rules,
                now_ms=now_ms,
            )

        cause = ""

        def decided(image: MetadataImage, decision: Decision[BrokerRegistrationResponse]) -> None:
            nonlocal cause
            cause = decision.cause
            known = image.broker(request.broker_id)
            same = known is not None and known.incarnation_id == request.incarnation_id
            if decision.answer.error_code == ErrorCode.NONE and not same:
                self.sessions.begin(request.broker_id)

        answer = await self._carry_out(decide, self._partition_count(), decided)
        self._report_refusal("broker", request.broker_id, answer, cause)
        return answer

    async def broker_heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        def decide(image: MetadataImage) -> Decision[BrokerHeartbeatResponse]:
            return heartbeat(image, request, sessions=self.sessions, rules_of=self._election_rules)

        def decided(image: MetadataImage, decision: Decision[BrokerHeartbeatResponse]) -> None:
            if any(
                isinstance(record, BrokerRegistrationChangeRecord) and record.in_controlled_shutdown
                for record in decision.records
            ):
                last = image.offset + len(decision.records)
                self.sessions.shutdown_began(request.broker_id, last)

        leader_epoch = self._active_epoch()
        now_ms = self.seams.clock.now_ms()
        answer = None
        if not is_change(self.image, request, sessions=self.sessions):
            # A broker stays alive however long a decision takes.
            answer = decide(self.image).answer
        if answer is None or answer.error_code == ErrorCode.NONE:
            self.sessions.touch(
                request.broker_id, now_ms=now_ms, metadata_offset=request.current_metadata_offset
            )
        if answer is None:
            return await self._carry_out(decide, self._partition_count(), decided)
        await self.log.wait_until_committed(self.log.log_end_offset, leader_epoch)
        return answer

    async def answer_client(self, request: Any) -> Any:
        """Answer a request that a broker forwards for one of its clients (`limits.LIMITED`)."""
        key = api_of(type(request)).key
        size = await in_steps(size_of(request))
        if isinstance(request, UpdateFeaturesRequest):
            refusal = await self._update_quorum(request, size.items)
            if refusal is not None:
                return refusal
        decide = self._client_decisions()[key]
        try:
            items = work_of(request, size, self.image)
            return await self._carry_out(
                lambda image: decide(image, request), items, of_client=True
            )
        except TooManyRecordsError:
            return await too_large(key, request)

    async def _update_quorum(
        self, request: UpdateFeaturesRequest, items: int
    ) -> UpdateFeaturesResponse | None:
        """Write the level of `kraft.version` that a request asks for, once the rest is found right;
        return the answer if something is not.
        """
        if level_of_quorum(request) is None:
            return None
        looking = attrs.evolve(request, validate_only=True)
        decide = self._client_decisions()[ApiKey.UPDATE_FEATURES]
        answer: UpdateFeaturesResponse = await self._carry_out(
            lambda image: decide(image, looking), items
        )
        if answer.error_code == ErrorCode.NONE:
            answer = await raise_kraft_version(self.node, request, self._active_epoch())
        return None if answer.error_code == ErrorCode.NONE else answer

    async def _register_controller(
        self, request: ControllerRegistrationRequest
    ) -> ControllerRegistrationResponse:
        answer = await self._carry_out(lambda image: register_controller(image, request), 1)
        self._report_refusal("controller", request.controller_id, answer, answer.error_message)
        return answer

    def _report_refusal(
        self,
        role: str,
        node: int,
        answer: BrokerRegistrationResponse | ControllerRegistrationResponse,
        cause: str | None,
    ) -> None:
        """Report a refused registration that stays refused, of which the node learns only the code."""
        error = ErrorCode.of(answer.error_code)
        if cause and error is not ErrorCode.NONE:
            self._refusals.report(
                lambda left_out: RegistrationRefused(
                    node=node, role=role, error=error.name, cause=cause, left_out=left_out
                )
            )

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        self._note_fetch(request)
        return await log_service.fetch(self.node, request)

    def _describe_quorum(
        self, _: MetadataImage, request: DescribeQuorumRequest
    ) -> Decision[DescribeQuorumResponse]:
        """Describe the quorum; any other log than that of the quorum is unknown (KafkaRaftClient)."""
        asked = [(topic.topic_name, topic.partitions) for topic in request.topics[:2]]
        if asked != [(QUORUM_TOPIC, [QuorumPartition(partition_index=0)])]:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused = at_once(each_refused(DescribedQuorumTopic, request.topics, unknown))
            return Decision(DescribeQuorumResponse(topics=refused))
        described = log_service.describe_quorum(
            self.node,
            brokers=self.image.brokers.keys() - self.node.quorum.voters.ids,
            fetched=self.sessions.fetched,
        )
        return Decision(described)

    # Decisions into the log, and out of it.

    async def _carry_out(
        self,
        decide: Callable[[MetadataImage], Decision[A]],
        items: int,
        decided: Callable[[MetadataImage, Decision[A]], None] | None = None,
        *,
        of_client: bool = False,
    ) -> A:
        """Decide, append the records, and return the answer once they are synced.

        `items` is how many a decision looks at: those of a request, or the partitions there are.
        `decided` is called with the image and the decision before the next one is made.
        """
        async with self.node.appending:
            leader_epoch = self._active_epoch()
            image = self.image
            decision = await self._made(lambda: decide(image), items)
            if of_client and len(decision.records) > MAX_RECORDS:
                raise TooManyRecordsError
            if decided is not None:
                decided(image, decision)
            try:
                await self._append(decision.records, leader_epoch, cause=decision.cause)
            except KafkaStorageError as error:
                # The node of the quorum ends the controller, and the client's connection closes.
                raise PeerUnavailableError("this controller cannot write its log") from error
            except ShortageError as error:
                raise PeerUnavailableError(f"this controller cannot write now: {error}") from error
            end = self.log.log_end_offset
        await self.log.wait_until_committed(end, leader_epoch)
        if of_client and decision.records:
            await self._wait_for_brokers(end)
        return decision.answer

    def _active_epoch(self) -> LeaderEpoch:
        """Return the epoch in which this controller decides; raise KafkaError NOT_CONTROLLER if it
        does not.
        """
        leader_epoch = self._leading_epoch
        if leader_epoch is None or leader_epoch != self.log.leading_epoch:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "another controller is active")
        return leader_epoch

    async def _made(self, decide: Callable[[], A], items: int) -> A:
        """Return what `decide` returns; about many items it is called away from the loop."""
        return decide() if items <= STEP else await self.seams.offload(decide)

    def _partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.image.topics.values())

    async def _wait_for_brokers(self, end: Offset) -> None:
        """Wait until every broker has fetched the log below `end` (rule 4)."""
        if self.config.is_broker:
            self._note_copy(self.config.node_id, end)
        with self.seams.clock.move_on_after(FETCH_WAIT_SECONDS):
            while not self.sessions.all_have(end, self.image):
                await self._fetched.wait()

    def _note_fetch(self, request: FetchRequest) -> None:
        broker_id = request.replica.replica_id
        if self.image.broker(broker_id) is None:
            return
        for topic in request.topics:
            for asked in topic.partitions:
                # A broker shows what lies below the high watermark that it knows.
                self._note_copy(broker_id, min(asked.fetch_offset, asked.high_watermark))

    def _note_copy(self, broker_id: int, end: Offset) -> None:
        """Note that a broker has the log below `end`."""
        self.sessions.fetches_from(
            broker_id,
            end,
            log_end=self.log.log_end_offset,
            wall_ms=self.seams.clock.wall_ms(),
        )
        self._fetched.set()
        self._fetched = trio.Event()

    async def _append(
        self,
        records: Sequence[MetadataRecord],
        leader_epoch: LeaderEpoch,
        *,
        cause: str,
        silent_ms: int = -1,
    ) -> None:
        if not records:
            return
        before = self.image
        prepared = await self._made(lambda: self.log.prepare(records), len(records))
        events: list[Event] = []
        if self.sink is not ignore:
            found = partial(
                events_of, records, before, prepared.image, cause=cause, silent_ms=silent_ms
            )
            events = await self._made(lambda: list(found()), len(records))
        if self.log.leading_epoch != leader_epoch:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this controller has lost its leadership")
        self.log.append_prepared(prepared)
        self._counted.appended(records, end=self.log.log_end_offset)
        self._events.extend((prepared.image.offset, event) for event in events)

    async def _begin_epoch(self, leader_epoch: LeaderEpoch) -> None:
        """Write the first records of this leader epoch, and elect leaders where there are none."""
        async with self.node.appending:
            records: list[MetadataRecord] = []
            if self.image.open_transaction is not None:
                records.append(AbortTransactionRecord(reason="another controller had begun it"))
            if METADATA_VERSION not in self.image.feature_levels:
                records += self._first_records()
            begun = self.image.apply_all(
                records, offset=self.image.offset, leader_epoch=leader_epoch
            )
            records += one_minimum(begun, self.config)
            records += elections_of_leaderless(self.image, self._election_rules)
            await self._append(records, leader_epoch, cause="controller started")
        await self.log.wait_until_committed(self.log.log_end_offset, leader_epoch)
        self.sessions = BrokerSessions(self.config.broker_session_timeout_ms)
        self.sessions.restart(self.image, self.seams.clock.now_ms())
        self._leading_epoch = leader_epoch

    def _first_records(self) -> list[MetadataRecord]:
        """Return the records of a new cluster."""
        records = [*(self._directory.first_records or first_levels(self.config))]
        if not self.image.topics:  # else they were adopted
            salts = iter(partial(self.seams.chance.randbytes, SALT_BYTES), b"")
            records += first_credentials(self.config.understudy_add_scram, salts)
        return records

    async def _report_committed(self) -> None:
        """Emit the events of what is committed by now."""
        self._counted.synced(self.log.high_watermark)
        await in_steps(self._emit_committed())

    def _emit_committed(self) -> Steps[None]:
        while self._events and self._events[0][0] < self.log.high_watermark:
            self.sink(self._events.popleft()[1])
            yield 1

    async def _fence_silent_brokers(self) -> None:
        clock, timeout_ms = self.seams.clock, self.config.broker_session_timeout_ms
        while True:
            try:
                async with self.node.appending:
                    await self._fence_expired(clock.now_ms())
            except ShortageError:
                await clock.sleep(SHORTAGE_PAUSE_SECONDS)
                continue
            except KafkaError:
                return  # another controller leads now
            expiry_ms = self.sessions.next_expiry_ms(self.image)
            wait_ms = timeout_ms
            if expiry_ms is not None:
                # A session that is yet to begin ends no earlier than a full one from now.
                wait_ms = min(timeout_ms, max(1, expiry_ms + 1 - clock.now_ms()))
            await clock.sleep(wait_ms / 1000)

    async def _fence_expired(self, now_ms: int) -> None:
        """Fence the brokers whose sessions have expired, each by a decision of its own."""
        while expired := self.sessions.expired(self.image, now_ms):
            image, broker = self.image, self.image.brokers[expired[0]]
            silent_ms = self.sessions.silent_ms(broker.broker_id, now_ms)
            records = await self._made(
                partial(fence, image, broker, self._election_rules), self._partition_count()
            )
            await self._append(
                records, self._active_epoch(), cause="session expired", silent_ms=silent_ms
            )

    async def _balance_leaders(self) -> None:
        while True:
            await self.seams.clock.sleep(self.config.leader_imbalance_check_interval_seconds)
            async with self.node.appending:
                decide = partial(
                    balanced,
                    self.image,
                    rules_of=self._election_rules,
                    imbalance_percentage=self.config.leader_imbalance_per_broker_percentage,
                )
                elections = await self._made(decide, self._partition_count())
                with suppress(ShortageError, KafkaError):
                    await self._append(elections, self._active_epoch(), cause="leaders balanced")

    def _election_rules(self, topic: TopicImage) -> ElectionRules:
        return election_rules(self.image, self.config)(topic)


def _refusing(handler: Handler) -> Handler:
    """Return `handler`, whose refusals are answered: this controller does not decide (any more)."""

    async def handle(context: RequestContext, request: Any) -> Any:
        try:
            return await handler(context, request)
        except KafkaError as refusal:
            return await in_steps(
                refused_whole_in_steps(context.api_key, context.version, request, refusal.code)
            )

    return handle
