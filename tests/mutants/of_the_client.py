"""Checks of our clients: what is sent again, what is committed, what is handed over."""

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
        without_it="what is sent again is another batch to its broker, and there twice",
        source="KIP-98",
    ),
    Mutant(
        "what is sent again goes as the first of all that have no answer",
        (
            Edit(
                QUEUE,
                "            return batch if batch is self.sent[0] else None\n",
                "            return batch\n",
            ),
        ),
        without_it="a batch overtakes one that is tried again",
        source="RecordAccumulator.shouldStopDrainBatchesForPartition",
        covered="its broker refuses a sequence out of turn, and it is sent once more",
    ),
    Mutant(
        "nothing new goes out behind a batch of which nobody knows",
        (
            Edit(
                QUEUE,
                "        if self.unresolved is not None or self.gap is not None:\n"
                "            return None\n",
                "",
            ),
        ),
        without_it="what follows a batch that was given up is refused, and begins anew",
        source="TransactionManager.hasUnresolvedSequences",
        covered="its sequence is the one after: a broker without what was given up refuses it",
    ),
    Mutant(
        "sequences that begin anew do so under the next epoch",
        (
            Edit(
                ACCUMULATOR,
                "        self.identity = ProducerIdentity(producer_id, epoch + 1)\n",
                "        self.identity = ProducerIdentity(producer_id, epoch)\n",
            ),
        ),
        without_it="a new record is taken for the old one of its number: S89",
        source="KIP-360",
    ),
    Mutant(
        "a commit waits for all that was sent",
        (
            Edit(
                TRANSACTIONS,
                "        self._expect(State.IN_TRANSACTION)\n        await self.flush()\n",
                "        self._expect(State.IN_TRANSACTION)\n",
            ),
        ),
        without_it="a part of the transaction comes after its end",
        source="KIP-98, KafkaProducer.commitTransaction",
    ),
    Mutant(
        "where something failed there is no commit",
        (
            Edit(
                TRANSACTIONS,
                "        elif self.state in (State.IN_TRANSACTION, State.ENDING):\n"
                "            self.state, self.error = State.ABORTABLE_ERROR, error\n",
                "        else:\n            pass\n",
            ),
        ),
        without_it="offsets are committed of records whose copies are not there",
        source="TransactionManager.transitionToAbortableError",
    ),
    Mutant(
        "offsets of a transaction name the member and its generation",
        (
            Edit(TRANSACTIONS, "            generation_id=group.generation_id,\n", ""),
            Edit(TRANSACTIONS, "            member_id=group.member_id,\n", ""),
        ),
        without_it="a member that was replaced meanwhile commits, and what it copied is there twice",
        source="KIP-447",
    ),
    Mutant(
        "who is fenced sends no more",
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
        covered="whoever asked, coordinator or leader, refuses the next that it asks too",
    ),
    # Consumers.
    Mutant(
        "what was fetched for another position is not handed over",
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
        without_it="after a seek, or another assignment, records come that were not asked for",
        source="FetchCollector.fetchRecords",
    ),
    Mutant(
        "records of aborted transactions are not handed over",
        (
            Edit(
                COMPLETED,
                "        return header.is_transactional and header.producer_id in self._in_abort\n",
                "        return False\n",
            ),
        ),
        without_it="who reads what is committed reads what is not",
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
        without_it="what the producer sends next is passed over",
        source="CompletedFetch.nextFetchedRecord",
    ),
    Mutant(
        "what is committed is not known while a transaction may move it",
        (
            Edit(
                COMMITS, "            require_stable=True,\n", "            require_stable=False,\n"
            ),
        ),
        without_it="the next owner begins before what its predecessor is about to commit",
        source="KIP-447",
    ),
    Mutant(
        "a member commits in its generation",
        (
            Edit(
                COMMITS,
                "            if member.state is not MemberState.STABLE:\n"
                "                raise self._not_in_group()\n",
                "",
            ),
        ),
        without_it="a member commits while the group is being rearranged",
        source="ConsumerCoordinator.sendOffsetCommitRequest",
        covered="its coordinator knows the generation, and refuses it",
    ),
    Mutant(
        "positions are for the assignment for which they were asked",
        (
            Edit(
                COORDINATOR,
                "                if assignment == self.subscriptions.assignment_id:\n"
                "                    self._begin_at(found)\n",
                "                self._begin_at(found)\n",
            ),
        ),
        without_it="a member begins at what was committed before somebody else had its partition",
        source="ConsumerCoordinator.initWithCommittedOffsetsIfNeeded",
        covered="the answer comes on the connection on which the next assignment is heard of,"
        " and before it",
    ),
    Mutant(
        "positions are validated where the leader has changed",
        (Edit(POLL_LOOP, "        self.fetcher.requests.validate_positions()\n", ""),),
        without_it="a consumer reads on behind what was cut: S29",
        source="KIP-320",
    ),
)
