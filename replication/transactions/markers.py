"""How a transaction ended, written into each partition that it wrote to (KIP-98).

    coordinator ── WriteTxnMarkers ──> each leader ── a control batch ──> each partition
         ^                                                                    │
         └──────────────── until all have it, by their present leaders ──────────┘

Rule 1: what is prepared is done: a partition whose leader is away, or whose ISR is too small,
is asked again and again. Only a partition that is no more is left out.

Rule 2: under version 2 a marker bears the epoch after that of what it ends, and says so. One
that is late, and would end what has begun since, is refused (KIP-890).

Rule 3: a leader knows the epoch of the coordinator that wrote to it last. An older one is
refused, and stops: somebody else goes on with it (TRANSACTION_COORDINATOR_FENCED).

(TransactionMarkerChannelManager and KafkaApis.handleWriteTxnMarkersRequest in Kafka.)
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import attrs
import trio

from replication.config import BrokerConfig
from replication.errors import ErrorCode, KafkaError, PeerUnavailableError
from replication.metadata.cache import MetadataCache
from replication.net.pace import in_steps
from replication.net.seams import Seams
from replication.replica_manager import ReplicaManager
from replication.replica_manager.produce import ACKS_ALL
from replication.steps import Steps
from replication.transactions.peers import PeerChannels
from replication.transactions.rules import EPOCH_BUMPING_VERSION, Transaction
from replication.wire.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from storage.batch.records import ControlRecordType, EndTransactionMarker, encode_control_batch
from storage.types import TopicPartition

GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
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
    """Somebody else coordinates this transaction by now."""


OnGroupOffsets = Callable[[int, Iterable[int], bool], None]
"""Called with a producer's id, the partitions of `__consumer_offsets`, and whether it committed."""


@attrs.define(eq=False, kw_only=True)
class MarkerWriter:
    """The leader's side: markers into the partitions that are here."""

    replica_manager: ReplicaManager
    seams: Seams
    timeout_ms: int
    on_group_offsets: OnGroupOffsets

    async def write(self, marker: WritableTxnMarker) -> Mapping[TopicPartition, ErrorCode]:
        partitions, errors = await in_steps(self._sorted_out(marker))
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

    def _sorted_out(
        self, marker: WritableTxnMarker
    ) -> Steps[tuple[list[TopicPartition], dict[TopicPartition, ErrorCode]]]:
        """Return the partitions that are led from here, and the errors of the others."""
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


@attrs.define(eq=False, kw_only=True)
class MarkerSender:
    """The coordinator's side."""

    broker_id: int
    config: BrokerConfig
    seams: Seams
    metadata: MetadataCache
    writer: MarkerWriter
    channels: PeerChannels

    async def send(self, transaction: Transaction, *, coordinator_epoch: int) -> None:
        """Return when every partition has its marker; MarkerRefusedError where another
        coordinator has taken over.
        """
        left = set(transaction.partitions)
        refused: list[str] = []
        while left:
            by_leader, gone = self._by_leader(left)
            left -= gone
            async with trio.open_nursery() as nursery:
                for leader, partitions in sorted(by_leader.items()):
                    marker = _marker(transaction, partitions, coordinator_epoch)
                    nursery.start_soon(self._send_to, leader, marker, left, refused)
            if refused:
                raise MarkerRefusedError(", ".join(refused))
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
        refused: list[str],
    ) -> None:
        for partition, error in (await self._outcomes(leader, marker)).items():
            if error in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT):
                left.discard(partition)
            elif error not in _SENT_AGAIN:
                refused.append(f"{partition}: {error.name}")

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

    def close(self) -> None:
        self.channels.close()


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
