"""Checks of producers and their transactions: what a log knows of them, what a coordinator decides."""

from tests.mutants.mutant import Edit, Mutant

STATE = "storage.producers.state"
SNAPSHOT = "storage.producers.snapshot"
DECISIONS = "replication.transactions.rules.decisions"
TRANSACTION = "replication.transactions.rules.transaction"

MUTANTS = (
    # What a log knows of its producers.
    Mutant(
        "a batch that is sent again is answered as the first time",
        (
            Edit(
                STATE,
                "        if is_data and from_client and state and"
                " (duplicate := state.find_duplicate(header)):\n",
                "        if is_data and from_client and state and header.base_offset > 0 and"
                " (duplicate := state.find_duplicate(header)):\n",
            ),
        ),
        without_it="a producer whose answer was lost is refused for what it has written",
        source="KIP-98, ProducerStateEntry.findDuplicateBatch",
    ),
    Mutant(
        "any of the last batches is known when it comes again",
        (
            Edit(
                SNAPSHOT,
                "        for batch in self.batches:\n",
                "        for batch in list(self.batches)[-1:]:\n",
            ),
        ),
        without_it="a producer with several batches on their way is refused for the first of them",
        source="KAFKA-5494, ProducerStateEntry.findDuplicateBatch",
    ),
    Mutant(
        "a sequence follows the last one",
        (
            Edit(
                STATE,
                "    elif first != next_sequence(state.last_sequence):\n",
                "    elif first <= state.last_sequence:\n",
            ),
        ),
        without_it="a batch overtakes the one before it, which is refused then",
        source="KIP-98, ProducerAppendInfo.checkSequence",
    ),
    Mutant(
        "a batch of an earlier producer epoch is refused",
        (
            Edit(
                STATE,
                "    elif header.producer_epoch >= last:\n        return\n",
                "    elif header.producer_epoch >= 0:\n        return\n",
            ),
        ),
        without_it="a producer that was fenced goes on writing",
        source="KIP-98, ProducerAppendInfo.checkProducerEpoch",
    ),
    Mutant(
        "a new producer epoch begins with no batches",
        (
            Edit(
                SNAPSHOT,
                "            self.batches.clear()\n            self.producer_epoch",
                "            self.producer_epoch",
            ),
        ),
        without_it="the first batch of the new epoch counts as one of the epoch before",
        source="KIP-360, ProducerStateEntry.maybeUpdateProducerEpoch",
    ),
    Mutant(
        "a marker of a replaced coordinator is refused",
        (
            Edit(
                STATE,
                "        and marker.coordinator_epoch < state.coordinator_epoch\n",
                "        and marker.coordinator_epoch < 0\n",
            ),
        ),
        without_it="a coordinator that was replaced ends a transaction that its successor has begun",
        source="ProducerAppendInfo.checkCoordinatorEpoch",
    ),
    Mutant(
        "a producer with a transaction open does not expire",
        (
            Edit(
                STATE,
                "        return silent and state.transaction_first_offset is None\n",
                "        return silent\n",
            ),
        ),
        without_it="the last stable offset stands still for ever: nobody ends that transaction",
        source="ProducerStateManager.isProducerExpired",
    ),
    Mutant(
        "an open transaction is known after a restart",
        (
            Edit(
                STATE,
                "        if state.transaction_first_offset is not None:\n"
                "            self._ongoing[state.transaction_first_offset] = state.producer_id\n"
                "\n    # Snapshots.",
                "\n    # Snapshots.",
            ),
        ),
        without_it="consumers of committed records read those of an open transaction",
        source="ProducerStateManager.loadProducerEntry",
    ),
    Mutant(
        "a transaction is stable once its end is committed",
        (
            Edit(
                STATE,
                "        return min((*self._ongoing, *self._unreplicated))\n",
                "        return min(self._ongoing, default=None)\n",
            ),
        ),
        without_it="a consumer reads what a transaction wrote, and another leader has not its end",
        source="ProducerStateManager.firstUnstableOffset",
    ),
    Mutant(
        "the first open transaction is the least stable",
        (
            Edit(
                STATE,
                "        return min((*self._ongoing, *self._unreplicated))\n",
                "        return max((*self._ongoing, *self._unreplicated))\n",
            ),
        ),
        without_it="consumers of committed records read those of the transactions before it",
        source="ProducerStateManager.firstUnstableOffset",
    ),
    Mutant(
        "snapshots of what was truncated are deleted",
        (
            Edit(
                STATE,
                "            if offset > log_end_offset or offset <= log_start_offset:\n",
                "            if offset <= log_start_offset:\n",
            ),
        ),
        without_it="a producer is refused for what another leader's log has at its sequence",
        source="ProducerStateManager.truncateAndReload",
    ),
    Mutant(
        "what a log forgets, its producers forget",
        (
            Edit(
                STATE,
                "            self._clear()\n            self._load_latest_snapshot",
                "            self._load_latest_snapshot",
            ),
        ),
        without_it="a batch that was truncated is taken for written",
        source="ProducerStateManager.truncateAndReload",
    ),
    # What the coordinator of transactions decides.
    Mutant(
        "a producer that begins fences the one before",
        (
            Edit(
                DECISIONS,
                "        return current.producer_epoch + 1, NO_PRODUCER_EPOCH\n",
                "        return max(current.producer_epoch, 0), NO_PRODUCER_EPOCH\n",
            ),
        ),
        without_it="two producers write under one transactional id",
        source="KIP-98, TransactionMetadata.prepareIncrementProducerEpoch",
    ),
    Mutant(
        "an open transaction is aborted before its id is given on",
        (
            Edit(
                DECISIONS,
                "    if current.state is TransactionState.ONGOING:\n"
                "        slot.fencing = current.fenced(again=slot.fence_failed)\n"
                "        return Fence(slot.fencing.producer_epoch)\n"
                "    if current.is_epoch_exhausted",
                "    if current.state is TransactionState.ONGOING:\n"
                "        current = attrs.evolve(current, state=TransactionState.EMPTY)\n"
                "    if current.is_epoch_exhausted",
            ),
        ),
        without_it="the records of the producer before stay open for ever",
        source="TransactionCoordinator.handleInitProducerId",
    ),
    Mutant(
        "a transaction keeps the partitions that it had",
        (
            Edit(
                TRANSACTION,
                "            partitions=self.partitions | added,\n",
                "            partitions=added,\n",
            ),
        ),
        without_it="no marker comes to the first of them, where consumers wait for ever",
        source="TransactionMetadata.prepareAddPartitions",
    ),
    Mutant(
        "a transaction that takes too long is aborted",
        (
            Edit(
                DECISIONS,
                "        and now_ms > current.started_ms + current.timeout_ms\n",
                "        and now_ms > current.started_ms + 1000 * current.timeout_ms\n",
            ),
        ),
        without_it="consumers wait for a producer that is gone",
        source="TransactionStateManager.timedOutTransactions",
    ),
    Mutant(
        "a producer of an earlier epoch adds no partition",
        (
            Edit(
                DECISIONS,
                "    if slot.current.producer_epoch != producer[1]:\n",
                "    if slot.current.producer_epoch < producer[1]:\n",
            ),
        ),
        without_it="a fenced producer takes part in the transaction of its successor",
        source="KIP-98, TransactionCoordinator.handleAddPartitionsToTransaction",
    ),
    Mutant(
        "a leader learns which partitions are in the transaction",
        (
            Edit(
                DECISIONS,
                "        each: ErrorCode.NONE if each in slot.current.partitions"
                " else ErrorCode.TRANSACTION_ABORTABLE\n",
                "        each: ErrorCode.NONE\n",
            ),
        ),
        without_it="a record that comes late opens a transaction that nobody ends",
        source="KIP-890, TransactionCoordinator.handleVerifyPartitionsInTransaction",
    ),
    Mutant(
        "a producer of an earlier epoch ends nothing",
        (
            Edit(
                DECISIONS,
                "    if producer[1] != current.producer_epoch:\n"
                "        return ErrorCode.PRODUCER_FENCED\n"
                "    if slot.is_changing:\n",
                "    if producer[1] > current.producer_epoch:\n"
                "        return ErrorCode.PRODUCER_FENCED\n"
                "    if slot.is_changing:\n",
            ),
        ),
        without_it="a zombie commits a half of what its successor writes",
        source="KIP-98, TransactionCoordinator.endTransaction",
    ),
    Mutant(
        "an idle transactional id is kept for its time",
        (
            Edit(
                DECISIONS,
                "    return rests and now_ms >= current.updated_ms + expiration_ms\n",
                "    return rests\n",
            ),
        ),
        without_it="an id is forgotten between two transactions, and its producer refused",
        source="TransactionStateManager.removeExpiredTransactionalIds",
    ),
)
