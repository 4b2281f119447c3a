"""Checks of the coordinator of transactional ids."""

from tests.mutants.mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        "what a coordinator finds prepared it completes",
        (
            Edit(
                "replication.cluster.transactions.coordinator",
                "        for slot in shard.slots.values():\n"
                "            if slot.current.state.is_prepared:\n"
                "                self.nursery.start_soon(self._complete, shard, slot)\n",
                "",
            ),
        ),
        without_it="records of a committed transaction are given to nobody, for ever",
        source="TransactionCoordinator.onElection",
        caught_by="tests/scenarios/test_stories.py::test_a_story_is_told_as_it_was_recorded"
        "[a-coordinator-that-dies-with-a-transaction-prepared]",
    ),
)
