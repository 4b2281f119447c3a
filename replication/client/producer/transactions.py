"""The transactions of one producer (KIP-98, 360, 447).

    async with producer.transaction():                 begun; left in order: committed,
        await producer.send_soon("t", b"value")        by an exception or cancelled: aborted
        await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())

    READY ─ begin ─> IN_TRANSACTION ─ commit ─> READY
                          │ something failed
                          v
                    ABORTABLE_ERROR ─ abort ─> READY           FATAL_ERROR: another producer
                                                               has the id, nothing works any more

Rule 1: under version 1 a partition's first batch waits until the coordinator has added the
partition to the transaction. Partitions that come meanwhile are added together. Under version 2
(KIP-890) the partition's leader does that, and for offsets the group's coordinator.

Rule 2: a commit waits for all that was sent; if any of it failed there is no commit, only an
abort. What was not sent by then is never sent.

Rule 3: after an abort that left sequences open (records may or may not be written), the
coordinator gives the next epoch, so that a batch still on its way can do no harm. Under version 2
each end gives the next epoch, and sequences begin anew.

Rule 4: the version is that of the cluster (`transaction.version`). It changes between two
transactions: to 2 under an epoch in which nothing was sent.

(TransactionManager in Kafka.)
"""

import enum
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import attrs
import trio

from replication.client.coordinators import Coordinators
from replication.client.errors import (
    IllegalStateError,
    ProducerFencedError,
    TransactionAbortedError,
)
from replication.client.offsets import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    topics_to_commit,
)
from replication.client.producer.accumulator import RecordAccumulator
from replication.client.producer.batch import identity_in
from replication.client.producer.config import ProducerConfig
from replication.client.requests import nested
from replication.errors import ErrorCode, KafkaError
from replication.wire.add_offsets_to_txn import AddOffsetsToTxnRequest
from replication.wire.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from replication.wire.api_versions import EPOCH_BUMPING_VERSION, TRANSACTION_VERSION
from replication.wire.end_txn import EndTxnRequest
from replication.wire.find_coordinator import GROUP, TRANSACTION
from replication.wire.init_producer_id import InitProducerIdRequest
from replication.wire.schema import MAX_VERSION
from replication.wire.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from storage.attributes import define
from storage.types import TopicPartition

# From version 4 on, brokers are the ones that send it.
_LAST_ADD_PARTITIONS: Final = 3
_LAST_END_WITHOUT_BUMP: Final = 4
_LAST_OFFSETS_WITHOUT_V2: Final = 4
_COORDINATOR_MOVED: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
)
_FENCED: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
_FATAL: Final = _FENCED | {
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_TXN_STATE,
}
# A leader only knows that the batch comes too late; the coordinator says whether the producer may
# go on, when it is asked to abort.
_ABORTABLE_OF_BATCHES: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE}
)


class TransactionPhase(enum.Enum):
    """The states of the picture above."""

    UNINITIALIZED = "uninitialized"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    ENDING = "ending a transaction"
    ABORTABLE_ERROR = "in a transaction that can only be aborted"
    FATAL_ERROR = "of no more use"


def worst(codes: Mapping[TopicPartition, int], *, of: Iterable[TopicPartition]) -> int:
    """Return the error that best says why not all is done, NONE if all is.

    A partition that the response leaves out may be done or not. One that was not attempted
    because others failed is not the reason.
    """
    all_codes = [codes.get(each, ErrorCode.NETWORK_EXCEPTION) for each in of]
    wrong = [code for code in all_codes if code != ErrorCode.NONE]
    reasons = [code for code in wrong if code != ErrorCode.OPERATION_NOT_ATTEMPTED]
    final = [code for code in reasons if not ErrorCode.of(code).retriable]
    return next(iter(final or reasons or wrong), ErrorCode.NONE)


@define(eq=False, kw_only=True)
class Transactions:
    """The transactions of one producer, one after the other."""

    transactional_id: str
    config: ProducerConfig
    accumulator: RecordAccumulator
    coordinators: Coordinators
    wake: Callable[[], None]
    """Wakes the sender, when it may send more."""
    flush: Callable[[], Awaitable[None]]
    feature: Callable[[str], int]
    """Returns the level of a feature of the cluster."""
    bumps_epoch: bool = attrs.field(default=False, init=False)
    """Whether the producer uses version 2."""
    state: TransactionPhase = attrs.field(default=TransactionPhase.UNINITIALIZED, init=False)
    error: Exception | None = attrs.field(default=None, init=False)
    """The reason why only an abort is left, or nothing at all."""
    _added: set[TopicPartition] = attrs.field(factory=set, init=False)
    _wanted: dict[TopicPartition, None] = attrs.field(factory=dict, init=False)
    _has_offsets: bool = attrs.field(default=False, init=False)
    _work: trio.Event = attrs.field(factory=trio.Event, init=False)

    # For the sender.

    def may_send(self, partition: TopicPartition) -> bool:
        if partition in self._added:
            return True
        if self.state not in (
            TransactionPhase.IN_TRANSACTION,
            TransactionPhase.ENDING,
        ):
            return False
        if self.bumps_epoch:
            self._added.add(partition)
            return True
        self._wanted[partition] = None
        self._work.set()
        return False

    def batch_failed(self, error: Exception) -> None:
        """Note the error of a batch that was sent, and may or may not be written."""
        code = error.code if isinstance(error, KafkaError) else None
        if code in _FATAL and code not in _ABORTABLE_OF_BATCHES:
            self._fail(error)
        elif self.state in (TransactionPhase.IN_TRANSACTION, TransactionPhase.ENDING):
            self.state, self.error = TransactionPhase.ABORTABLE_ERROR, error

    async def run(self) -> None:
        """Add partitions as they are wanted, until cancelled."""
        while True:
            await self._work.wait()
            self._work = trio.Event()
            while self._wanted:
                await self._add_wanted()

    async def _add_wanted(self) -> None:
        partitions = [*self._wanted]
        try:
            await self.coordinators.keep_asking(lambda: self._add(partitions))
        except KafkaError as error:
            self._wanted.clear()
            self.batch_failed(error)
            self.accumulator.give_up_unsent(error)
        else:
            for each in partitions:
                self._wanted.pop(each, None)
            self._added.update(partitions)
        self.wake()

    async def _add(self, partitions: Iterable[TopicPartition]) -> None:
        producer_id, producer_epoch = self.accumulator.identity
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=producer_epoch,
            v3_and_below_topics=nested(partitions, AddPartitionsToTxnTopic),
        )
        response = await self.coordinators.ask(
            TRANSACTION, self.transactional_id, request, max_version=_LAST_ADD_PARTITIONS
        )
        codes = {
            TopicPartition(topic.name, each.partition_index): each.partition_error_code
            for topic in response.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        }
        self._check(TRANSACTION, self.transactional_id, worst(codes, of=partitions))

    # For programs.

    async def init(self) -> None:
        """Take the id over: its last producer is fenced, and its transaction aborted."""
        self._expect(TransactionPhase.UNINITIALIZED)
        await self.coordinators.keep_asking(self._init)
        self.bumps_epoch = self._cluster_bumps_epoch
        self.state = TransactionPhase.READY

    @property
    def _cluster_bumps_epoch(self) -> bool:
        return self.feature(TRANSACTION_VERSION) >= EPOCH_BUMPING_VERSION

    async def _init(self) -> None:
        current = self.accumulator.identity
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.config.transaction_timeout_ms,
            producer_id=current.producer_id,
            producer_epoch=current.producer_epoch,
        )
        response = await self.coordinators.ask(TRANSACTION, self.transactional_id, request)
        self._check(TRANSACTION, self.transactional_id, response.error_code)
        self.accumulator.became(identity_in(response))

    def begin(self) -> None:
        self._expect(TransactionPhase.READY)
        self.state, self.error = TransactionPhase.IN_TRANSACTION, None

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        self._expect(TransactionPhase.IN_TRANSACTION)
        if not offsets:
            await trio.lowlevel.checkpoint()
            return
        try:
            if not self.bumps_epoch:
                await self.coordinators.keep_asking(lambda: self._add_offsets(group))
            self._has_offsets = True
            await self.coordinators.keep_asking(lambda: self._commit_offsets(offsets, group))
        except KafkaError as error:
            self.batch_failed(error)
            raise

    async def _add_offsets(self, group: ConsumerGroupMetadata) -> None:
        producer_id, producer_epoch = self.accumulator.identity
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            group_id=group.group_id,
        )
        response = await self.coordinators.ask(TRANSACTION, self.transactional_id, request)
        self._check(TRANSACTION, self.transactional_id, response.error_code)

    async def _commit_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        producer_id, producer_epoch = self.accumulator.identity
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=topics_to_commit(
                offsets, TxnOffsetCommitRequestTopic, TxnOffsetCommitRequestPartition
            ),
        )
        max_version = MAX_VERSION if self.bumps_epoch else _LAST_OFFSETS_WITHOUT_V2
        response = await self.coordinators.ask(
            GROUP, group.group_id, request, max_version=max_version
        )
        codes = {
            TopicPartition(topic.name, each.partition_index): each.error_code
            for topic in response.topics
            for each in topic.partitions
        }
        self._check(GROUP, group.group_id, worst(codes, of=offsets))

    async def commit(self) -> None:
        """Commit all that was sent, as a whole; after an error the transaction must be aborted."""
        if self.state is TransactionPhase.ABORTABLE_ERROR:
            raise TransactionAbortedError(str(self.error)) from self.error
        self._expect(TransactionPhase.IN_TRANSACTION)
        await self.flush()
        if self.error is not None:
            raise TransactionAbortedError(str(self.error)) from self.error
        self.state = TransactionPhase.ENDING
        try:
            await self._end(commit=True)
            await self._change_version()
        except TransactionAbortedError as error:
            self.state, self.error = TransactionPhase.ABORTABLE_ERROR, error
            raise
        except BaseException:
            # It may be committed or not; the only way on is to commit again.
            if self.state is TransactionPhase.ENDING:
                self.state = TransactionPhase.IN_TRANSACTION
            raise
        self._ended()

    async def abort(self) -> None:
        """Abort: readers of committed records see nothing of it."""
        if self.state is not TransactionPhase.ABORTABLE_ERROR:
            self._expect(TransactionPhase.IN_TRANSACTION)
        self.state = TransactionPhase.ENDING
        self._wanted.clear()
        self.accumulator.give_up_unsent(TransactionAbortedError("the transaction was aborted"))
        try:
            await self.flush()
            has_next_epoch = await self._end(commit=False)
            needs_one = self.accumulator.needs_new_epoch or self.error is not None
            if needs_one and not has_next_epoch:
                await self.coordinators.keep_asking(self._init)
            await self._change_version()
        except BaseException:
            # The abort is not confirmed: nothing else can be done with it yet.
            if self.state is TransactionPhase.ENDING:
                self.state = TransactionPhase.ABORTABLE_ERROR
                self.error = self.error or IllegalStateError("its abort was not answered")
            raise
        self._ended()

    async def _end(self, *, commit: bool) -> bool:
        """End the transaction; return whether that gave the next epoch."""
        if not self._added and not self._has_offsets:
            return False
        await self.coordinators.keep_asking(lambda: self._ask_to_end(commit=commit))
        self._added.clear()
        self._has_offsets = False
        return self.bumps_epoch

    async def _change_version(self) -> None:
        """Follow the cluster's version, between two transactions."""
        if self._cluster_bumps_epoch and not self.bumps_epoch:
            await self.coordinators.keep_asking(self._init)
        self.bumps_epoch = self._cluster_bumps_epoch

    async def _ask_to_end(self, *, commit: bool) -> None:
        producer_id, producer_epoch = self.accumulator.identity
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=commit,
        )
        max_version = MAX_VERSION if self.bumps_epoch else _LAST_END_WITHOUT_BUMP
        response = await self.coordinators.ask(
            TRANSACTION, self.transactional_id, request, max_version=max_version
        )
        self._check(TRANSACTION, self.transactional_id, response.error_code)
        if self.bumps_epoch:
            self.accumulator.became(identity_in(response))

    def _ended(self) -> None:
        self._added.clear()
        self._wanted.clear()
        self._has_offsets = False
        if self.state is TransactionPhase.ENDING:
            self.state, self.error = TransactionPhase.READY, None

    def check_may_send(self) -> None:
        """Raise unless records may be sent: inside a transaction that has not failed."""
        if self.state is TransactionPhase.ABORTABLE_ERROR:
            raise TransactionAbortedError(str(self.error)) from self.error
        self._expect(TransactionPhase.IN_TRANSACTION)

    def _expect(self, state: TransactionPhase) -> None:
        if self.state is TransactionPhase.FATAL_ERROR:
            assert self.error is not None, "what is fatal has a reason"
            raise self.error
        if self.state is not state:
            raise IllegalStateError(
                f"the producer of {self.transactional_id} is {self.state.value}, not {state.value}"
            )

    def _check(self, kind: int, key: str, code: int) -> None:
        """Raise the error of a response; forget a coordinator that has moved."""
        error = ErrorCode.of(code)
        if error is ErrorCode.NONE:
            return
        if error in _COORDINATOR_MOVED:
            self.coordinators.forget(kind, key)
        if error is ErrorCode.TRANSACTION_ABORTABLE:
            raise TransactionAbortedError(self.transactional_id)
        if kind == GROUP and error in _ABORTABLE_OF_BATCHES:
            raise KafkaError(error, self.transactional_id)
        if error in _FENCED:
            fenced = ProducerFencedError(self.transactional_id)
            self._fail(fenced)
            raise fenced
        failure = KafkaError(error, self.transactional_id)
        if error in _FATAL:
            self._fail(failure)
        raise failure

    def _fail(self, error: Exception) -> None:
        self.state, self.error = TransactionPhase.FATAL_ERROR, error
