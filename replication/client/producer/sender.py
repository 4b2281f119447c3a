"""The task that takes what the accumulator has to the brokers (Sender in Kafka).

    wake: a batch is full, an answer came, metadata changed, a task waits, or time has passed
      │
      v  no producer id yet? it is requested
    drain ─> for each leader that may be sent another: Produce ─┐ the task that reads the
      ^                                                         │ response applies it
      └───────── acked, put back, failed ───────────────────────┘

Rule 1: requests to a broker are sent in the order in which they were drained, over one
connection, which answers in order.

Rule 2: each request ends in an answer for each of its batches. A missing answer counts as
NETWORK_EXCEPTION: the batch may be written or not.

Rule 3: a batch whose leader has changed since it was sent does not wait for its back-off
(KIP-951), which is meant to spare the old leader.
"""

from collections.abc import Callable, Sequence
from typing import Final

import attrs
import trio

from replication.client.cluster_view import Node
from replication.client.errors import UnsupportedVersionError
from replication.client.metadata import Metadata
from replication.client.producer.accumulator import (
    BatchAnswer,
    Drained,
    RecordAccumulator,
    SentBatch,
)
from replication.client.producer.batch import (
    NOBODY,
    Failed,
    ProducerBatch,
    ProducerIdAndEpoch,
    identity_in,
)
from replication.client.producer.config import ProducerConfig
from replication.client.producer.partition_queue import Verdict
from replication.client.requests import PendingResponse, ask
from replication.errors import NO_ANSWER, ErrorCode, KafkaError, PeerUnavailableError
from replication.wire.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from replication.wire.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from replication.wire.schema import MAX_VERSION
from storage.attributes import define
from storage.batch.compression import Codec
from storage.types import TopicPartition

_LAST_WITHOUT_V2: Final = 11  # from 12 on a partition is in the transaction by being written to
NO_TRANSACTION_TIMEOUT_MS: Final = 2**31 - 1
# Errors for which the leader has to be looked up again.
_OF_STALE_METADATA: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


@define(eq=False, kw_only=True)
class Sender:
    """The sender of one producer: start `run` in a nursery; after `failed` nothing is sent."""

    config: ProducerConfig
    accumulator: RecordAccumulator
    metadata: Metadata
    codec: Codec
    transactional_id: str | None = None
    may_add_partitions: Callable[[], bool] = lambda: True
    """Returns whether leaders add partitions to the transaction (KIP-890)."""
    on_failure: Callable[[Exception], None] = lambda _: None
    """Called with the error of a batch that has failed for good."""
    on_room: Callable[[], None]
    """Called when batches may have an outcome, and their room is free."""
    failed: Exception | None = attrs.field(default=None, init=False)
    _wake: trio.Event = attrs.field(factory=trio.Event, init=False)
    _asks_for_id: bool = attrs.field(default=False, init=False)

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled; nothing is sent after that, and no outcome is waited for."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_metadata)
                await self._send(nursery)
        finally:
            # A task that aborts, shielded from this cancellation, would wait for ever.
            if self.failed is None:
                self.fail(PeerUnavailableError("the producer was cancelled, or closed"))

    async def _send(self, nursery: trio.Nursery) -> None:
        while True:
            self._wake = trio.Event()
            next_at = self._send_what_is_ready(nursery)
            if (wait := next_at - self._now()) <= 0:
                await trio.lowlevel.checkpoint()
                continue
            with self.metadata.network.clock.move_on_after(wait):
                await self._wake.wait()

    async def _watch_metadata(self) -> None:
        while True:
            await self.metadata.wait_for_news()
            self.wake()

    def _send_what_is_ready(self, nursery: trio.Nursery) -> float:
        """Send all batches that are ready; return the moment to look again."""
        now, network = self._now(), self.metadata.network
        for batch in self.accumulator.expire(now=now):
            self._report_failure(batch)
        self._ensure_identity(nursery)
        backing_off: list[float] = []

        def may_send_to(node_id: int) -> bool:
            if network.is_backing_off(node_id):
                backing_off.append(now + network.backoff_ms(node_id) / 1000)
                return False
            limit = self.config.max_in_flight_requests_per_connection
            return network.in_flight(node_id) < limit

        drained = self._drain(may_send_to, now)
        for _ in range(1, self.config.max_in_flight_requests_per_connection):
            if drained.next_at > now:
                break
            drained = self._drain(may_send_to, now)
        return min([drained.next_at, *backing_off])

    def _drain(self, may_send_to: Callable[[int], bool], now: float) -> Drained:
        """Send at most one request to each broker."""
        drained = self.accumulator.drain(self._leader, may_send_to, now=now)
        for node_id, batches in drained.requests.items():
            self._produce(self.metadata.view.nodes[node_id], batches)
        if drained.leaderless:
            self.metadata.request_update()
        return drained

    def _now(self) -> float:
        return self.metadata.network.clock.now()

    def _leader(self, partition: TopicPartition) -> int | None:
        node = self.metadata.view.leader(partition).node
        return None if node is None else node.id

    # Requests.

    def _produce(self, node: Node, batches: Sequence[SentBatch]) -> None:
        by_topic: dict[str, list[PartitionProduceData]] = {}
        for batch, _, _ in batches:
            topic, partition = batch.partition
            data = PartitionProduceData(index=partition, records=batch.encoded(self.codec))
            by_topic.setdefault(topic, []).append(data)
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=self.config.required_acks,
            timeout_ms=self.config.request_timeout_ms,
            topic_data=[
                TopicProduceData(name=topic, partition_data=data)
                for topic, data in by_topic.items()
            ],
        )
        max_version = MAX_VERSION if self.may_add_partitions() else _LAST_WITHOUT_V2
        self.metadata.network.send(
            node,
            ask(request, max_version=max_version, answered=request.acks != 0),
            on_done=lambda pending: self._answered(pending, batches),
        )

    # Answers.

    def _answered(self, pending: PendingResponse, batches: Sequence[SentBatch]) -> None:
        answers: dict[TopicPartition, BatchAnswer] = {}
        otherwise = BatchAnswer(
            error=ErrorCode.NETWORK_EXCEPTION, message="the response does not name its partition"
        )
        try:
            response: ProduceResponse | None = pending.result()
        except NO_ANSWER as error:
            otherwise = BatchAnswer(error=ErrorCode.NETWORK_EXCEPTION, message=str(error))
        except UnsupportedVersionError as error:
            otherwise = BatchAnswer(error=error.code, message=error.detail)
        else:
            if response is None:  # acks=0
                otherwise = BatchAnswer()
            else:
                answers = _answers(response)
                self._note_leaders(response)
        for sent in batches:
            self._take_in(sent, answers.get(sent.batch.partition, otherwise))
        self.on_room()
        if self.accumulator.has_waiting or self.accumulator.identity == NOBODY:
            self.wake()

    def _take_in(self, sent: SentBatch, answer: BatchAnswer) -> None:
        now = self._now()
        verdict = self.accumulator.answered(sent, answer, now=now)
        if verdict is Verdict.FAILED:
            self._report_failure(sent.batch)
        if answer.error in _OF_STALE_METADATA:
            if self._leader(sent.batch.partition) in (sent.node, None):
                self.metadata.request_update()
            elif verdict is not Verdict.FAILED:
                sent.batch.not_before = now

    def _report_failure(self, batch: ProducerBatch) -> None:
        assert isinstance(batch.outcome, Failed), "it has just been given up"
        self.on_failure(batch.outcome.error)
        self.on_room()

    def _note_leaders(self, response: ProduceResponse) -> None:
        """Note the leaders that a refusal names (KIP-951)."""
        leaders = {
            TopicPartition(topic.name, each.index): (
                each.current_leader.leader_id,
                each.current_leader.leader_epoch,
            )
            for topic in response.responses
            for each in topic.partition_responses
            if each.current_leader.leader_id >= 0
        }
        if leaders:
            nodes = [
                Node(each.node_id, each.host, each.port, each.rack)
                for each in response.node_endpoints
            ]
            self.metadata.view.update_leaders(leaders, nodes)

    # The producer id.

    def _ensure_identity(self, nursery: trio.Nursery) -> None:
        # A transactional one gets its id from its coordinator.
        idempotent = self.config.enable_idempotence and self.transactional_id is None
        wanted = idempotent and self.accumulator.identity == NOBODY
        if wanted and not self._asks_for_id and self.failed is None:
            self._asks_for_id = True
            nursery.start_soon(self._ask_for_id)

    async def _ask_for_id(self) -> None:
        failures = 0
        while self.failed is None and self.accumulator.identity == NOBODY:
            try:
                self.accumulator.became(await self._new_identity())
            except (*NO_ANSWER, KafkaError) as error:
                if isinstance(error, KafkaError) and not error.code.retriable:
                    self.fail(error)
                failures += 1
                await self.metadata.network.pause(failures)
        self._asks_for_id = False
        self.wake()

    async def _new_identity(self) -> ProducerIdAndEpoch:
        request = InitProducerIdRequest(transaction_timeout_ms=NO_TRANSACTION_TIMEOUT_MS)
        response: InitProducerIdResponse = await self.metadata.ask_any(request)
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode.of(response.error_code), "no producer id")
        return identity_in(response)

    def fail(self, error: Exception) -> None:
        """Fail all batches, and send nothing more."""
        self.failed = error
        self.accumulator.give_up(error)
        self.on_room()


def _answers(response: ProduceResponse) -> dict[TopicPartition, BatchAnswer]:
    return {
        TopicPartition(topic.name, each.index): _answer(each)
        for topic in response.responses
        for each in topic.partition_responses
    }


def _answer(given: PartitionProduceResponse) -> BatchAnswer:
    return BatchAnswer(
        error=ErrorCode.of(given.error_code),
        message=given.error_message or "",
        base_offset=given.base_offset,
        log_append_time_ms=given.log_append_time_ms,
        log_start_offset=given.log_start_offset,
        record_errors={
            each.batch_index: each.batch_index_error_message or "" for each in given.record_errors
        },
    )
