"""Checks of consumer groups (KIP-848): the coordinator's rules, and those of our members."""

from tests.mutants.mutant import Edit, Mutant

RECONCILIATION = "replication.groups.rules.consumer_group.reconciliation"
HEARTBEAT = "replication.groups.rules.consumer_group.heartbeat"
SESSIONS = "replication.groups.rules.consumer_group.sessions"
STEPS = "replication.groups.rules.consumer_group.membership"
STATE = "replication.groups.rules.consumer_group.group"
MIGRATION = "replication.groups.rules.consumer_group.migration"
COMMITTED = "replication.groups.commits"
SHARD = "replication.groups.shard"
CONSUMERS = "replication.groups.consumers"
PROTOCOL = "replication.client.consumer.group.consumer_protocol"
MEMBERSHIP = "replication.client.consumer.group.rules.consumer_membership"
COMMITS = "replication.client.consumer.group.commits"
TESTS = "tests/replication/client/consumer/test_consumer_protocol.py::test_"

MUTANTS = (
    Mutant(
        "a partition of a consumer group has one owner",
        (
            Edit(
                RECONCILIATION,
                "        return is_mine or not self.is_owned(topic_id, partition)\n",
                "        return is_mine or bool(partition + 1)\n",
            ),
        ),
        without_it="two members read a partition at once",
        source="CurrentAssignmentBuilder.computeNextAssignment",
    ),
    Mutant(
        "a member with another epoch is fenced",
        (
            Edit(
                HEARTBEAT,
                "    if epoch == member.member_epoch:\n        return None\n    is_late",
                "    if epoch > JOIN_EPOCH:\n        return None\n    is_late",
            ),
        ),
        without_it="a member that was given other partitions meanwhile goes on with those of before",
        source="GroupMetadataManager.throwIfConsumerGroupMemberEpochIsInvalid",
    ),
    Mutant(
        "a session ends",
        (
            Edit(
                SESSIONS,
                "[TimeLimit.SESSION][member_id] = now_ms + session_timeout_ms\n",
                "[TimeLimit.SESSION][member_id] = now_ms + session_timeout_ms * 1_000\n",
            ),
        ),
        without_it="what a member had that is gone is read by nobody",
        source="GroupMetadataManager.scheduleConsumerGroupSessionTimeout",
    ),
    Mutant(
        "a topic that has changed is assigned anew",
        (
            Edit(
                STEPS,
                "    if raises or conditions.image_changed:\n",
                "    if raises:\n",
            ),
        ),
        without_it="nobody reads the partitions that were added",
        source="GroupMetadataManager.consumerGroupHeartbeat, hasMetadataExpired",
    ),
    Mutant(
        "a coordinator that takes over knows the target",
        (
            Edit(
                STATE,
                "    else:\n        group.apply(entry)\n",
                "    elif entry.kind is not ConsumerGroupTargetAssignmentMemberValue:\n"
                "        group.apply(entry)\n",
            ),
        ),
        without_it="it knows no target of members that have come to it, and takes their partitions",
        source="GroupMetadataManager.replay",
    ),
    Mutant(
        "an upgraded group keeps its members",
        (
            Edit(
                MIGRATION,
                "_upgraded(classic, each) for each in classic.members.values()]\n",
                "_upgraded(classic, each) for each in classic.members.values()][1:]\n",
            ),
        ),
        without_it="a member reads on what is given to another one",
        source="ConsumerGroup.fromClassicGroup",
    ),
    Mutant(
        "an upgraded group keeps its offsets",
        (
            Edit(
                CONSUMERS,
                "            hosted.consumers = change.group\n",
                "            hosted.offsets = type(hosted.offsets)()\n"
                "            hosted.consumers = change.group\n",
            ),
        ),
        without_it="its members read everything again",
        source="GroupMetadataManager.convertToConsumerGroup",
    ),
    Mutant(
        "an upgraded group takes a target of its own",
        (
            Edit(
                MIGRATION,
                "    change.put(ConsumerGroupMetadataValue(epoch=classic.generation,"
                " metadata_hash=NOT_LOOKED_AT))\n",
                "    from replication.groups.rules.consumer_group.target import metadata_hash\n"
                "    topics = metadata_hash(change.group.subscribed_topics(), conditions.image)\n"
                "    change.put(ConsumerGroupMetadataValue(epoch=classic.generation,"
                " metadata_hash=topics))\n",
            ),
        ),
        without_it="nobody reads what the classic group had not assigned: swarm, seed 351",
        source="docs/found.md",
    ),
    Mutant(
        "a fenced member commits nothing",
        (
            Edit(
                STEPS,
                "        return ErrorCode.UNKNOWN_MEMBER_ID\n    if from_old_client",
                "        return ErrorCode.NONE\n    if from_old_client",
            ),
        ),
        without_it="it overwrites what the next owner has committed",
        source="ConsumerGroup.validateOffsetCommit",
        caught_by="tests/replication/groups/consumer_group/test_consumer_group.py"
        "::test_a_commit_names_a_member_and_its_epoch",
    ),
    Mutant(
        "a commit that is in the log counts",
        (
            Edit(
                COMMITTED,
                "    if submission.is_in_log:\n",
                "    if submission.error is ErrorCode.NONE:\n",
            ),
        ),
        without_it="its coordinator does not know what the next one will know: swarm, seed 95",
        source="docs/found.md",
    ),
    Mutant(
        "a member gives a partition up after its program has",
        (
            Edit(
                PROTOCOL,
                "            self.subscriptions.mark_pending_revocation(revoked)\n",
                "            self.membership.reconciled(owned)\n            self.heartbeats.wake()\n"
                "            self.subscriptions.mark_pending_revocation(revoked)\n",
            ),
        ),
        without_it="another member begins before the offset that the first one is about to commit",
        source="AbstractMembershipManager.revokeAndAssign",
        caught_by=f"{TESTS}a_partition_is_given_up_only_when_the_listener_has_returned",
    ),
    Mutant(
        "a fenced member of a consumer group gives everything up",
        (
            Edit(
                PROTOCOL,
                "            if assigned := subscriptions.assigned:\n"
                "                await coordinator.give_up(assigned, coordinator.listener.on_partitions_lost)\n",
                "",
            ),
        ),
        without_it="it reads on, from its old position, what others have read and committed meanwhile",
        source="AbstractMembershipManager.transitionToFenced",
        caught_by=f"{TESTS}a_member_that_is_cut_off_loses_everything_and_joins_again",
    ),
    Mutant(
        "a response to a member that was fenced meanwhile is dropped",
        (
            Edit(
                MEMBERSHIP,
                "        if request is not self._waiting:\n            return\n",
                "",
            ),
        ),
        without_it="a member that has left, or was fenced, takes partitions of before",
        source="ConsumerMembershipManager.onHeartbeatSuccess",
        caught_by="tests/replication/client/consumer/test_consumer_membership.py"
        "::test_a_fenced_member_joins_again_after_it_has_given_everything_up",
    ),
    Mutant(
        "a commit that is tried again names only what is still owned",
        (
            Edit(
                COMMITS,
                "                if generation != self.membership.generation_id:\n"
                "                    self._raise_unless_ours(job.offsets)\n",
                "",
            ),
        ),
        without_it="it overwrites what the next owner has committed",
        source="CommitRequestManager",
        caught_by="tests/replication/client/consumer/test_late_commits.py"
        "::test_a_commit_that_is_tried_again_does_not_overwrite_the_next_owners[consumer]",
    ),
    Mutant(
        "a group that has moved has no time limits here",
        (
            Edit(
                SHARD,
                "        if self.group.state is GroupState.DEAD:\n            return None\n"
                "        of_classic",
                "        of_classic",
            ),
        ),
        without_it="its former coordinator looks at it for ever: swarm, seed 265",
        source="CoordinatorTimer.cancelAll",
    ),
    Mutant(
        "a member that is written has a session",
        (
            Edit(
                CONSUMERS,
                "            self._renew_all(hosted, change.group.members.keys() - known)\n",
                "",
            ),
        ),
        without_it="a member whose join was answered with an error keeps its partitions: swarm, seed 780",
        source="GroupMetadataManager.scheduleConsumerGroupSessionTimeout",
    ),
)
