"""AddPartitionsToTxn from a leader to coordinators, before a batch opens a transaction (KIP-890).

    id ─┐
    id ─┤ waiting, by coordinator ──> one AddPartitionsToTxn ──> each question has its answer
    id ─┘                              └ meanwhile the next ones gather

Rule 1: each coordinator gets one request at a time, with all questions that have gathered.

Rule 2: one question for each id waits at a time. A second one of the same epoch replaces the first,
whose producer has probably given up and repeats its request; of two epochs the older one is fenced.

Rule 3: a question is sent in a task of its own, so that a cancelled request does not lose it.

(AddPartitionsToTxnManager in Kafka.)
"""

from collections.abc import Mapping, Sequence

import attrs
import trio

from replication.coordinator.rules import TRANSACTION_STATE_TOPIC, partition_for
from replication.errors import ErrorCode, PeerUnavailableError
from replication.metadata.cache import MetadataCache
from replication.transactions.coordinator import TransactionCoordinator
from replication.transactions.markers import PeerChannels
from replication.wire.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from storage.attributes import define
from storage.types import TopicPartition

Answer = Mapping[TopicPartition, ErrorCode]


@define(eq=False, kw_only=True)
class _Question:
    """A question about one transactional id, and its answer."""

    transactional_id: str
    producer: tuple[int, int]
    partitions: frozenset[TopicPartition]
    verify_only: bool
    answer: Answer | None = None
    answered: trio.Event = attrs.field(factory=trio.Event)

    def finish(self, answer: Answer | ErrorCode) -> None:
        if self.answer is None:
            if isinstance(answer, ErrorCode):
                answer = dict.fromkeys(self.partitions, answer)
            self.answer = answer
            self.answered.set()


@define(eq=False)
class _Line:
    """The questions for one coordinator."""

    waiting: dict[str, _Question] = attrs.field(factory=dict)
    is_asking: bool = False


@define(eq=False, kw_only=True)
class CoordinatorQuestions:
    """The questions of one broker; their tasks run in the nursery of its coordinator `here`."""

    broker_id: int
    metadata: MetadataCache
    here: TransactionCoordinator
    channels: PeerChannels
    timeout_ms: int
    _lines: dict[int, _Line] = attrs.field(factory=dict, init=False)

    async def add_or_verify(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        *,
        partitions: frozenset[TopicPartition],
        verify_only: bool,
    ) -> Answer:
        question = _Question(
            transactional_id=transactional_id,
            producer=producer,
            partitions=partitions,
            verify_only=verify_only,
        )
        coordinator = self._coordinator_of(transactional_id)
        if coordinator is None:
            question.finish(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            self._put(self._lines.setdefault(coordinator, _Line()), coordinator, question)
        await question.answered.wait()
        assert question.answer is not None, "an answered question has its answer"
        return question.answer

    def _coordinator_of(self, transactional_id: str) -> int | None:
        image = self.metadata.image
        topic = image.topics.get(TRANSACTION_STATE_TOPIC)
        if topic is None:
            return None
        number = partition_for(transactional_id, len(topic.partitions))
        leader = topic.partitions[number].leader
        return leader if image.is_alive(leader) else None

    def _put(self, line: _Line, coordinator: int, question: _Question) -> None:
        before = line.waiting.get(question.transactional_id)
        if before is not None:
            older, newer = sorted((before, question), key=lambda each: each.producer[1])
            same = older.producer[1] == newer.producer[1]
            older.finish(ErrorCode.NETWORK_EXCEPTION if same else ErrorCode.INVALID_PRODUCER_EPOCH)
            question = newer
        line.waiting[question.transactional_id] = question
        if not line.is_asking:
            line.is_asking = True
            self.here.nursery.start_soon(self._ask_all, coordinator, line)

    async def _ask_all(self, coordinator: int, line: _Line) -> None:
        try:
            while line.waiting:
                questions = [*line.waiting.values()]
                line.waiting.clear()
                try:
                    await self._ask(coordinator, questions)
                finally:
                    for each in questions:
                        each.finish(ErrorCode.NETWORK_EXCEPTION)
        finally:
            line.is_asking = False

    async def _ask(self, coordinator: int, questions: Sequence[_Question]) -> None:
        if coordinator == self.broker_id:
            for each in questions:
                each.finish(
                    await self.here.add_or_verify(
                        each.transactional_id,
                        each.producer,
                        partitions=each.partitions,
                        verify_only=each.verify_only,
                    )
                )
            return
        request = AddPartitionsToTxnRequest(transactions=[_wire(each) for each in questions])
        try:
            response: AddPartitionsToTxnResponse = await self.channels.to(coordinator).call(
                request, timeout_ms=self.timeout_ms
            )
        except PeerUnavailableError:
            return  # each question is finished with NETWORK_EXCEPTION
        by_id = {each.transactional_id: each for each in questions}
        for result in response.results_by_transaction:
            if (question := by_id.get(result.transactional_id)) is not None:
                question.finish(
                    {
                        TopicPartition(topic.name, each.partition_index): ErrorCode.of(
                            each.partition_error_code
                        )
                        for topic in result.topic_results
                        for each in topic.results_by_partition
                    }
                )


def _wire(question: _Question) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(question.partitions):
        topics.setdefault(topic, []).append(partition)
    return AddPartitionsToTxnTransaction(
        transactional_id=question.transactional_id,
        producer_id=question.producer[0],
        producer_epoch=question.producer[1],
        verify_only=question.verify_only,
        topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=numbers)
            for topic, numbers in topics.items()
        ],
    )
