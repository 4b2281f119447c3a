"""Checks of our clients: retries, commits, and the records that a consumer returns."""

from tests.mutants.mutant import Edit, Mutant

ACCUMULATOR = "replication.client.producer.accumulator"
QUEUE = "replication.client.producer.partition_queue"
TRANSACTIONS = "replication.client.producer.transactions"
COLLECTOR = "replication.client.consumer.fetch_collector"
COMPLETED = "replication.client.consumer.completed_fetch"
COMMITS = "replication.client.consumer.group.commits"
COORDINATOR = "replication.client.consumer.group.coordinator"
POLL_LOOP = "replication.client.consumer.poll_loop"

MUTANTS = (
    # Producers.
    Mutant(
        "a batch keeps the sequence that it was first sent under",
        (
            Edit(
                QUEUE,
                "        if identity is not None and not batch.has_sequence:\n",
                "        if identity is not None:\n",
            ),
        ),
        without_it="its broker takes a retry for another batch, and has it twice",
        source="KIP-98",
    ),
    Mutant(
        "retries are sent in order",
        (
            Edit(
                QUEUE,
                "            return first if first in self.waiting else None\n",
                "            return batch\n",
            ),
        ),
        without_it="a batch overtakes one that is retried",
        source="RecordAccumulator.shouldStopDrainBatchesForPartition",
        covered="its broker refuses a sequence out of order, and it is sent once more",
    ),
    Mutant(
        "nothing is sent behind a batch of unknown outcome",
        (
            Edit(
                QUEUE,
                "        if self.unresolved is not None or self.gap is not None:\n"
                "            return None\n",
                "",
            ),
        ),
        without_it="batches behind one that was given up are refused, and numbered anew",
        source="TransactionManager.hasUnresolvedSequences",
        covered="its sequence is the next one: a broker without the batch that was given up refuses it",
    ),
    Mutant(
        "sequences restart under the next producer epoch",
        (
            Edit(
                ACCUMULATOR,
                "        self.identity = ProducerIdAndEpoch(producer_id, epoch + 1)\n",
                "        self.identity = ProducerIdAndEpoch(producer_id, epoch)\n",
            ),
        ),
        without_it="a new record counts as the old one of its number: S89",
        source="KIP-360",
    ),
    Mutant(
        "a commit waits for all batches",
        (
            Edit(
                TRANSACTIONS,
                "        self._expect(TransactionPhase.IN_TRANSACTION)\n        await self.flush()\n",
                "        self._expect(TransactionPhase.IN_TRANSACTION)\n",
            ),
        ),
        without_it="a part of the transaction comes after its end",
        source="KIP-98, KafkaProducer.commitTransaction",
    ),
    Mutant(
        "a transaction with a failure is not committed",
        (
            Edit(
                TRANSACTIONS,
                "        elif self.state in (TransactionPhase.IN_TRANSACTION, TransactionPhase.ENDING):\n"
                "            self.state, self.error = TransactionPhase.ABORTABLE_ERROR, error\n",
                "        else:\n            pass\n",
            ),
        ),
        without_it="offsets are committed for records whose copies are missing",
        source="TransactionManager.transitionToAbortableError",
        caught_by="tests/replication/client/producer/test_transactions.py"
        "::test_a_failed_transaction_cannot_be_committed",
    ),
    Mutant(
        "a transaction's offsets name the member and its generation",
        (
            Edit(TRANSACTIONS, "            generation_id=group.generation_id,\n", ""),
            Edit(TRANSACTIONS, "            member_id=group.member_id,\n", ""),
        ),
        without_it="a member that was replaced meanwhile commits, and its copies are there twice",
        source="KIP-447",
    ),
    Mutant(
        "a fenced producer sends no more",
        (
            Edit(
                TRANSACTIONS,
                "        if error in _FENCED:\n"
                "            fenced = ProducerFencedError(self.transactional_id)\n"
                "            self._fail(fenced)\n"
                "            raise fenced\n",
                "",
            ),
        ),
        without_it="a zombie goes on",
        source="KIP-98, ProducerFencedException",
        covered="the coordinator or leader that fenced it refuses its next request too",
    ),
    # Consumers.
    Mutant(
        "records fetched for another position are not returned",
        (
            Edit(
                COLLECTOR,
                "        if not current or position is None or fetch.next_fetch_offset != position.offset:\n",
                "        if not current or position is None:\n",
            ),
            Edit(
                COLLECTOR,
                "        tp, data = fetch.partition, fetch.data\n"
                "        position = self.subscriptions.valid_position(tp)\n"
                "        if position is None or position.offset != fetch.fetch_offset:\n",
                "        tp, data = fetch.partition, fetch.data\n"
                "        position = self.subscriptions.valid_position(tp)\n"
                "        if position is None:\n",
            ),
        ),
        without_it="after a seek, or another assignment, a poll returns other records than it should",
        source="FetchCollector.fetchRecords",
        caught_by="tests/replication/client/consumer/test_buffered.py"
        "::test_records_fetched_for_another_position_are_dropped",
    ),
    Mutant(
        "records of aborted transactions are not returned",
        (
            Edit(
                COMPLETED,
                "        return header.is_transactional and header.producer_id in self._in_abort\n",
                "        return False\n",
            ),
        ),
        without_it="a consumer of committed records reads aborted ones",
        source="KIP-98, CompletedFetch.isBatchAborted",
    ),
    Mutant(
        "an abort ends with its marker",
        (
            Edit(
                COMPLETED,
                "                self._in_abort.discard(header.producer_id)\n",
                "                pass\n",
            ),
        ),
        without_it="the producer's next records are skipped",
        source="CompletedFetch.nextFetchedRecord",
    ),
    Mutant(
        "committed offsets are unknown while a transaction may move them",
        (Edit(COMMITS, "require_stable=True)\n", "require_stable=False)\n"),),
        without_it="the next owner begins before the offset that its predecessor is about to commit",
        source="KIP-447",
    ),
    Mutant(
        "a member commits in its generation",
        (
            Edit(
                COMMITS,
                "            if not member.may_commit:\n"
                "                raise self._not_in_group()\n",
                "",
            ),
        ),
        without_it="a member commits while the group rebalances",
        source="ConsumerCoordinator.sendOffsetCommitRequest",
        covered="its coordinator knows the generation, and refuses the commit",
    ),
    Mutant(
        "positions are used for their own assignment only",
        (
            Edit(
                COORDINATOR,
                "                if assignment == self.subscriptions.assignment_id:\n"
                "                    self._begin_at(found)\n",
                "                self._begin_at(found)\n",
            ),
        ),
        without_it="a member begins at an offset from before another member had its partition",
        source="ConsumerCoordinator.initWithCommittedOffsetsIfNeeded",
        covered="the response comes on the connection that brings the next assignment, and before it",
    ),
    Mutant(
        "positions are validated after a change of leader",
        (Edit(POLL_LOOP, "        self.fetcher.requests.validate_positions()\n", ""),),
        without_it="a consumer reads on behind a truncation: S29",
        source="KIP-320",
    ),
)
