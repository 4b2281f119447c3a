"""The end of a transaction, written into each of its partitions as a marker (KIP-98).

    coordinator ── WriteTxnMarkers ──> each leader ── a control batch ──> each partition
         ^                                                                    │
         └──────────────── until all have it, by their present leaders ──────────┘

Rule 1: every prepared transaction ends: the marker of a partition whose leader is away, or whose
ISR is too small, is sent again and again. Only a deleted partition is left out.

Rule 2: under version 2 a marker bears the epoch after that of its transaction, and says so. A
late marker, which would end a transaction that has begun since, is refused (KIP-890).

Rule 3: a leader knows the epoch of the coordinator that wrote to it last. A coordinator of an older
epoch is refused, and stops: another one has taken over (TRANSACTION_COORDINATOR_FENCED).

Rule 4: a marker of an earlier epoch than a partition knows of its producer is refused
(INVALID_PRODUCER_EPOCH): what came later is lost from the coordinator's log, by an unclean election.
That transaction stays prepared, and no other one is held up.

(TransactionMarkerChannelManager and KafkaApis.handleWriteTxnMarkersRequest in Kafka.)
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import attrs
import trio

from replication.config import BrokerConfig
from replication.coordinator.rules import GROUP_METADATA_TOPIC
from replication.errors import ErrorCode, KafkaError, PeerUnavailableError
from replication.metadata.cache import MetadataCache
from replication.net.controller_channel import PeerChannel
from replication.net.pace import in_steps
from replication.net.seams import Seams
from replication.replica_manager import ReplicaManager
from replication.steps import Steps
from replication.transactions.rules.transaction import Transaction
from replication.wire.api_versions import EPOCH_BUMPING_VERSION, KAFKA_4_4, METADATA_VERSION
from replication.wire.produce import ACKS_ALL
from replication.wire.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from storage.attributes import define
from storage.batch.records import ControlRecordType, EndTransactionMarker, encode_control_batch
from storage.types import TopicPartition

RETRY_SECONDS: Final = 0.02
_SENT_AGAIN: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


class MarkerRefusedError(Exception):
    """Another coordinator has taken this transaction over."""


class MarkerOutdatedError(Exception):
    """A partition knows a later epoch of this transaction's producer (rule 4)."""


OnGroupOffsets = Callable[[int, Iterable[int], bool], None]
"""Called with a producer's id, the partitions of `__consumer_offsets`, and whether it committed."""


@define(eq=False, kw_only=True)
class MarkerWriter:
    """The leader's side: it writes markers into the partitions of this broker."""

    replica_manager: ReplicaManager
    seams: Seams
    timeout_ms: int
    on_group_offsets: OnGroupOffsets

    async def write(self, marker: WritableTxnMarker) -> Mapping[TopicPartition, ErrorCode]:
        partitions, errors = await in_steps(self._hosted_here(marker))
        if not partitions:
            return errors
        kind = ControlRecordType.COMMIT if marker.transaction_result else ControlRecordType.ABORT
        batch = encode_control_batch(
            EndTransactionMarker(kind, marker.coordinator_epoch),
            timestamp=self.seams.clock.wall_ms(),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
        )
        results = await self.replica_manager.produce.append(
            timeout_ms=self.timeout_ms,
            required_acks=ACKS_ALL,
            entries={each: memoryview(bytearray(batch)) for each in partitions},
            internal_topics_allowed=True,
            from_client=False,
            markers_bump_epoch=marker.transaction_version >= EPOCH_BUMPING_VERSION,
        )
        offsets = [
            each.partition
            for each in partitions
            if each.topic == GROUP_METADATA_TOPIC and results[each].error is ErrorCode.NONE
        ]
        if offsets:
            self.on_group_offsets(marker.producer_id, offsets, marker.transaction_result)
        return errors | {each: results[each].error for each in partitions}

    def _hosted_here(
        self, marker: WritableTxnMarker
    ) -> Steps[tuple[list[TopicPartition], dict[TopicPartition, ErrorCode]]]:
        """Return the partitions that have a replica here, and the errors of the others."""
        led: list[TopicPartition] = []
        errors: dict[TopicPartition, ErrorCode] = {}
        for topic in marker.topics:
            for number in topic.partition_indexes:
                partition = TopicPartition(topic.name, number)
                try:
                    self.replica_manager.hosted.get(partition)
                    led.append(partition)
                except KafkaError as error:
                    errors[partition] = error.code
                yield 1
            yield 1
        return led, errors


@define(eq=False, kw_only=True)
class PeerChannels:
    """Connections to the other brokers of the cluster, one for each address.

    A broker of an older release, such as Apache Kafka's 4.1, is asked which versions it serves.
    """

    client_id: str
    listener: str
    """The listener that brokers use for each other."""
    seams: Seams
    metadata: MetadataCache
    _channels: dict[tuple[str, int, bool], PeerChannel] = attrs.field(factory=dict, init=False)

    def to(self, broker_id: int) -> PeerChannel:
        """Return the channel to a broker; raise PeerUnavailableError where its address is unknown."""
        registration = self.metadata.image.broker(broker_id)
        endpoint = None if registration is None else registration.endpoint(self.listener)
        if registration is None or endpoint is None:
            raise PeerUnavailableError(f"broker {broker_id} cannot be reached")
        is_older = not any(
            each.name == METADATA_VERSION and each.max_supported_version >= KAFKA_4_4
            for each in registration.features
        )
        found = (endpoint.host, endpoint.port, is_older)
        if found not in self._channels:
            self._channels[found] = PeerChannel(
                endpoint.host, endpoint.port, self.client_id, self.seams, asks_versions=is_older
            )
        return self._channels[found]

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()


@define(eq=False, kw_only=True)
class MarkerSender:
    """The coordinator's side: it sends markers to the leaders until every partition has one."""

    broker_id: int
    config: BrokerConfig
    seams: Seams
    metadata: MetadataCache
    writer: MarkerWriter
    channels: PeerChannels

    async def send(self, transaction: Transaction, *, coordinator_epoch: int) -> None:
        """Return when every partition has its marker; raise MarkerRefusedError where another
        coordinator has taken over, and MarkerOutdatedError by rule 4.
        """
        left = set(transaction.partitions)
        refused: dict[TopicPartition, ErrorCode] = {}
        while left:
            by_leader, gone = self._by_leader(left)
            left -= gone
            async with trio.open_nursery() as nursery:
                for leader, partitions in sorted(by_leader.items()):
                    marker = _marker(transaction, partitions, coordinator_epoch)
                    nursery.start_soon(self._send_to, leader, marker, left, refused)
            if refused:
                is_outdated = set(refused.values()) == {ErrorCode.INVALID_PRODUCER_EPOCH}
                kind = MarkerOutdatedError if is_outdated else MarkerRefusedError
                raise kind(", ".join(f"{each}: {why.name}" for each, why in refused.items()))
            if left:
                await self.seams.clock.sleep(RETRY_SECONDS)

    def _by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[int, list[TopicPartition]], set[TopicPartition]]:
        image = self.metadata.image
        led: dict[int, list[TopicPartition]] = {}
        gone: set[TopicPartition] = set()
        for each in sorted(partitions):
            registration = image.partition(each)
            if registration is None:
                gone.add(each)
            elif image.is_alive(registration.leader):
                led.setdefault(registration.leader, []).append(each)
        return led, gone

    async def _send_to(
        self,
        leader: int,
        marker: WritableTxnMarker,
        left: set[TopicPartition],
        refused: dict[TopicPartition, ErrorCode],
    ) -> None:
        for partition, error in (await self._outcomes(leader, marker)).items():
            if error in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT):
                left.discard(partition)
            elif error not in _SENT_AGAIN:
                refused[partition] = error

    async def _outcomes(
        self, leader: int, marker: WritableTxnMarker
    ) -> Mapping[TopicPartition, ErrorCode]:
        if leader == self.broker_id:
            return await self.writer.write(marker)
        request = WriteTxnMarkersRequest(markers=[marker])
        try:
            response: WriteTxnMarkersResponse = await self.channels.to(leader).call(
                request, timeout_ms=self.config.request_timeout_ms
            )
        except PeerUnavailableError:
            return {}
        return {
            TopicPartition(topic.name, each.partition_index): ErrorCode.of(each.error_code)
            for result in response.markers
            for topic in result.topics
            for each in topic.partitions
        }


def _marker(
    transaction: Transaction, partitions: Iterable[TopicPartition], coordinator_epoch: int
) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return WritableTxnMarker(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_result=transaction.commits,
        coordinator_epoch=coordinator_epoch,
        transaction_version=EPOCH_BUMPING_VERSION if transaction.bumps_epoch else 0,
        topics=[
            WritableTxnMarkerTopic(name=topic, partition_indexes=numbers)
            for topic, numbers in topics.items()
        ],
    )
