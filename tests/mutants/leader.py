"""Checks of a leader: which followers join the ISR, how far it commits, which fetches count."""

from tests.mutants.mutant import Edit, Mutant

ISR = "replication.leader.rules.isr"
LEADERSHIP = "replication.leader.rules.leadership"
PARTITION = "replication.leader.partition"

MUTANTS = (
    # Who may join the ISR.
    Mutant(
        "a joining follower has all that is committed",
        (
            Edit(
                ISR,
                "return follower.log_end_offset >= max(high_watermark, leader_epoch_start)",
                "return follower.log_end_offset >= leader_epoch_start",
            ),
        ),
        without_it="a replica without committed records joins the ISR, and may lead next",
        source="Partition.isFollowerInSync",
    ),
    Mutant(
        "a joining follower reaches the start of the leader epoch",
        (
            Edit(
                ISR,
                "return follower.log_end_offset >= max(high_watermark, leader_epoch_start)",
                "return follower.log_end_offset >= high_watermark",
            ),
        ),
        without_it="a new leader's own high watermark is behind: S30",
        source="KAFKA-7128, KIP-320",
    ),
    Mutant(
        "the leader adds only a follower's registered process",
        (
            Edit(
                ISR,
                "return fetched_epoch in {NO_BROKER_EPOCH, registered_epoch}",
                "return True",
            ),
        ),
        without_it="a wiped disk joins by what was fetched before: S33",
        source="KIP-903",
        covered="a fetch of a former process is refused when it comes, and the controller compares the epochs again",
    ),
    Mutant(
        "the leader adds no follower that is fenced or shutting down",
        (
            Edit(
                ISR,
                "    if not may_lead or registered_epoch is None or fetched_epoch is None:",
                "    if registered_epoch is None or fetched_epoch is None:",
            ),
        ),
        without_it="the controller receives a request that it has to refuse: S32",
        source="KIP-841",
        covered="the controller refuses it (INELIGIBLE_REPLICA)",
    ),
    Mutant(
        "a follower that has caught up joins the ISR",
        (
            Edit(
                LEADERSHIP,
                "        if broker not in self.isr_state.isr:\n",
                "        if broker < 0:\n",
            ),
        ),
        without_it="an ISR that has shrunk stays as small",
        source="Partition.maybeExpandIsr",
    ),
    # How far all is committed.
    Mutant(
        "a leader does not commit alone",
        (
            Edit(
                LEADERSHIP,
                "        if end is None or end <= self.log.high_watermark:",
                "        end = log_end\n        if end is None or end <= self.log.high_watermark:",
            ),
        ),
        without_it="followers lack committed records: S65 to S69",
        source="Partition.maybeIncrementLeaderHW",
    ),
    Mutant(
        "a follower that has not fetched yet has nothing",
        (
            Edit(
                ISR,
                "        if follower.log_end_offset < end and (",
                "        if NO_OFFSET < follower.log_end_offset < end and (",
            ),
        ),
        without_it="a new leader commits without members that have not fetched yet",
        source="Replica.ReplicaState",
    ),
    Mutant(
        "a replica that is being added counts",
        (
            Edit(
                ISR,
                "        return self.last_committed.isr | {self.joining}",
                "        return self.last_committed.isr",
            ),
            Edit(
                ISR,
                "(broker in maximal_isr or may_join(broker, follower))",
                "broker in maximal_isr",
            ),
        ),
        without_it="records that the joining replica lacks are committed, and it may lead already: S17, S67",
        source="KIP-497",
    ),
    Mutant(
        "a replica that is being removed counts",
        (
            Edit(
                ISR,
                "    leaving: frozenset[int]\n"
                "    sent: IsrProposal\n"
                "    last_committed: CommittedIsr\n\n"
                "    @property\n"
                "    def isr(self) -> frozenset[int]:\n"
                "        return self.last_committed.isr\n\n"
                "    @property\n"
                "    def maximal_isr(self) -> frozenset[int]:\n"
                "        return self.last_committed.isr\n",
                "    leaving: frozenset[int]\n"
                "    sent: IsrProposal\n"
                "    last_committed: CommittedIsr\n\n"
                "    @property\n"
                "    def isr(self) -> frozenset[int]:\n"
                "        return self.last_committed.isr\n\n"
                "    @property\n"
                "    def maximal_isr(self) -> frozenset[int]:\n"
                "        return self.last_committed.isr - self.leaving\n",
            ),
        ),
        without_it="records that the leaving replica lacks are committed, and it may still lead: S18",
        source="KIP-497",
    ),
    Mutant(
        "below the minimum ISR nothing more is committed",
        (Edit(ISR, "    if len(state.isr) < min_isr:\n        return None\n", ""),),
        without_it="an eligible replica lacks what was committed after it left: S23",
        source="KIP-966, KAFKA-15583",
    ),
    Mutant(
        "below the minimum ISR nothing is written with acks=all",
        (
            Edit(
                PARTITION,
                "        if required_acks == ACKS_ALL and leadership.under_min_isr:",
                "        if required_acks == -1 and not leadership.isr:",
            ),
        ),
        without_it="records that cannot be acknowledged pile up; nothing that may be lost is acknowledged",
        source="Partition.appendRecordsToLeader",
        covered="it is not committed before enough replicas are in sync, and so not acknowledged",
    ),
    Mutant(
        "a refused batch is not written",
        (
            Edit(
                PARTITION,
                "        if required_acks == ACKS_ALL and leadership.under_min_isr:\n",
                "        if required_acks == ACKS_ALL and leadership.under_min_isr:\n"
                "            self.log.append_as_leader(\n"
                "                records,\n"
                "                leader_epoch=self.leader_epoch,\n"
                "                wall_ms=wall_ms,\n"
                "                from_client=from_client,\n"
                "                terms=terms,\n"
                "                flush=False,\n"
                "                allowance=allowance,\n"
                "            )\n",
            ),
        ),
        without_it="a record is there of which its producer knows that it is not",
        source="Partition.appendRecordsToLeader",
    ),
    Mutant(
        "below the minimum ISR nothing is acked",
        (
            Edit(
                LEADERSHIP,
                "        if len(self.isr_state.maximal_isr) < self.effective_min_isr:",
                "        if not self.maximal_isr:",
            ),
        ),
        without_it="an acknowledgement of fewer replicas than were promised",
        source="Partition.checkEnoughReplicasReachOffset",
        covered="the high watermark stands still there: records below it were on enough replicas in time",
    ),
    Mutant(
        "an ack waits for the high watermark",
        (
            Edit(
                LEADERSHIP,
                "        if self.log.high_watermark < required_offset:",
                "        if self.log.log_end_offset < required_offset:",
            ),
        ),
        without_it="acks=all is acks=1",
        source="DelayedProduce",
    ),
    Mutant(
        "a waiting produce request fails when its leader is deposed",
        (
            Edit(
                "replication.replica_manager.roles",
                "                restarted.append(partition)\n"
                "                self.complete_delayed(each.topic_partition)\n",
                "                restarted.append(partition)\n",
            ),
        ),
        without_it="acknowledged in a later leader epoch, when another record stands there: S93",
        source="KAFKA-2960, KAFKA-1148",
        caught_by="tests/replication/replica_manager/test_replica_manager.py"
        "::test_a_waiting_produce_is_answered_when_the_leadership_is_lost",
    ),
    Mutant(
        "a purgatory forgets the requests that are over",
        (
            Edit(
                "replication.leader.purgatory",
                "            watches.pop(watch, None)\n",
                "            pass\n",
            ),
        ),
        without_it="a broker's memory fills with requests that nobody waits for",
        source="DelayedOperationPurgatory",
    ),
    # Leader epochs.
    Mutant(
        "positions are forgotten with their leader epoch",
        (
            Edit(
                PARTITION,
                "follows_ours = self.is_leader and self.leader_epoch == previous_epoch + 1",
                "follows_ours = self.is_leader",
            ),
        ),
        without_it="followers count with records that another leader made them truncate meanwhile",
        source="Partition.makeLeader, and docs/found.md",
    ),
    Mutant(
        "a leader epoch begins in the epoch cache",
        (
            Edit(
                LEADERSHIP,
                "        self.log.leader_epoch_cache.assign(self.leader_epoch, log_end)\n",
                "",
            ),
        ),
        without_it="a leader epoch without records is unknown afterwards: S04",
        source="KAFKA-7415",
    ),
    Mutant(
        "metadata older than the controller's answer changes nothing",
        (
            Edit(
                PARTITION,
                "        leadership = self.leadership\n"
                "        if registration.partition_epoch < self.partition_epoch:\n"
                "            return False\n",
                "        leadership = self.leadership\n",
            ),
        ),
        without_it="an ISR that is over counts again: S73",
        source="Partition.makeLeader",
    ),
    Mutant(
        "an answer older than the metadata changes nothing",
        (
            Edit(
                LEADERSHIP,
                "        if self.isr_state is not pending:\n            return False",
                "        if isinstance(self.isr_state, CommittedIsr) and not self.isr:\n"
                "            return False",
            ),
            Edit(
                ISR,
                "            if answer.leader_epoch != leader_epoch"
                " or answer.partition_epoch < partition_epoch:",
                "            if answer.leader_epoch < 0:",
            ),
        ),
        without_it="an ISR of an earlier leader epoch counts; the two checks cover each other: S73",
        source="KAFKA-12686",
    ),
    Mutant(
        "an ISR change of unknown outcome is not given up",
        (
            Edit(ISR, "            | ErrorCode.INVALID_UPDATE_VERSION\n", ""),
            Edit(
                ISR,
                "        case ErrorCode.OPERATION_NOT_ATTEMPTED | ErrorCode.INELIGIBLE_REPLICA:",
                "        case (\n"
                "            ErrorCode.OPERATION_NOT_ATTEMPTED\n"
                "            | ErrorCode.INELIGIBLE_REPLICA\n"
                "            | ErrorCode.INVALID_UPDATE_VERSION\n"
                "        ):",
            ),
        ),
        without_it="a retry after a lost reply reverts what was done: S72",
        source="KAFKA-14144",
    ),
    Mutant(
        "a lost answer is not a refusal",
        (
            Edit(
                "replication.broker.controller_queue",
                "        except PeerUnavailableError:\n            return False",
                "        except PeerUnavailableError:\n"
                "            from replication.leader.rules.isr import IsrAnswer\n"
                "            for key, request in queued.items():\n"
                "                if not isinstance(request, bytes):  # not the place of a replica\n"
                "                    request.answer = IsrAnswer(error=ErrorCode.OPERATION_NOT_ATTEMPTED)\n"
                "                    request.answered.set()\n"
                "                    self._remove(key, request)\n"
                "            return True",
            ),
        ),
        without_it="the leader commits without a replica that the controller has added: S72",
        source="DefaultAlterPartitionManager",
    ),
    # What a fetch says.
    Mutant(
        "a fetch of an earlier epoch is refused",
        (
            Edit(
                PARTITION,
                "        if current_leader_epoch not in (NO_LEADER_EPOCH, self.leader_epoch):",
                "        if current_leader_epoch > self.leader_epoch:",
            ),
        ),
        without_it="a follower counts whose log matches another leader epoch: S28",
        source="KIP-320",
    ),
    Mutant(
        "a fetch of a later epoch is refused",
        (
            Edit(
                PARTITION,
                "        if current_leader_epoch not in (NO_LEADER_EPOCH, self.leader_epoch):",
                "        if NO_LEADER_EPOCH < current_leader_epoch < self.leader_epoch:",
            ),
        ),
        without_it="a follower copies from a deposed leader: S28, S15",
        source="KIP-320",
    ),
    Mutant(
        "a fetch that diverges is no progress",
        (
            Edit(
                PARTITION,
                "        if note and from_follower and answer.diverging_epoch is None:",
                "        if note and from_follower:",
            ),
        ),
        without_it="records that a follower has to truncate count as replicated: S08",
        source="KAFKA-13141",
    ),
    Mutant(
        "a fetch of a former process is refused",
        (
            Edit(
                PARTITION,
                "        if registered is not None and NO_BROKER_EPOCH"
                " != params.replica_epoch < registered:",
                "        if registered is not None and params.replica_epoch < NO_BROKER_EPOCH:",
            ),
        ),
        without_it="a position from before the restart counts",
        source="KIP-903",
        covered="a broker that registers anew leaves every ISR, and joins none by its former broker epoch",
    ),
    Mutant(
        "a consumer reads committed records only",
        (
            Edit(
                "replication.leader.rules.log_reader",
                "            case Isolation.HIGH_WATERMARK:\n"
                "                return self.log.high_watermark",
                "            case Isolation.HIGH_WATERMARK:\n"
                "                return self.log.log_end_offset",
            ),
        ),
        without_it="a consumer reads records that are truncated later",
        source="FetchIsolation",
    ),
    Mutant(
        "a fetch session is settled for its own terms only",
        (
            Edit(
                "replication.leader.rules.fetch_session.session",
                "        if terms != self.terms:",
                "        if False:",
            ),
        ),
        without_it="a follower of another epoch, or another rack, is answered as the one before it",
        source="KIP-227, and replication/leader/rules/fetch_session/session.py",
    ),
)
