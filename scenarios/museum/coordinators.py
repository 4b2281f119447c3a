"""Exhibits: coordinators, their markers, and transactions."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs

from replication.config import BrokerConfig
from replication.controller import controller, directory
from replication.controller.rules.features import first_levels
from replication.coordinator.log import CoordinatorLog
from replication.coordinator.rules import KeyAndValue
from replication.errors import ErrorCode
from replication.replica_manager import ProduceResult
from replication.wire.api_versions import TRANSACTION_VERSION
from replication.wire.metadata_records import FeatureLevelRecord
from scenarios.museum.exhibit import Exhibit, Replacing
from storage.batch.record_batch import NO_TIMESTAMP, BatchHeader
from storage.errors import InvalidProducerEpochError
from storage.producers import state as producer_state
from storage.producers.snapshot import ProducerState
from storage.producers.state import ProducerStateManager
from storage.producers.verification import TransactionTerms
from storage.types import NO_OFFSET

_LOOK_SECONDS: Final = 0.01


def transactions_have_version_1(replacing: Replacing) -> None:
    """Let a new cluster have transactions of version 1, which keep one epoch for all."""

    def levels(config: BrokerConfig) -> Iterator[FeatureLevelRecord]:
        for record in first_levels(config):
            is_it = record.name == TRANSACTION_VERSION
            yield attrs.evolve(record, feature_level=1) if is_it else record

    replacing.setattr(controller, "first_levels", levels)
    replacing.setattr(directory, "first_levels", levels)


def a_marker_is_written_once(replacing: Replacing) -> None:
    """Let a leader refuse each marker of version 2 whose epoch is not above the last one."""
    honest = producer_state.check_epoch

    def check_epoch(state: ProducerState, header: BatchHeader, terms: TransactionTerms) -> None:
        is_marker = header.is_control and terms.marker_bumps_epoch
        if is_marker and header.producer_epoch <= state.producer_epoch:
            raise InvalidProducerEpochError(f"epoch {header.producer_epoch} is there already")
        honest(state, header, terms)

    replacing.setattr(producer_state, "check_epoch", check_epoch)


def a_marker_is_no_sign_of_life(replacing: Replacing) -> None:
    """Let a log forget a producer by the time of its last record, and not of its last marker."""
    honest = ProducerStateManager._end_transaction

    def end_transaction(self: ProducerStateManager, header: BatchHeader, marker: Any) -> Any:
        known = self.producers.get(header.producer_id)
        last_timestamp = NO_TIMESTAMP if known is None else known.last_timestamp
        completed = honest(self, header, marker)
        self.producers[header.producer_id].last_timestamp = last_timestamp
        return completed

    replacing.setattr(ProducerStateManager, "_end_transaction", end_transaction)


def a_high_watermark_commits_whatever_stands_there(replacing: Replacing) -> None:
    """Let a coordinator that leads no more wait for the high watermark to pass its records."""
    honest = CoordinatorLog._append

    async def append(
        self: CoordinatorLog, records: Sequence[KeyAndValue], producer: Any, guard: Any
    ) -> ProduceResult:
        result = await honest(self, records, producer, guard)
        deposed = result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not deposed or result.base_offset == NO_OFFSET:
            return result
        log = self.replica_manager.hosted.get(self.partition).log
        end = result.base_offset + len(records)
        with self.clock.move_on_after(self.timeout_ms / 1000):
            while log.high_watermark < end:
                await self.clock.sleep(_LOOK_SECONDS)
        if log.high_watermark < end:
            return result
        return ProduceResult(base_offset=result.base_offset)

    replacing.setattr(CoordinatorLog, "_append", append)


EXHIBITS = (
    Exhibit(
        name="KAFKA-9144",
        title="A leader forgets which coordinator was the last",
        year=2020,
        versions="up to 2.4.0; fixed in 2.4.1 and 2.5.0",
        happened=(
            "A partition keeps the epoch of the last coordinator with what it knows of a producer,"
            " and forgets a producer that has been silent for long."
            " Only its records counted for that, not the markers of its coordinator."
            " If a transaction was open for long, its producer was forgotten soon after the marker,"
            " and the coordinator epoch with it: a marker of an earlier coordinator was accepted."
            " Replicas that recovered such a log then failed, since they compared the epochs again."
        ),
        missing="A marker keeps its producer alive, as a record does.",
        fixed=(
            "KAFKA-9144 takes the time of a marker too;"
            " replicas and recovery compare coordinator epochs no more."
        ),
        story="a-marker-of-a-coordinator-that-was-replaced",
        damage="producer 0 in epoch 0 has a marker of coordinator epoch 1 after one of 2",
        switch=a_marker_is_no_sign_of_life,
    ),
    Exhibit(
        name="torn-transactions",
        also=("KIP-890",),
        title="A late commit commits a part of the next transaction",
        year=2024,
        versions="with transactions of version 0 or 1, the only ones before 4.0",
        happened=(
            "Jepsen reported it in November 2024, with its test of Bufstream, for Kafka as well."
            " Requests of one producer travel over several connections, and are sent again."
            " A commit that is delayed may arrive in the middle of the next transaction, and names"
            " the same producer epoch: so it commits what is there so far."
            " An aborted transaction is read in part, and a committed one may be lost in part."
        ),
        missing="Each transaction has an epoch of its own, so that a late message is known as such.",
        fixed=(
            "Transactions of version 2 (KIP-890, Kafka 4.0) move to the next epoch at each end."
            " Clients and clusters of version 1 have the bug still."
        ),
        story="a-commit-that-comes-a-transaction-late",
        damage="intermediate read: r1 has read six of x1's T4, which was never asked to commit",
        switch=transactions_have_version_1,
    ),
    Exhibit(
        name="KAFKA-19999",
        title="A transaction that is never completed",
        year=2025,
        versions="trunk after KAFKA-19446, November and December 2025",
        happened=(
            "To fence late markers of version 2, a leader accepted only a marker with a higher"
            " epoch than the last one. A marker that had been written, but whose answer was lost,"
            " was sent again with the same epoch, and refused; so was one that a new coordinator"
            " sent for a transaction that it found prepared."
            " The transaction was prepared for ever, and its producer could only wait"
            " (CONCURRENT_TRANSACTIONS)."
        ),
        missing="A marker of the same epoch, with no transaction open, is there already: a success.",
        fixed="KAFKA-19999 recognises such a marker, and answers without an error.",
        story="a-marker-that-is-sent-again",
        damage="not within 60 s: the transaction has ended",
        switch=a_marker_is_written_once,
    ),
    Exhibit(
        name="KAFKA-20634",
        title="A commit is acknowledged that was truncated",
        year=2026,
        versions="with the group coordinator of KIP-848, up to the fix of June 2026",
        happened=(
            "A group coordinator answers a commit when the high watermark of its partition has"
            " passed the record. When its broker became a follower, its log was truncated and"
            " copied from the new leader, and the high watermark moved on over other records."
            " The coordinator was still loaded for a moment, and took that for its own:"
            " it answered commits that nobody had any more. Or it failed, with an error about"
            " an offset beyond those that it knew."
        ),
        missing="A high watermark counts for a coordinator only while its broker leads.",
        fixed="KAFKA-20634 passes the high watermark on only where the partition leads.",
        story="a-commit-that-was-truncated",
        damage="+g t-0 5: committed",
        switch=a_high_watermark_commits_whatever_stands_there,
    ),
)
