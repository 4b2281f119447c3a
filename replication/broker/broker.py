"""A broker: its logs, its place in the cluster, and the clients it serves.

    lock and load logs ─> register ─> follow metadata up to the registration
        ─> replicas take their roles ─> serve ─> heartbeats until unfenced ─> ready

Rule 1: a broker serves clients when its replicas have their roles, and it is unfenced only then, so
that no client is sent here before.

Rule 2: while the controller is unavailable, the broker continues with its last metadata: it leads,
follows and serves, and it repeats its requests to the controller.

Rule 3: a controlled shutdown moves the leaderships away, stops serving, writes checkpoints, and the
clean-shutdown marker last. A broker that is cancelled writes nothing; its next start recovers.

    metadata log ─> MetadataFollower ─> ReplicaManager ─> Broker.metadata ─> handlers

Rule 4: the broker of a node with both roles keeps no copy of the metadata log: it reads what the
replica of its controller has committed, and that knows who leads (Kafka: SharedServer).

Clients see an image after the replicas have acted on it, so that a leader that this broker names to
clients leads already, if it is this broker.

The file is long because a start and an end are one order of many steps, each of which may fail.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio

from replication.broker.alter_partition_manager import AlterPartitionManager
from replication.broker.assignments import Assignments
from replication.broker.certificates import NO_CERTIFICATES, read_certificates
from replication.broker.lifecycle import BrokerLifecycle, BrokerReplacedError
from replication.broker.wiring import Wiring
from replication.config import BrokerConfig
from replication.config.listeners import HostPort
from replication.errors import ConfigError, OnBug, UnderstudyError
from replication.events import (
    BrokerStarted,
    BrokerStopped,
    CertificatesRead,
    ControlledShutdownStarted,
    EventSink,
    LogDirectoryFailed,
    ignore,
)
from replication.faults.node_faults import Faults
from replication.groups.coordinator import GroupCoordinator
from replication.leader.partition import Partition
from replication.metadata.cache import MetadataCache
from replication.metadata.follower import MetadataFollower, metadata_fetcher
from replication.metadata.log import MetadataLog
from replication.metadata.rules.image import MetadataDelta, MetadataImage, delta_between
from replication.metadata.rules.records import METADATA_PARTITION, METADATA_TOPIC_ID
from replication.metadata.snapshots import SnapshotDue
from replication.metrics import MetricsRegistry
from replication.net.controller_channel import ControllerChannel, Controllers
from replication.net.seams import Listener, Seams
from replication.net.secure import ListenError, connect_under, introduced, listen
from replication.net.tls import TlsListener
from replication.replica_manager import ReplicaManager, compaction_metrics
from replication.replica_manager.log_loading import load_logs
from replication.server.connection_quotas import ConnectionQuotas
from replication.server.request_metrics import RequestMetrics
from replication.server.server import Server
from replication.steps import STEP
from replication.transactions.coordinator import TransactionCoordinator
from replication.transactions.markers import PeerChannels
from replication.wire.broker_registration import Endpoint
from storage.attributes import define
from storage.config import LogConfig
from storage.errors import KafkaStorageError, StorageError
from storage.manager.log_manager import LogManager
from storage.types import TopicPartition

if TYPE_CHECKING:  # the process of a broker alone imports no controller
    from replication.controller.controller import Controller
    from replication.raft.node import RaftNode

CONTROLLED_SHUTDOWN_SECONDS = 300.0  # BrokerServer.shutdown's patience
METADATA_LOG_CONFIG = LogConfig(segment_bytes=16 << 20)


@define(eq=False, repr=False, kw_only=True)
class Broker:
    """One incarnation of a broker, which runs once."""

    config: BrokerConfig
    seams: Seams
    on_bug: OnBug
    sink: EventSink = ignore
    faults: Faults | None = None
    controller: "Controller | None" = None
    """The controller of a node with both roles, which runs already."""
    metrics: MetricsRegistry = attrs.field(init=False)
    request_metrics: RequestMetrics = attrs.field(init=False)
    metadata: MetadataCache = attrs.field(init=False)
    endpoints: list[Endpoint] = attrs.field(factory=list, init=False)
    """Where clients reach this broker; known once it listens."""
    port: int = attrs.field(default=0, init=False)
    """The port of the first listener."""
    logs: LogManager = attrs.field(init=False)
    replica_manager: ReplicaManager = attrs.field(init=False)
    groups: GroupCoordinator = attrs.field(init=False)
    transactions: TransactionCoordinator = attrs.field(init=False)
    lifecycle: BrokerLifecycle = attrs.field(init=False)
    _wiring: Wiring = attrs.field(init=False)
    _toward_controller: Seams = attrs.field(init=False)
    _controllers: Controllers = attrs.field(init=False)
    _marker_channels: PeerChannels | None = attrs.field(default=None, init=False)
    _registered: bool = attrs.field(default=False, init=False)
    _ready: bool = attrs.field(default=False, init=False)
    _loop: trio.lowlevel.TrioToken | None = attrs.field(default=None, init=False)
    _patience_seconds: float = attrs.field(default=CONTROLLED_SHUTDOWN_SECONDS, init=False)
    _shutdown_asked: trio.Event = attrs.field(factory=trio.Event, init=False)
    _failure: Exception | None = attrs.field(default=None, init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _serving: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    def __attrs_post_init__(self) -> None:
        self.metrics = MetricsRegistry(self.seams.clock.now)
        self.request_metrics = RequestMetrics(self.metrics)
        self.metadata = MetadataCache(self.seams.clock)
        self._controllers = Controllers(
            self.config.controller_addresses,
            self.config.controller_quorum_request_timeout_ms,
            find_leader=self._leader_here,
        )
        self._toward_controller = introduced(self.seams, self.config.controller_introduction)
        self._wiring = Wiring(
            config=self.config,
            seams=self.seams,
            toward_brokers=introduced(self.seams, self.config.inter_broker_introduction),
            metrics=self.metrics,
            sink=self.sink,
            on_bug=self.on_bug,
            broker_epoch=self._broker_epoch,
            faults=self.faults,
        )

    @property
    def broker_id(self) -> int:
        return self.config.node_id

    @property
    def hosted(self) -> Mapping[TopicPartition, Partition]:
        """The online replicas of this broker; empty before its start."""
        return self.replica_manager.hosted.online if self._registered else {}

    def shut_down(self, *, patience_seconds: float = CONTROLLED_SHUTDOWN_SECONDS) -> None:
        """Shut down cleanly; `run` returns when that is done. A broker that is still starting
        up has nothing to leave in order, and simply stops. `patience_seconds`: how long to wait
        for the controller to let it go.
        """
        self._patience_seconds = min(patience_seconds, self._patience_seconds)
        self._shutdown_asked.set()
        if not self._ready:
            self._scope.cancel()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until `shut_down` or cancelled; `started` when the broker is unfenced and serves.

        A failure of the environment (a port in use, another node's directory, a failed disk) is
        raised as it is, not in an exception group.
        """
        clean = False
        self._loop = trio.lowlevel.current_trio_token()
        listeners = await self._listen()
        self.logs = logs = self._wiring.log_manager(self._on_directory_failed)
        try:
            await self._load(logs)
            with self._scope:
                async with trio.open_nursery() as nursery:
                    if await self._started(nursery, logs, listeners):
                        self._ready = True
                        task_status.started()
                        await self._shutdown_asked.wait()
                        await self._leave()
                        clean = True
                    nursery.cancel_scope.cancel()
            if clean:
                await self.seams.offload(partial(logs.shutdown, self.lifecycle.broker_epoch))
            if self._failure is not None:
                raise self._failure
            if not self._ready:
                task_status.started()  # and over: it was asked to stop meanwhile
        finally:
            for listener in listeners:
                listener.close()
            self._controllers.close()
            if self._marker_channels is not None:
                self._marker_channels.close()
            logs.close_uncleanly()
            if self._ready:
                self.sink(BrokerStopped(broker=self.broker_id, clean=clean))

    # Starting.

    async def _listen(self) -> list[Listener]:
        """Open the listeners, before the logs are touched: a port may be in use."""
        listeners: list[Listener] = []
        advertised = {each.name: each for each in self.config.advertised_broker_listeners}
        for each in self.config.broker_listeners:
            try:
                listener = await listen(self.seams.transport, each, self.config)
            except (ListenError, ConfigError):
                for taken in listeners:
                    taken.close()
                raise
            listeners.append(listener)
            shown = advertised[each.name]
            self.endpoints.append(Endpoint(each.name, shown.host, shown.port or listener.port))
        self.port = listeners[0].port
        return listeners

    def _on_directory_failed(self, directory: str, error: OSError) -> None:
        """Note a failed directory; the caller is whatever used the disk, perhaps in a worker thread."""
        assert self._loop is not None, "the logs are opened by a broker that runs"
        self._loop.run_sync_soon(self._lose_directory, directory, error)

    def _lose_directory(self, directory: str, error: OSError) -> None:
        self.sink(LogDirectoryFailed(directory=directory, cause=str(error)))
        # Without its metadata, or without any disk, a broker is of no use (KIP-858).
        if self._holds_metadata(directory) or all(
            each.failure is not None for each in self.logs.directories
        ):
            self._fail(KafkaStorageError(f"{directory} is offline: {error}"))
            return
        if self._registered:
            self._report_lost_directories()

    def _holds_metadata(self, directory: str) -> bool:
        if self.controller is not None:
            return directory == self.config.metadata_directory
        metadata_log = self.logs.get(METADATA_PARTITION)
        return metadata_log is not None and metadata_log.failed

    def _report_lost_directories(self) -> None:
        """Take the replicas in lost directories offline, and report the directories to the controller."""
        self.replica_manager.failures.take_failed_offline()
        lost = {each.directory_id for each in self.logs.directories if each.failure is not None}
        for directory in self.lifecycle.log_dirs:
            if directory in lost:
                self.lifecycle.lose_directory(directory)

    async def _load(self, logs: LogManager) -> None:
        await load_logs(
            logs,
            self.seams.offload,
            self.sink,
            threads_per_directory=self.config.num_recovery_threads_per_data_dir,
        )

    async def _started(
        self, nursery: trio.Nursery, logs: LogManager, listeners: list[Listener]
    ) -> bool:
        """Start, and return whether the broker came up; `_failure` says what prevented it."""
        try:
            await self._start(nursery, logs, listeners)
        except (UnderstudyError, StorageError, OSError) as error:
            self._fail(error)
            return False
        return True

    async def _start(
        self, nursery: trio.Nursery, logs: LogManager, listeners: list[Listener]
    ) -> None:
        followed = await self._follow_metadata(nursery, logs)
        self.lifecycle = self._lifecycle(logs)
        await self.lifecycle.register(previous_broker_epoch=logs.previous_broker_epoch)
        epoch = self.lifecycle.broker_epoch
        await followed.wait_for(lambda image: image.offset >= epoch)
        nursery.start_soon(self._end_when_replaced, followed)
        if logs.cluster_id is None:
            cluster_id = await self.lifecycle.find_cluster()
            await self.seams.offload(partial(logs.join_cluster, cluster_id))
        alter_partition = AlterPartitionManager(
            broker_id=self.broker_id,
            broker_epoch=self._broker_epoch,
            channel=self._channel("alter-partition"),
            clock=self.seams.clock,
            timeout_ms=self.config.request_timeout_ms,
        )
        nursery.start_soon(alter_partition.run)
        assignments = Assignments(
            broker_id=self.broker_id,
            broker_epoch=self._broker_epoch,
            channel=self._channel("directory-assignments"),
            clock=self.seams.clock,
            timeout_ms=self.config.request_timeout_ms,
        )
        nursery.start_soon(assignments.run)
        self.replica_manager = self._wiring.replica_manager(
            logs, followed, alter_partition, assignments.assign
        )
        self._registered = True
        self._report_lost_directories()  # since it was registered
        compaction_metrics.register(self.metrics, self.replica_manager.compaction)
        self.groups = self._wiring.groups(self.replica_manager)
        await nursery.start(self.groups.run)
        forwarding = self._channel("forwarding")
        self.transactions = self._wiring.transactions(
            self.metadata,
            self._wiring.marker_writer(self.replica_manager, self.groups),
            self._wiring.producer_ids(forwarding),
        )
        await nursery.start(self.transactions.run)
        questions = self._wiring.questions(self.metadata, self.transactions)
        self._marker_channels = questions.channels
        await nursery.start(self.replica_manager.run)
        quotas = self._wiring.quotas(self.replica_manager)
        nursery.start_soon(self._publish, followed, listeners, quotas)
        await self.metadata.wait_for(lambda image: image.offset >= epoch)
        server = self._wiring.server(
            metadata=self.metadata,
            logs=logs,
            replica_manager=self.replica_manager,
            groups=self.groups,
            transactions=self.transactions,
            questions=questions,
            controller=forwarding,
            request_metrics=self.request_metrics,
            quotas=quotas,
        )
        nursery.start_soon(self._serve, server, listeners)
        for endpoint in self.endpoints:
            self.sink(BrokerStarted(broker=self.broker_id, host=endpoint.host, port=endpoint.port))
        nursery.start_soon(self.lifecycle.run)
        await self.metadata.wait_for(self._is_member)

    async def _end_when_replaced(self, followed: MetadataCache) -> None:
        await followed.wait_for(self.lifecycle.is_replaced_in)
        self._fail(
            BrokerReplacedError(
                f"another process has registered as broker {self.broker_id}, which this one was"
            )
        )

    def _is_member(self, image: MetadataImage) -> bool:
        """Return whether this incarnation, and no earlier one, is unfenced."""
        registration = image.broker(self.broker_id)
        return (
            registration is not None
            and registration.broker_epoch == self.lifecycle.broker_epoch
            and not registration.fenced
        )

    async def _follow_metadata(self, nursery: trio.Nursery, logs: LogManager) -> MetadataCache:
        """Load the local copy of the metadata log, and begin to fetch the rest."""
        if self.controller is not None:
            nursery.start_soon(self._follow_leader, self.controller.node)
            return self.controller.node.cache
        log_config = attrs.evolve(
            METADATA_LOG_CONFIG, segment_index_bytes=self.config.log_index_size_max_bytes
        )
        # In no other directory: a second copy would be in the way when the first is back.
        directory = self.config.metadata_directory
        home = next(
            (each for each in logs.directories if each.path == directory), logs.directories[0]
        )
        log = await self.seams.offload(
            lambda: logs.get_or_create(
                METADATA_PARTITION,
                METADATA_TOPIC_ID,
                log_config,
                is_new=False,
                directory_id=home.directory_id,
            )
        )
        followed = MetadataCache(self.seams.clock)
        due = SnapshotDue(self.config.metadata_log_max_record_bytes_between_snapshots)
        follower = MetadataFollower(
            log=MetadataLog(log, self.seams, due),
            cache=followed,
            sink=self.sink,
            on_failure=self._fail,
        )
        follower.recover()
        nursery.start_soon(follower.take_snapshots)
        fetcher = metadata_fetcher(
            follower,
            config=self.config,
            controllers=self._controllers,
            seams=self._toward_controller,
            metrics=self.metrics,
            on_bug=self.on_bug,
        )
        nursery.start_soon(fetcher.run)
        return followed

    async def _follow_leader(self, node: "RaftNode") -> None:
        """Call the active controller, as the quorum elects one after the other."""
        while True:
            self._controllers.look_again()
            await node.wait_for_change_of_role()

    def _leader_here(self) -> HostPort | None:
        if self.controller is None:
            return None
        leader = self.controller.node.leader_address
        return None if leader is None else HostPort(leader.host, leader.port)

    async def _publish(
        self, followed: MetadataCache, listeners: list[Listener], quotas: ConnectionQuotas
    ) -> None:
        """Apply each image to the replicas and coordinators, and then show it to clients."""
        self.metadata.fetched = followed
        while True:
            known = self.metadata.image
            image = await followed.wait_for_change(known)
            delta = await self._delta(known, image)
            await self.replica_manager.apply_metadata(image, delta)
            if self.broker_id in delta.reconfigured_brokers:
                await self._read_certificates(listeners)
            await self.groups.apply_metadata(image, delta)
            self.transactions.apply_metadata(image, delta)
            quotas.limits_changed()
            self.metadata.publish(image)

    async def _delta(self, known: MetadataImage, image: MetadataImage) -> MetadataDelta:
        """Return the changes in `image`; after many records they are computed in a worker thread."""
        if image.offset - known.offset <= STEP:
            return delta_between(known, image)
        return await self.seams.offload(partial(delta_between, known, image))

    async def _read_certificates(self, listeners: list[Listener]) -> None:
        """Use the certificates of the present configuration for new connections."""
        current = self.replica_manager.config.current
        try:
            found = await self.seams.offload(partial(read_certificates, current))
        except ConfigError as error:
            self.sink(CertificatesRead(broker=self.broker_id, refused=str(error)))
            return
        for listener, endpoint in zip(listeners, self.endpoints, strict=True):
            if isinstance(listener, TlsListener):
                listener.context = found.accepting[endpoint.name]
        connect_under(self._wiring.toward_brokers.transport, found.toward_brokers)
        connect_under(self._toward_controller.transport, found.toward_controller)
        if found != NO_CERTIFICATES:
            self.sink(CertificatesRead(broker=self.broker_id))

    async def _serve(self, server: Server, listeners: list[Listener]) -> None:
        with self._serving:
            async with trio.open_nursery() as nursery:
                for listener, endpoint in zip(listeners, self.endpoints, strict=True):
                    gate = self._wiring.gate(endpoint.name, self.metadata)
                    serve = partial(server.serve, listener, name=endpoint.name, gate=gate)
                    nursery.start_soon(serve)

    # Stopping.

    async def _leave(self) -> None:
        """Move the leaderships away while everything still runs; then stop serving."""
        self.sink(
            ControlledShutdownStarted(
                broker=self.broker_id, broker_epoch=self.lifecycle.broker_epoch
            )
        )
        self.replica_manager.roles.shutting_down = True
        if self.config.controlled_shutdown_enable:
            await self.lifecycle.shut_down(timeout_seconds=self._patience_seconds)
        self._serving.cancel()
        await self.replica_manager.shutdown()

    def _stop_because(self, error: Exception) -> None:
        """Shut down cleanly, because the broker cannot continue."""
        if self._failure is None:
            self._failure = error
        self.shut_down()

    def _fail(self, error: Exception) -> None:
        """End the broker with `error`, unless an earlier failure has ended it."""
        if self._failure is None:
            self._failure = error
        self._scope.cancel()

    # What it is made of.

    def _broker_epoch(self) -> int:
        return self.lifecycle.broker_epoch

    def _channel(self, purpose: str) -> ControllerChannel:
        client_id = f"broker-{self.broker_id}-{purpose}"
        return self._controllers.channel(client_id, self._toward_controller)

    def _lifecycle(self, logs: LogManager) -> BrokerLifecycle:
        online = [each.directory_id for each in logs.directories if each.failure is None]
        return BrokerLifecycle(
            broker_id=self.broker_id,
            cluster_id=logs.cluster_id or "",
            incarnation_id=self.seams.chance.randbytes(16),
            endpoints=self.endpoints,
            rack=self.config.broker_rack,
            log_dirs=[each for each in online if each],
            channel=self._channel("heartbeat"),
            clock=self.seams.clock,
            heartbeat_interval_ms=self.config.broker_heartbeat_interval_ms,
            session_timeout_ms=self.config.broker_session_timeout_ms,
            registration_timeout_ms=self.config.initial_broker_registration_timeout_ms,
            metadata_offset=lambda: self.metadata.image.offset,
            directory_failure_timeout_ms=self.config.log_dir_failure_timeout_ms,
            on_unreported_directory=self._stop_because,
        )
