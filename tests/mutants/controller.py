"""Checks of the controller: registrations, elections, changes of the ISR, and moves."""

from tests.mutants.mutant import Edit, Mutant

BROKERS = "replication.controller.rules.brokers"
DECISIONS = "replication.controller.rules.decisions"
ELECTION = "replication.controller.rules.election"
ISR = "replication.controller.rules.isr_changes"
REASSIGNMENT = "replication.controller.rules.reassignment"

IS_CURRENT = (
    "    if not is_current_incarnation(image, request.broker_id, request.broker_epoch):\n"
    "        return Decision(AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))\n"
)
OF_THE_LEADER = (
    "    if data.leader_epoch < partition.leader_epoch:\n"
    "        return ErrorCode.FENCED_LEADER_EPOCH\n"
    "    if sender != partition.leader:\n"
    "        return ErrorCode.INVALID_REQUEST\n"
)
OF_THIS_EPOCH = (
    "    if data.partition_epoch < partition.partition_epoch:\n"
    "        return ErrorCode.INVALID_UPDATE_VERSION\n"
)

MUTANTS = (
    # Registrations.
    Mutant(
        "another incarnation is another broker epoch",
        (
            Edit(
                BROKERS,
                "    same = known is not None and known.incarnation_id == request.incarnation_id\n",
                "    same = known is not None\n",
            ),
        ),
        without_it="a broker that has lost its disk goes on leading: S34, S38",
        source="KIP-631, KAFKA-16952",
    ),
    Mutant(
        "a broker that registers anew leaves every ISR",
        (Edit(BROKERS, "    if not same:\n", "    if not same and known is None:\n"),),
        without_it="a replica that has lost its tail is in sync: S38",
        source="KIP-631, KAFKA-18106",
    ),
    Mutant(
        "a broker without a clean shutdown is not eligible",
        (Edit(BROKERS, "lost_its_tail=not clean)", "lost_its_tail=False)"),),
        without_it="a replica that has lost its tail is elected: S35, S49",
        source="KIP-966",
    ),
    Mutant(
        "eligible replicas are forgotten once enough are in sync",
        (
            Edit(
                ELECTION,
                "    if wanted.elr and len(wanted.isr) >= _min_isr(wanted, rules):\n"
                "        wanted = attrs.evolve(wanted, elr=())\n",
                "",
            ),
            Edit(
                ELECTION,
                "    if len(wanted.isr) >= _min_isr(wanted, rules):\n"
                "        return attrs.evolve(wanted, elr=()) if wanted.elr else wanted\n",
                "    if len(wanted.isr) >= _min_isr(wanted, rules):\n        return wanted\n",
            ),
        ),
        without_it="a replica that left long ago is elected",
        source="KIP-966",
    ),
    Mutant(
        "a decision is synced before it is published",
        (
            Edit(
                "replication.metadata.log",
                "            await self.seams.offload(plan.sync)\n",
                "            await self.seams.offload(lambda: None)\n",
            ),
        ),
        without_it="a controller that has lost power decides again, and differently",
        source="KIP-595",
    ),
    # Elections.
    Mutant(
        "a leader is in sync, or eligible",
        (
            Edit(
                ELECTION,
                "        if replica in electorate and is_active(replica):",
                "        if is_active(replica):",
            ),
        ),
        without_it="every election is unclean",
        source="PartitionChangeBuilder",
    ),
    Mutant(
        "with nobody in sync only the last known leader may lead",
        (
            Edit(
                ELECTION,
                "        yield from _in_order(wanted, wanted.last_known_elr)\n",
                "        yield from wanted.replicas\n",
            ),
        ),
        without_it="a replica without committed records is elected",
        source="KIP-966",
    ),
    # AlterPartition.
    Mutant(
        "the controller adds only a broker's registered process",
        (
            Edit(
                ISR,
                "    return broker_epoch in (_ANY_EPOCH, image.brokers[broker_id].broker_epoch)",
                "    return True",
            ),
        ),
        without_it="a wiped disk joins by what was fetched before: S33",
        source="KIP-903",
    ),
    Mutant(
        "the controller adds no broker that is fenced or shutting down",
        (
            Edit(
                ISR,
                "    if not image.may_join_isr(broker_id):\n        return False\n",
                "    if broker_id not in image.brokers:\n        return False\n",
            ),
        ),
        without_it="an ISR with a member that cannot lead: S32",
        source="KIP-841",
    ),
    Mutant(
        "only a registered process is added, anywhere",
        (
            Edit(
                "replication.leader.rules.isr",
                "    return fetched_epoch in {NO_BROKER_EPOCH, registered_epoch}",
                "    return True",
            ),
            Edit(
                "replication.leader.partition",
                "        if registered is not None and NO_BROKER_EPOCH"
                " != params.replica_epoch < registered:",
                "        if registered is not None and params.replica_epoch < NO_BROKER_EPOCH:",
            ),
            Edit(
                ISR,
                "    return broker_epoch in (_ANY_EPOCH, image.brokers[broker_id].broker_epoch)",
                "    return True",
            ),
        ),
        without_it="as above; the checks of a leader and of a fetch are taken out too",
        source="KIP-903",
    ),
    Mutant(
        "no fenced broker is added, anywhere",
        (
            Edit(
                "replication.leader.rules.isr",
                "    if not may_lead or registered_epoch is None or fetched_epoch is None:",
                "    if registered_epoch is None or fetched_epoch is None:",
            ),
            Edit(
                ISR,
                "    if not image.may_join_isr(broker_id):\n        return False\n",
                "    if broker_id not in image.brokers:\n        return False\n",
            ),
        ),
        without_it="as above; the check of a leader is taken out too",
        source="KIP-841",
    ),
    Mutant(
        "an ISR is changed by the leader's present process",
        (Edit(ISR, IS_CURRENT, ""),),
        without_it="a request of a former process counts",
        source="KIP-497",
        covered="a new registration ends the leader epoch, so the request names an earlier one",
    ),
    Mutant(
        "an ISR is changed by the leader of this epoch",
        (Edit(ISR, OF_THE_LEADER, ""),),
        without_it="a deposed leader changes the ISR: S27",
        source="KIP-497",
        covered="every election is a change, so the request names an earlier partition epoch",
    ),
    Mutant(
        "an ISR is changed from the present one",
        (Edit(ISR, OF_THIS_EPOCH, ""),),
        without_it="a change starts from an ISR that has changed since",
        source="KIP-497",
    ),
    Mutant(
        "an ISR is changed by its leader, from the present one",
        (Edit(ISR, IS_CURRENT, ""), Edit(ISR, OF_THE_LEADER + OF_THIS_EPOCH, "")),
        without_it="the same as without the three before it, which cover each other: a zombie shrinks the ISR",
        source="KIP-497",
    ),
    # Reassignments.
    Mutant(
        "a move is done once all that stay are in sync",
        (
            Edit(
                REASSIGNMENT,
                " or not set(replicas) <= set(partition.isr):\n",
                ":\n",
            ),
        ),
        without_it="replicas are deleted before the new ones have their records",
        source="KIP-455, PartitionReassignmentReplicas.maybeCompleteReassignment",
    ),
    Mutant(
        "a replica that was moved away leaves the ISR",
        (
            Edit(
                REASSIGNMENT,
                "    isr = _without(partition.isr, partition.removing)\n",
                "    isr = partition.isr\n",
            ),
        ),
        without_it="a broker without a replica is in sync, and may be elected",
        source="KIP-455, PartitionReassignmentReplicas.maybeCompleteReassignment",
    ),
    Mutant(
        "a move that is called off drops the new replicas from the ISR",
        (
            Edit(
                REASSIGNMENT,
                "        isr=_without(partition.isr, partition.adding),\n",
                "        isr=partition.isr,\n",
            ),
        ),
        without_it="a broker without a replica is in sync, and may be elected",
        source="KIP-455, PartitionReassignmentRevert",
    ),
    Mutant(
        "a move that is called off drops the new replicas from the ELR",
        (
            Edit(
                REASSIGNMENT,
                "        elr=_without(partition.elr, partition.adding),\n",
                "        elr=partition.elr,\n",
            ),
        ),
        without_it="a broker without a replica is eligible",
        source="KIP-966, PartitionReassignmentRevert",
    ),
    Mutant(
        "a move that is changed leads back to its beginning",
        (
            Edit(
                REASSIGNMENT,
                "    original = _without(partition.replicas, partition.adding)\n",
                "    original = partition.replicas\n",
            ),
        ),
        without_it="called off, it leaves the replicas of the target before",
        source="KIP-455, docs/departures.md",
    ),
    Mutant(
        "a replica that is moved away follows until the move is done",
        (
            Edit(
                REASSIGNMENT,
                "    replicas = wanted + removing\n",
                "    replicas = wanted\n",
            ),
        ),
        without_it="the records are deleted before anybody has copied them",
        source="KIP-455, PartitionReassignmentReplicas",
    ),
)
