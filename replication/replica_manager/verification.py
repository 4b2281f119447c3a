"""The question to the coordinator before a batch opens a transaction here (KIP-890).

    transactional batches ─> does each open one? ─ no ──> append
                                  │ yes: a guard
                                  v
                        the coordinator of the id ─ yes ──> append, with the guard
                                  │ no
                                  v    INVALID_TXN_STATE, TRANSACTION_ABORTABLE, or: ask again

The question depends on the producer's version (`Support`): up to Produce 11 the producer adds its
partitions at the coordinator itself, and this broker asks whether it has; from Produce 12 on this
broker adds them.

Rule 1: a partition has one guard, from before the question to the append: an end marker that
comes between removes it (`storage.producers.verification`). If that happens while the
coordinator is asked, it is asked again: its answer was probably about the next transaction.
(Kafka refuses the append then.)

Rule 2: if the coordinator cannot answer now, the producer gets NOT_ENOUGH_REPLICAS: every
producer retries after that, without looking for another leader.

(ReplicaManager.handleProduceAppend, AddPartitionsToTxnManager.TransactionSupportedOperation.)
"""

import enum
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

import trio

from replication.config import DynamicBrokerConfig
from replication.errors import ErrorCode, KafkaError
from replication.net.seams import NodeClock
from replication.replica_manager.hosted import HostedPartitions
from replication.replica_manager.results import ProduceResult
from storage.attributes import define, frozen
from storage.producers.verification import VerificationGuard
from storage.types import NO_LEADER_EPOCH, TopicPartition

_CANNOT_SAY_NOW: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Support(enum.Enum):
    """The part of transactions that a client's request version knows."""

    BASIC = "basic"
    ABORTABLE = "abortable"
    """The client knows TRANSACTION_ABORTABLE (KIP-1050)."""
    ADDS_PARTITIONS = "adds partitions"
    """The client leaves it to the broker to add its partitions."""

    @property
    def bumps_epoch(self) -> bool:
        return self is Support.ADDS_PARTITIONS


def support_of_produce(version: int) -> Support:
    return _support(version, adds=12, abortable=11)


def support_of_offset_commit(version: int) -> Support:
    return _support(version, adds=5, abortable=4)


def _support(version: int, *, adds: int, abortable: int) -> Support:
    if version >= adds:
        return Support.ADDS_PARTITIONS
    return Support.ABORTABLE if version >= abortable else Support.BASIC


class TransactionCoordinators(Protocol):
    async def add_or_verify(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        *,
        partitions: frozenset[TopicPartition],
        verify_only: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Return the coordinator's answer for each partition, or why there is none."""


@frozen(kw_only=True)
class TransactionalBatches:
    """The batches that one producer wants to append: the first sequence for each partition."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    sequences: Mapping[TopicPartition, int]


@frozen
class Verified:
    """The partitions that may not be appended to, and the guards of the others."""

    errors: Mapping[TopicPartition, ErrorCode]
    guards: Mapping[TopicPartition, VerificationGuard]


@define(eq=False, kw_only=True)
class TransactionVerification:
    """Asks coordinators, with settings that may change meanwhile."""

    replicas: HostedPartitions
    config: DynamicBrokerConfig
    clock: NodeClock
    coordinators: TransactionCoordinators

    async def verify(self, batches: TransactionalBatches, support: Support) -> Verified:
        current = self.config.current
        if not support.bumps_epoch and not current.transaction_partition_verification_enable:
            await trio.lowlevel.checkpoint()
            return Verified({}, {})
        if not support.bumps_epoch:
            return await self._ask(batches, support)
        # The producer's last transaction may still be completing: the producer was answered as
        # soon as that could not fail any more.
        patience_ms = min(
            current.add_partitions_to_txn_retry_backoff_max_ms, current.request_timeout_ms
        )
        deadline = self.clock.now() + patience_ms / 1000
        verified = await self._ask(batches, support)
        while ErrorCode.CONCURRENT_TRANSACTIONS in verified.errors.values():
            if self.clock.now() >= deadline:
                break
            await self.clock.sleep(current.add_partitions_to_txn_retry_backoff_ms / 1000)
            verified = await self._ask(batches, support)
        return verified

    async def _ask(self, batches: TransactionalBatches, support: Support) -> Verified:
        verified = await self._ask_once(batches, support)
        while any(
            self._was_taken_away(each, batches.producer_id, guard)
            for each, guard in verified.guards.items()
        ):
            verified = await self._ask_once(batches, support)
        return verified

    def _was_taken_away(
        self, topic_partition: TopicPartition, producer_id: int, guard: VerificationGuard
    ) -> bool:
        try:
            log = self.replicas.get(topic_partition).log
        except KafkaError:
            return False  # the append will fail with the same error
        return not log.producers.is_verifying(producer_id, guard)

    async def _ask_once(self, batches: TransactionalBatches, support: Support) -> Verified:
        errors: dict[TopicPartition, ErrorCode] = {}
        guards: dict[TopicPartition, VerificationGuard] = {}
        for each, sequence in batches.sequences.items():
            try:
                partition = self.replicas.get(each)
                partition.check_access(NO_LEADER_EPOCH, leader_only=True)
                guard = partition.log.producers.begin_verification(
                    batches.producer_id,
                    producer_epoch=batches.producer_epoch,
                    sequence=sequence,
                    bumps_epoch=support.bumps_epoch,
                    now_ms=self.clock.wall_ms(),
                )
            except KafkaError as error:
                errors[each] = error.code
            else:
                if guard is not None:
                    guards[each] = guard
        if not guards:
            await trio.lowlevel.checkpoint()
            return Verified(errors, {})
        answers = await self.coordinators.add_or_verify(
            batches.transactional_id,
            (batches.producer_id, batches.producer_epoch),
            partitions=frozenset(guards),
            verify_only=not support.bumps_epoch,
        )
        refused = {
            each: _as_producers_know_it(answers.get(each, ErrorCode.NETWORK_EXCEPTION), support)
            for each in guards
        }
        errors |= {each: code for each, code in refused.items() if code is not ErrorCode.NONE}
        kept = {each: guard for each, guard in guards.items() if each not in errors}
        return Verified(errors, kept)


def _as_producers_know_it(error: ErrorCode, support: Support) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and support is Support.BASIC:
        return ErrorCode.INVALID_TXN_STATE
    return error


def refusals(
    errors: Mapping[TopicPartition, ErrorCode], support: Support
) -> dict[TopicPartition, ProduceResult]:
    """Return the answers to a producer that may not append."""
    return {each: _refusal(error, support) for each, error in errors.items()}


def _refusal(error: ErrorCode, support: Support) -> ProduceResult:
    busy = error is ErrorCode.CONCURRENT_TRANSACTIONS and not support.bumps_epoch
    if busy or error in _CANNOT_SAY_NOW:
        return ProduceResult(
            error=ErrorCode.NOT_ENOUGH_REPLICAS,
            error_message=f"the transaction could not be verified: {error.name}",
        )
    return ProduceResult(error=error, error_message="the partition is not in the transaction")


def the_one_producer(producers: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the producer id and epoch of all batches; None if there are no batches.

    Raises KafkaError for several: a request belongs to one producer.
    """
    distinct = set(producers)
    if len(distinct) > 1:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "batches of more than one producer")
    return next(iter(distinct), None)
