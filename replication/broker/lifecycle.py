"""A broker's life as the controller sees it (KIP-631, KIP-841).

    STARTING ── registered ──> RECOVERY ── unfenced ──> RUNNING
                                                           │ shut_down
               NOT_RUNNING <── granted, or out of time ── PENDING_CONTROLLED_SHUTDOWN

Rule 1: a registration is one incarnation. Its broker epoch is the offset of the record
that registered it, so every restart has a larger one, and an older self can be refused.

Rule 2: heartbeats continue whatever the controller answers. The next one unfences a fenced broker
that has caught up, and shows a controller that comes back that the broker is still alive.

Rule 3: heartbeats do not wait for the interval if they need not. The first one is sent when the
broker has caught up. During a shutdown they follow each other at once for two intervals, in which
every healthy broker has reported its metadata offset; a shutdown takes longer only if a broker is
not healthy or if no other broker can lead some partition, and then a heartbeat is sent in each
interval. No heartbeat follows the controller's permission to stop: it would unfence this broker
again, and the next broker that shuts down would wait for one that is gone.

Rule 4: the next heartbeat names a log directory that is lost. As long as the controller does not
know of it, this broker remains the leader of the partitions there; so after
`log.dir.failure.timeout.ms` the broker stops (KIP-858).

Rule 5: a broker ends where another process has registered with its id after it, as one may while
this one was frozen: its epoch is stale for good, so nothing that it does counts any more. (Kafka's
goes on, fenced, with heartbeats that are refused.)
"""

import enum
from collections.abc import Callable, Sequence

import attrs
import trio

from replication.errors import ErrorCode, PeerUnavailableError, UnderstudyError
from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.levels import named_features
from replication.net.controller_channel import ControllerCalls
from replication.net.seams import NodeClock
from replication.wire.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from replication.wire.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Endpoint,
)
from replication.wire.describe_cluster import CONTROLLERS, DescribeClusterRequest
from storage.attributes import define
from storage.types import NO_BROKER_EPOCH, Offset

RETRY_SECONDS = 0.1
SHUTDOWN_RETRY_SECONDS = 0.05
HURRIED_INTERVALS = 2  # of heartbeats, at the beginning of a shutdown
CONTROLLER_PATIENCE_SECONDS = 2.0  # of a broker that wants to leave


class BrokerState(enum.Enum):
    """org.apache.kafka.metadata.BrokerState, without the states that do not occur here."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6


class UnreportedDirectoryError(UnderstudyError):
    """The controller did not learn in time that a log directory is lost."""


class RegistrationRefusedError(UnderstudyError):
    """The error for a broker that the controller refuses for good."""


class BrokerReplacedError(UnderstudyError):
    """Another process has registered with the id of this broker, after it."""


@define(eq=False, kw_only=True)
class BrokerLifecycle:
    """Registers one incarnation of a broker and keeps its session alive."""

    broker_id: int
    cluster_id: str
    incarnation_id: bytes
    endpoints: Sequence[Endpoint]
    rack: str | None
    channel: ControllerCalls
    clock: NodeClock
    heartbeat_interval_ms: int
    session_timeout_ms: int
    registration_timeout_ms: int
    metadata_offset: Callable[[], Offset]
    """The offset of the last metadata record applied here."""

    directory_failure_timeout_ms: int
    on_unreported_directory: Callable[[UnreportedDirectoryError], None]
    log_dirs: Sequence[bytes] = ()
    """The ids of the log directories that were online at the start (KIP-858)."""
    offline_log_dirs: dict[bytes, float] = attrs.field(factory=dict, init=False)
    """The log directories that have failed since, and when; every heartbeat names them."""
    _acknowledged: set[bytes] = attrs.field(factory=set, init=False)
    """The failed directories of which the controller knows."""
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    broker_epoch: int = attrs.field(default=NO_BROKER_EPOCH, init=False)
    state: BrokerState = attrs.field(default=BrokerState.STARTING, init=False)
    _unanswered: str = attrs.field(default="", init=False)
    """The reason why the last call had no answer."""
    _answered_at: float = attrs.field(default=0.0, init=False)
    _leaving_since: float = attrs.field(default=0.0, init=False)
    _granted: bool = attrs.field(default=False, init=False)
    _may_stop: trio.Event = attrs.field(factory=trio.Event, init=False)
    _hurry: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def register(self, *, previous_broker_epoch: int) -> None:
        """Send the registration until the controller accepts it.

        Raises:
            RegistrationRefusedError: it refused for good, or did not accept within
                initial.broker.registration.timeout.ms.
            PeerUnavailableError: no controller has answered within that time.
        """
        request = self._registration(previous_broker_epoch)
        refusal: ErrorCode | None = None
        deadline = self.clock.now() + self.registration_timeout_ms / 1000
        while True:
            answer = await self._call(request)
            if answer is not None:
                assert isinstance(answer, BrokerRegistrationResponse), "answers decode as asked"
                if answer.error_code == ErrorCode.NONE:
                    self.broker_epoch = answer.broker_epoch
                    self.state = BrokerState.RECOVERY
                    return
                refusal = ErrorCode.of(answer.error_code)
                self._give_up_where_hopeless(refusal)
            if self.clock.now() + RETRY_SECONDS > deadline:
                raise self._not_registered(refusal)
            await self.clock.sleep(RETRY_SECONDS)

    def _give_up_where_hopeless(self, refusal: ErrorCode) -> None:
        # A broker that was killed is registered until its session expires, so a duplicate
        # is waited out; that another cluster's controller answers is never going to change.
        if refusal == ErrorCode.INCONSISTENT_CLUSTER_ID and not self.cluster_id:
            raise RegistrationRefusedError(
                f"the log directories of broker {self.broker_id} are not formatted, and its controller"
                " registers only brokers of its cluster: run `understudy storage format`"
            )
        if refusal == ErrorCode.INCONSISTENT_CLUSTER_ID:
            raise RegistrationRefusedError(
                f"broker {self.broker_id} is of cluster {self.cluster_id}, its controller of another"
            )

    def _not_registered(self, refusal: ErrorCode | None) -> UnderstudyError:
        patience = (
            f"{self.registration_timeout_ms / 1000:g} s (initial.broker.registration.timeout.ms)"
        )
        if refusal is None:
            return PeerUnavailableError(
                f"broker {self.broker_id} has found no controller for {patience}: {self._unanswered}"
            )
        why = refusal.name
        if refusal == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            why += ", another broker with this id is alive"
        if refusal == ErrorCode.UNSUPPORTED_VERSION:
            why += (
                f", the cluster has a feature at a level that this broker lacks; it has {_levels()}"
            )
        return RegistrationRefusedError(
            f"broker {self.broker_id} was refused for {patience}: {why}"
        )

    async def find_cluster(self) -> str:
        """Return the id of the controller's cluster, which a new broker joins (KIP-919)."""
        while True:
            try:
                answer = await self.channel.call(
                    DescribeClusterRequest(endpoint_type=CONTROLLERS),
                    timeout_ms=self.session_timeout_ms,
                )
            except PeerUnavailableError:
                await self.clock.sleep(RETRY_SECONDS)
                continue
            cluster_id: str = answer.cluster_id
            return cluster_id

    def is_replaced_in(self, image: MetadataImage) -> bool:
        """Return whether another process has registered with this broker's id, after it (rule 5)."""
        newest = image.broker(self.broker_id)
        return (
            newest is not None
            and newest.incarnation_id != self.incarnation_id
            and newest.broker_epoch > self.broker_epoch
        )

    async def run(self) -> None:
        """Send heartbeats until cancelled or shut down; start it once the registration is
        applied here.
        """
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for directory_id in self.offline_log_dirs:
                nursery.start_soon(self._expect_acknowledgement, directory_id)
            try:
                await self._send_heartbeats()
            finally:
                self._nursery = None  # no heartbeat names what is lost from here on

    async def _send_heartbeats(self) -> None:
        while not self._may_stop.is_set():
            sent_at = self.clock.now()
            # Before the call, so that a request for another heartbeat during it counts after it.
            self._hurry = trio.Event()
            heartbeat = self._heartbeat()
            answer = await self._call(heartbeat)
            if answer is not None and answer.error_code == ErrorCode.NONE:
                self._acknowledged.update(heartbeat.offline_log_dirs)
            pause = self._learn(answer)
            with self.clock.move_on_after(sent_at + pause - self.clock.now()):
                await self._hurry.wait()

    def _learn(self, answer: BrokerRegistrationResponse | BrokerHeartbeatResponse | None) -> float:
        """Take in what the controller says; seconds from heartbeat to heartbeat."""
        leaving = self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        if answer is None:
            if leaving and self.clock.now() - self._answered_at > CONTROLLER_PATIENCE_SECONDS:
                self._may_stop.set()
            return RETRY_SECONDS
        assert isinstance(answer, BrokerHeartbeatResponse), "an answer decodes as what was asked"
        self._answered_at = self.clock.now()
        if answer.error_code != ErrorCode.NONE:
            return RETRY_SECONDS
        if leaving:
            if answer.should_shut_down:
                self._granted = True
                self._may_stop.set()
            return self._pause_while_leaving()
        if answer.is_fenced:
            # It knows of metadata that we have yet to apply: tell it as soon as we have.
            self.state = BrokerState.RECOVERY
            return RETRY_SECONDS
        self.state = BrokerState.RUNNING
        return self.heartbeat_interval_ms / 1000

    def _pause_while_leaving(self) -> float:
        interval = self.heartbeat_interval_ms / 1000
        hurried = self.clock.now() - self._leaving_since < HURRIED_INTERVALS * interval
        return SHUTDOWN_RETRY_SECONDS if hurried else interval

    def lose_directory(self, directory_id: bytes) -> None:
        """Report a lost log directory to the controller at once."""
        if directory_id in self.offline_log_dirs:
            return
        self.offline_log_dirs[directory_id] = self.clock.now()
        self._hurry.set()
        if self._nursery is not None:
            self._nursery.start_soon(self._expect_acknowledgement, directory_id)

    async def _expect_acknowledgement(self, directory_id: bytes) -> None:
        """Stop the broker if the controller does not learn of the lost log directory in time.

        (BrokerLifecycleManager.OfflineDirBrokerFailureEvent.)
        """
        deadline = self.offline_log_dirs[directory_id] + self.directory_failure_timeout_ms / 1000
        await self.clock.sleep_until(deadline)
        if directory_id not in self._acknowledged:
            self.on_unreported_directory(
                UnreportedDirectoryError(
                    f"broker {self.broker_id} could not tell its controller of a lost log directory"
                    f" for {self.directory_failure_timeout_ms / 1000:g} s"
                    " (log.dir.failure.timeout.ms)"
                )
            )

    async def shut_down(self, *, timeout_seconds: float) -> bool:
        """Ask the controller to move the leaderships away; return whether it allowed the shutdown.

        A controller that is away cannot take anything over: it is not waited for long.
        """
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self._answered_at = self._leaving_since = self.clock.now()
        self._hurry.set()
        with self.clock.move_on_after(timeout_seconds):
            await self._may_stop.wait()
        self._may_stop.set()
        self.state = BrokerState.NOT_RUNNING
        return self._granted

    async def _call(
        self, request: BrokerRegistrationRequest | BrokerHeartbeatRequest
    ) -> BrokerRegistrationResponse | BrokerHeartbeatResponse | None:
        """Return the controller's answer; None if it is unavailable."""
        try:
            answer: BrokerRegistrationResponse | BrokerHeartbeatResponse = await self.channel.call(
                request, timeout_ms=self.session_timeout_ms
            )
        except PeerUnavailableError as error:
            self._unanswered = str(error)
            return None
        return answer

    def _registration(self, previous_broker_epoch: int) -> BrokerRegistrationRequest:
        return BrokerRegistrationRequest(
            broker_id=self.broker_id,
            cluster_id=self.cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=list(self.endpoints),
            features=named_features(),
            rack=self.rack,
            log_dirs=list(self.log_dirs),
            previous_broker_epoch=previous_broker_epoch,
        )

    def _heartbeat(self) -> BrokerHeartbeatRequest:
        leaving = self.state == BrokerState.PENDING_CONTROLLED_SHUTDOWN
        return BrokerHeartbeatRequest(
            broker_id=self.broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self.metadata_offset(),
            want_shut_down=leaving,
            offline_log_dirs=list(self.offline_log_dirs),
        )


def _levels() -> str:
    return ", ".join(
        f"{each.name} {each.min_supported_version} to {each.max_supported_version}"
        for each in named_features()
    )
