"""Checks of a follower: where it truncates its log, and which responses it uses."""

from tests.mutants.mutant import Edit, Mutant

FETCHER = "replication.follower.fetcher"
TRUNCATION = "replication.follower.rules.truncation"

MUTANTS = (
    # Before it fetches.
    Mutant(
        "a new leader epoch restarts the fetching",
        (
            Edit(
                "replication.leader.partition",
                "        new_epoch = registration.leader_epoch > self.leader_epoch\n",
                "        new_epoch = registration.leader != self.leader\n",
            ),
        ),
        without_it="fetches go on in the earlier leader epoch",
        source="Partition.makeFollower",
    ),
    Mutant(
        "a fetch names the last epoch of the log",
        (
            Edit(
                FETCHER,
                "            last_fetched_epoch=last_fetched,\n",
                "            last_fetched_epoch=NO_LEADER_EPOCH,\n",
            ),
        ),
        without_it="two logs that diverge stay so: S02, S39",
        source="KIP-595",
    ),
    Mutant(
        "where fetches name no epoch, truncation comes before fetching",
        (
            Edit(
                "replication.follower.rules.fetch_state",
                "    fetches_at_once = truncation_on_fetch and known_offset"
                " and latest_epoch is not None",
                "    fetches_at_once = known_offset and latest_epoch is not None",
            ),
        ),
        without_it="two logs that diverge stay so: S02",
        source="KIP-101, KIP-320",
    ),
    Mutant(
        "a request for an epoch's end names the follower's own epoch",
        (
            Edit(
                "replication.replica_manager.offsets",
                "            partition.check_access(current_leader_epoch, leader_only=True)\n"
                "        except KafkaError as error:\n"
                "            return EpochEndResult(error=error.code)\n",
                "            partition.check_access(-1, leader_only=True)\n"
                "        except KafkaError as error:\n"
                "            return EpochEndResult(error=error.code)\n",
            ),
        ),
        without_it="a follower truncates to the end of a leader that is about to truncate itself: S15",
        source="KIP-320",
    ),
    # Where two logs diverge.
    Mutant(
        "a follower truncates",
        (
            Edit(
                "replication.replica_manager.followed",
                "            hosted.log.truncate_to(offset)\n",
                "            pass\n",
            ),
        ),
        without_it="records that the leader does not have are kept, or nothing is fetched any more",
        source="ReplicaFetcherThread.truncate",
    ),
    Mutant(
        "an answer about an older epoch does not end the truncation",
        (
            Edit(
                TRUNCATION,
                "        return OffsetTruncationState(min(local.offset, log_end), completed=False)",
                "        return OffsetTruncationState(min(leader.offset, log_end), completed=True)",
            ),
        ),
        without_it="records of an epoch that the leader never saw are kept: S03",
        source="KIP-279",
    ),
    Mutant(
        "the follower's own end of the epoch counts too",
        (
            Edit(
                TRUNCATION,
                "    return OffsetTruncationState("
                "min(local.offset, leader.offset, log_end), completed=True)",
                "    return OffsetTruncationState(min(leader.offset, log_end), completed=True)",
            ),
        ),
        without_it="records that it wrote itself in a later leader epoch are kept: S09, shape F",
        source="KIP-279",
    ),
    Mutant(
        "an epoch that is longer on the follower diverges",
        (
            Edit(
                "replication.leader.rules.log_reader",
                "    if end.leader_epoch < last_fetched_epoch or end.offset < fetch_offset:",
                "    if end.leader_epoch < last_fetched_epoch:",
            ),
        ),
        without_it="a tail of the same epoch that the leader does not have is kept",
        source="KIP-595",
    ),
    # The responses it uses.
    Mutant(
        "a diverging response has no data",
        (
            Edit(
                FETCHER,
                "                follow_up.diverging[tp] = OffsetAndEpoch"
                "(diverging.end_offset, diverging.epoch)",
                "                follow_up.diverging[tp] = OffsetAndEpoch"
                "(diverging.end_offset, diverging.epoch)\n"
                "                self._append(tp, state, data)",
            ),
        ),
        without_it="the high watermark moves past records that are truncated next: S07",
        source="KAFKA-14704",
    ),
    Mutant(
        "a response is for the offset of the request",
        (
            Edit(
                FETCHER,
                "                and state.fetch_offset == asked.fetch_offset\n",
                "",
            ),
        ),
        without_it="records from before a truncation are appended after it: S12",
        source="AbstractFetcherThread.processFetchRequest",
    ),
    Mutant(
        "a response is of the leader epoch of the request",
        (
            Edit(
                FETCHER,
                "                and state.current_leader_epoch == asked.current_leader_epoch\n",
                "",
            ),
        ),
        without_it="a divergence of another leader epoch truncates what is committed since: S11",
        source="KAFKA-18991",
    ),
    Mutant(
        "a response is for its request",
        (
            Edit(
                FETCHER,
                "                and state.fetch_offset == asked.fetch_offset\n"
                "                and state.current_leader_epoch == asked.current_leader_epoch\n",
                "",
            ),
        ),
        without_it="the same as without the two before it, which cover each other in part",
        source="KAFKA-18991",
    ),
    Mutant(
        "an epoch's end is of the leader epoch of the request",
        (
            Edit(
                "replication.follower.log_truncation",
                "        if state is None or state.current_leader_epoch"
                " != asked.current_leader_epoch:",
                "        if state is None:",
            ),
        ),
        without_it="a truncation that another leader epoch has made wrong",
        source="KAFKA-7786",
    ),
    Mutant(
        "no batch of a later epoch is appended",
        (
            Edit(
                "storage.log.append",
                "        if leader_epoch is not None and header.leader_epoch > leader_epoch:\n",
                "        if leader_epoch is not None and header.leader_epoch >= 1 << 31:\n",
            ),
        ),
        without_it="records of a leader that was never followed in that epoch (I2b)",
        source="KAFKA-18723",
    ),
    Mutant(
        "records are appended at the log's end only",
        (
            Edit(
                "replication.leader.partition",
                "        if fetch_offset != log.local.log_end_offset:",
                "        if fetch_offset < 0:",
            ),
        ),
        without_it="holes and overlaps, where the checks before this one fail",
        source="ReplicaFetcherThread.processPartitionData",
        covered="a response is for the offset of its request, which is where the log ends",
    ),
    # Topic ids.
    Mutant(
        "only the deleted topic loses its log",
        (
            Edit(
                "replication.replica_manager.roles",
                "            if log is None or log.topic_id == removed.topic_id:",
                "            if True:",
            ),
        ),
        without_it="late news of a deleted topic delete the new topic of its name",
        source="KIP-516",
        caught_by="tests/replication/replica_manager/test_replica_roles.py"
        "::test_news_of_an_old_topics_end_leave_the_new_one_of_its_name_alone",
    ),
)
