"""Checks of the transaction coordinator."""

from tests.mutants.mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        "a coordinator completes prepared commits that it finds",
        (
            Edit(
                "replication.transactions.coordinator",
                "        for slot in shard.slots.values():\n"
                "            if slot.current.state.is_prepared:\n"
                "                self.nursery.start_soon(self._complete, shard, slot)\n",
                "",
            ),
        ),
        without_it="no consumer ever reads the records of a committed transaction",
        source="TransactionCoordinator.onElection",
    ),
    Mutant(
        "a coordinator completes prepared aborts that it finds",
        (
            Edit(
                "replication.transactions.coordinator",
                "        for slot in shard.slots.values():\n"
                "            if slot.current.state.is_prepared:\n",
                "        for slot in shard.slots.values():\n            if slot.current.commits:\n",
            ),
        ),
        without_it="the last stable offset stands still for ever",
        source="TransactionCoordinator.onElection",
    ),
    Mutant(
        "a coordinator that loads its log forgets the ids that were deleted",
        (
            Edit(
                "replication.transactions.coordinator",
                "                self.slots.pop(name, None)\n            else:\n                self.slots[name]",
                "                pass\n            else:\n                self.slots[name]",
            ),
        ),
        without_it="an expired transactional id is back, with the producer id of before",
        source="TransactionStateManager.loadTransactionMetadata",
    ),
)
