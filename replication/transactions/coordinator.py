"""The coordinator of the transactional ids in the partitions of `__transaction_state` that this
broker leads.

    request ─> serving(id)? ─ no ──> COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR
                   │ yes
                   └> rule ─> the answer, or a transaction that is written first
                                   └ prepared: markers into every partition, then complete

Rule 1: the leader epoch of the partition is also the coordinator epoch of its markers.

Rule 2: a slot has one change at a time, and a change that is being written is completed
whether or not its requester still waits.

Rule 3: a new coordinator completes the transactions that it finds prepared, without a request.

(TransactionCoordinator, TransactionStateManager in Kafka.)
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import attrs
import trio

from replication.config import BrokerConfig
from replication.coordinator.log import is_too_long
from replication.coordinator.rules import TRANSACTION_STATE_TOPIC, KeyAndValue, write_error
from replication.coordinator.shards import LedShards, Shard
from replication.errors import ErrorCode, KafkaError
from replication.events import (
    EventSink,
    TransactionCompleted,
    TransactionPrepared,
    TransactionsLoaded,
    TransactionsUnloaded,
)
from replication.metadata.rules.image import MetadataDelta, MetadataImage
from replication.net.seams import Seams
from replication.replica_manager import ReplicaManager
from replication.transactions.markers import MarkerOutdatedError, MarkerRefusedError, MarkerSender
from replication.transactions.producer_ids import ProducerIds
from replication.transactions.rules.decisions import (
    Fence,
    Slot,
    abort_fenced,
    add_partitions,
    created,
    end,
    has_expired,
    init_producer_id,
    time_out,
    verify_partitions,
)
from replication.transactions.rules.records import TransactionEntry, key_of, read_batch, value_of
from replication.transactions.rules.transaction import ProducerIdentity, Transaction
from storage.attributes import define
from storage.batch.compression import Codec
from storage.batch.record_batch import NO_PRODUCER_ID
from storage.types import TopicPartition

RETRY_SECONDS: Final = 0.1


@define(eq=False)
class TransactionShard(Shard):
    """The transactional ids of one partition of `__transaction_state`."""

    slots: dict[str, Slot] = attrs.field(factory=dict, init=False)

    def load(self, entries: Iterable[TransactionEntry]) -> None:
        """Take the last record of each id, in the order of the log."""
        for name, transaction in entries:
            if transaction is None:
                self.slots.pop(name, None)
            else:
                self.slots[name] = Slot(transaction)


@define(eq=False)
class PendingChange:
    """A change on its way into the log."""

    error: ErrorCode = ErrorCode.NONE
    done: trio.Event = attrs.field(factory=trio.Event)


@define(eq=False, kw_only=True)
class TransactionCoordinator:
    """`run` first, then `apply_metadata` for everything there is."""

    broker_id: int
    config: BrokerConfig
    seams: Seams
    replica_manager: ReplicaManager
    producer_ids: ProducerIds
    broker_epoch: Callable[[], int]
    bumps_epoch: Callable[[], bool]
    """Whether the cluster has transactions of version 2 (KIP-890)."""
    markers: MarkerSender
    sink: EventSink
    on_bug: Callable[[BaseException], None]
    _led: LedShards[TransactionShard] = attrs.field(init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._led = LedShards(
            topic=TRANSACTION_STATE_TOPIC,
            broker_id=self.broker_id,
            replica_manager=self.replica_manager,
            clock=self.seams.clock,
            timeout_ms=self.config.request_timeout_ms,
            codec=Codec.NONE,
            begin=TransactionShard,
            load=self._load,
            ended=self._ended,
            on_bug=self.on_bug,
        )

    # The tasks.

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled; started once metadata may be applied."""
        config = self.config
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = self._led.nursery = nursery
                nursery.start_soon(
                    self._regularly,
                    config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
                    self._abort_timed_out,
                )
                nursery.start_soon(
                    self._regularly,
                    config.transaction_remove_expired_transaction_cleanup_interval_ms,
                    self._remove_expired,
                )
                task_status.started()
        finally:
            self.markers.channels.close()

    @property
    def nursery(self) -> trio.Nursery:
        assert self._nursery is not None, "transactions change while the coordinator runs"
        return self._nursery

    async def _regularly(self, interval_ms: int, look: Callable[[TransactionShard], None]) -> None:
        while True:
            await self.seams.clock.sleep(interval_ms / 1000)
            for _, shard in sorted(self.shards.items()):
                if shard.ready and self._led.is_current(shard):
                    look(shard)
                await trio.lowlevel.checkpoint()

    def _abort_timed_out(self, shard: TransactionShard) -> None:
        for _, slot in sorted(shard.slots.items()):
            if time_out(slot, now_ms=self._now_ms):
                self._in_the_background(shard, slot, self._abort_fenced(slot))

    def _abort_fenced(self, slot: Slot) -> Transaction:
        """Abort for a fenced producer, in the transaction version that the cluster has."""
        return abort_fenced(slot, bumps_epoch=self.bumps_epoch(), now_ms=self._now_ms)

    def _remove_expired(self, shard: TransactionShard) -> None:
        expiration_ms = self.config.transactional_id_expiration_ms
        for name, slot in sorted(shard.slots.items()):
            if has_expired(slot, expiration_ms=expiration_ms, now_ms=self._now_ms):
                slot.pending = slot.current  # at once: a request that comes now is repeated
                self.nursery.start_soon(self._remove, shard, name, slot)

    async def _remove(self, shard: TransactionShard, name: str, slot: Slot) -> None:
        """Remove the id, by a tombstone."""
        submission = shard.log.submit([KeyAndValue(key_of(name), None)])
        await submission.wait()
        slot.pending = None
        if submission.error is ErrorCode.NONE and shard.slots.get(name) is slot:
            del shard.slots[name]

    @property
    def _now_ms(self) -> int:
        return self.seams.clock.wall_ms()

    # The partitions that are led here.

    @property
    def shards(self) -> dict[int, TransactionShard]:
        return self._led.shards

    def apply_metadata(self, image: MetadataImage, _: MetadataDelta) -> None:
        """Begin to coordinate what this broker leads from now on, and end the rest."""
        self._led.apply_metadata(image)

    async def _load(self, shard: TransactionShard) -> None:
        await shard.log.read(
            read_batch,
            shard.load,
            chunk_bytes=self.config.transaction_state_log_load_buffer_size,
            offload=self.seams.offload,
        )
        shard.slots = dict(sorted(shard.slots.items()))
        shard.ready = True
        self.sink(
            TransactionsLoaded(
                partition=shard.partition,
                leader_epoch=shard.leader_epoch,
                transactions=len(shard.slots),
            )
        )
        for slot in shard.slots.values():
            if slot.current.state.is_prepared:
                self.nursery.start_soon(self._complete, shard, slot)

    def _ended(self, shard: TransactionShard, cause: str) -> None:
        self.sink(
            TransactionsUnloaded(
                partition=shard.partition, leader_epoch=shard.leader_epoch, cause=cause
            )
        )

    def serving(self, transactional_id: str) -> TransactionShard:
        """Return the shard of the id; raise KafkaError where it is elsewhere, or not loaded yet."""
        if not transactional_id or is_too_long(transactional_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "the transactional id does not fit into a record"
            )
        return self._led.serving(transactional_id)

    # Requests. Each raises KafkaError where it is refused.

    async def init_producer_id(
        self, transactional_id: str, *, timeout_ms: int, expected: tuple[int, int] | None
    ) -> ProducerIdentity:
        """Return the next epoch of the id, which fences the owner of the last one (KIP-98, 360)."""
        self.serving(transactional_id)
        if not 0 < timeout_ms <= self.config.transaction_max_timeout_ms:
            raise KafkaError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"transaction.max.timeout.ms is {self.config.transaction_max_timeout_ms}",
            )
        slot = self.serving(transactional_id).slots.get(transactional_id)
        needs_one = slot is None or slot.current.is_epoch_exhausted
        spare = await self._producer_id() if needs_one else NO_PRODUCER_ID
        shard = self.serving(transactional_id)  # the controller was asked meanwhile
        slot = shard.slots.get(transactional_id)
        if not needs_one and (slot is None or slot.current.is_epoch_exhausted):
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "it has changed meanwhile")
        if slot is None:
            slot = shard.slots[transactional_id] = Slot(
                created(
                    transactional_id,
                    producer_id=spare,
                    timeout_ms=timeout_ms,
                    now_ms=self._now_ms,
                )
            )
        decision = init_producer_id(
            slot,
            expected=expected,
            timeout_ms=timeout_ms,
            spare_producer_id=spare,
            now_ms=self._now_ms,
        )
        if isinstance(decision, Fence):
            await self._change(shard, slot, self._abort_fenced(slot))
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction is aborted first")
        given = await self._decided(shard, slot, decision)
        return given.producer

    async def _producer_id(self) -> int:
        return await self.producer_ids.allocate(broker_epoch=self.broker_epoch())

    async def add_partitions(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        *,
        partitions: frozenset[TopicPartition],
        bumps_epoch: bool = False,
    ) -> None:
        shard = self.serving(transactional_id)
        slot = shard.slots.get(transactional_id)
        decision = add_partitions(
            slot,
            producer,
            partitions=partitions,
            bumps_epoch=bumps_epoch,
            now_ms=self._now_ms,
        )
        await self._decided(shard, slot, decision)

    async def add_or_verify(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        *,
        partitions: frozenset[TopicPartition],
        verify_only: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Answer a leader that is about to open the transaction in its log (KIP-890)."""
        try:
            if verify_only:
                await trio.lowlevel.checkpoint()
                slot = self.serving(transactional_id).slots.get(transactional_id)
                return verify_partitions(slot, producer, partitions=partitions)
            # Only a producer of transaction version 2 leaves adding to the leaders.
            await self.add_partitions(
                transactional_id, producer, partitions=partitions, bumps_epoch=True
            )
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        return dict.fromkeys(partitions, ErrorCode.NONE)

    async def end(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        *,
        commit: bool,
        bumps_epoch: bool,
    ) -> ProducerIdentity:
        """Return once the end of the transaction is in the log: nothing can change it any more."""
        shard = self.serving(transactional_id)
        slot = shard.slots.get(transactional_id)
        exhausted = (
            slot is not None
            and bumps_epoch
            and not slot.is_busy
            and slot.current.is_epoch_exhausted
        )
        spare = await self._producer_id() if exhausted else NO_PRODUCER_ID
        if exhausted and not self._led.is_current(shard):
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "the leader epoch has ended")
        decision = end(
            slot,
            producer,
            commit=commit,
            bumps_epoch=bumps_epoch,
            spare_producer_id=spare,
            now_ms=self._now_ms,
        )
        ended = await self._decided(shard, slot, decision)
        if ended.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdentity(ended.next_producer_id, 0)
        return ended.producer

    # Changes.

    async def _decided(
        self, shard: TransactionShard, slot: Slot | None, decision: ErrorCode | Transaction
    ) -> Transaction:
        """Write the decision and return the transaction; raise KafkaError where it is an error."""
        if isinstance(decision, Transaction):
            assert slot is not None, "a decision to change is about a slot"
            return await self._change(shard, slot, decision)
        await trio.lowlevel.checkpoint()
        if decision is not ErrorCode.NONE:
            raise KafkaError(decision)
        assert slot is not None, "a missing slot is an error"
        return slot.current

    async def _change(
        self, shard: TransactionShard, slot: Slot, transaction: Transaction
    ) -> Transaction:
        written = self._in_the_background(shard, slot, transaction)
        await written.done.wait()
        if written.error is not ErrorCode.NONE:
            raise KafkaError(written.error, "the transaction could not be written")
        return transaction

    def _in_the_background(
        self, shard: TransactionShard, slot: Slot, transaction: Transaction
    ) -> PendingChange:
        written = PendingChange()
        slot.begin(transaction)
        self.nursery.start_soon(self._write, shard, slot, transaction, written)
        return written

    async def _write(
        self, shard: TransactionShard, slot: Slot, transaction: Transaction, written: PendingChange
    ) -> None:
        record = KeyAndValue(key_of(transaction.transactional_id), value_of(transaction))
        submission = shard.log.submit([record])
        await submission.wait()
        if submission.error is ErrorCode.NONE:
            slot.appended()
            if transaction.state.is_prepared:
                self.sink(
                    TransactionPrepared(
                        transactional_id=transaction.transactional_id,
                        producer_id=transaction.producer_id,
                        producer_epoch=transaction.producer_epoch,
                        commits=transaction.commits,
                        partitions=len(transaction.partitions),
                    )
                )
                self.nursery.start_soon(self._complete, shard, slot)
        else:
            slot.failed()
        written.error = write_error(submission.error)
        written.done.set()

    async def _complete(self, shard: TransactionShard, slot: Slot) -> None:
        """Write every marker and complete the transaction, while this broker leads the partition."""
        transaction = slot.current
        try:
            await self.markers.send(transaction, coordinator_epoch=shard.leader_epoch)
        except MarkerRefusedError as error:
            self._led.end(shard, str(error))
            return
        except MarkerOutdatedError:
            return
        while self._led.is_current(shard):
            written = self._in_the_background(
                shard, slot, transaction.completed(now_ms=self._now_ms)
            )
            await written.done.wait()
            if written.error is ErrorCode.NONE:
                self.sink(
                    TransactionCompleted(
                        transactional_id=transaction.transactional_id,
                        producer_id=transaction.producer_id,
                        producer_epoch=transaction.producer_epoch,
                        commits=transaction.commits,
                    )
                )
                return
            await self.seams.clock.sleep(RETRY_SECONDS)
