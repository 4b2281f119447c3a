"""Checks of the rules of KRaft: elections, what is committed, and the voters."""

from functools import partial

from tests.mutants.mutant import QUORUM, Edit, Mutant

STEP = "replication.raft.rules.step"
TURN = "replication.raft.rules.turn"
REQUESTS = "replication.raft.rules.requests"
ANSWERS = "replication.raft.rules.answers"
STATES = "replication.raft.rules.states"
LOG_VIEW = "replication.raft.rules.log_view"
LEADER = "replication.raft.rules.leader"
MEMBERSHIP = "replication.raft.rules.membership"
TYPES = "replication.raft.rules.types"
VOTERS = "replication.raft.rules.voters"

QuorumMutant = partial(Mutant, simulator=QUORUM)

MUTANTS = (
    # Votes.
    QuorumMutant(
        "a vote is remembered over a restart",
        (
            Edit(
                STEP,
                "leader_epoch=epoch, leader_id=leader_id, voted=voted, deadline_ms=deadline_ms",
                "leader_epoch=epoch, leader_id=leader_id, voted=None, deadline_ms=deadline_ms",
            ),
        ),
        without_it="a voter that was killed votes for two candidates of one epoch",
        source="QuorumState.initialize",
    ),
    QuorumMutant(
        "a vote is kept while its epoch lasts",
        (
            Edit(
                TURN,
                "        return election.voted if election.leader_epoch == leader_epoch else None",
                "        return None",
            ),
        ),
        without_it="a voter that stood for election in vain votes again in the same epoch",
        source="KIP-996, QuorumState.transitionToUnattached",
    ),
    QuorumMutant(
        "an epoch and a vote are synced before they are sent",
        (
            Edit(
                STEP,
                "        turn.effects.append(Persist(after.state.election_state))",
                "        pass",
            ),
        ),
        without_it="after a kill a voter is back in an epoch that it had left, and votes in it",
        source="QuorumState.durableTransitionTo",
    ),
    QuorumMutant(
        "a voter has one vote",
        (
            Edit(
                STATES,
                "        return state.voted.matches(candidate)  # it may not have heard the answer",
                "        return up_to_date",
            ),
        ),
        without_it="two candidates of one epoch are elected",
        source="UnattachedState.canGrantVote",
    ),
    QuorumMutant(
        "no vote for a shorter log",
        (
            Edit(
                LOG_VIEW,
                "        return (last_epoch, end_offset) >= (self.last_epoch, self.end_offset)",
                "        return last_epoch >= self.last_epoch",
            ),
        ),
        without_it="a leader is elected that does not have what is committed",
        source="KafkaRaftClient.handleVoteRequest",
    ),
    QuorumMutant(
        "no vote for a log that ends in an older epoch",
        (
            Edit(
                LOG_VIEW,
                "        return (last_epoch, end_offset) >= (self.last_epoch, self.end_offset)",
                "        return end_offset >= self.end_offset",
            ),
        ),
        without_it="a leader is elected that does not have what is committed",
        source="KafkaRaftClient.handleVoteRequest",
    ),
    QuorumMutant(
        "a leader has a majority of the votes",
        (
            Edit(
                STATES,
                "        return len(self.voters) // 2 + 1",
                "        return (len(self.voters) + 1) // 2",
            ),
        ),
        without_it="half of an even number of voters elect a leader, and the other half another",
        source="EpochElection.isVoteGranted",
    ),
    QuorumMutant(
        "the answer to a pre-vote is no vote",
        (
            Edit(
                ANSWERS,
                "        return (call.pre_vote, call.leader_epoch)"
                " == (now.pre_vote, now.leader_epoch)",
                "        return call.leader_epoch <= now.leader_epoch",
            ),
        ),
        without_it="a late answer to a pre-vote counts as a vote that was never given",
        source="KIP-996",
        covered="such an answer names the epoch before, and counts for nothing",
    ),
    # Who stands for election.
    QuorumMutant(
        "voters are asked before the epoch is raised",
        (
            Edit(
                TURN,
                "        self.enter(self.prospective(voted=self.vote_in(state.leader_epoch)))\n"
                "        self.settle_election()",
                "        self.enter_candidate(state.leader_epoch + 1)",
            ),
        ),
        without_it="a node that was cut off deposes a healthy leader when it returns",
        source="KIP-996",
    ),
    QuorumMutant(
        "a follower of a leader that answers grants no pre-vote",
        (
            Edit(
                STATES,
                "        return pre_vote and up_to_date and not self.has_fetched",
                "        return pre_vote and up_to_date",
            ),
        ),
        without_it="a node that was cut off deposes a healthy leader when it returns",
        source="KIP-996, FollowerState.canGrantVote",
    ),
    QuorumMutant(
        "an observer that starts stands for no election",
        (
            Edit(
                STEP,
                "    deadline_ms = turn.election_ms if quorum.is_voter else None\n    turn.enter(",
                "    deadline_ms = turn.election_ms\n    turn.enter(",
            ),
        ),
        without_it="a node that is no voter counts its own vote: see docs/found.md",
        source="UnattachedState, docs/found.md",
    ),
    QuorumMutant(
        "a leader that restarts leads in its epoch no more",
        (
            Edit(
                STEP,
                "    elif leader_id == quorum.me.id:\n        turn.enter_resigned(())",
                "    elif leader_id == quorum.me.id:\n        turn.enter_candidate(epoch)",
            ),
        ),
        without_it="it appends other entries at the offsets of entries that its kill took",
        source="QuorumState.initialize",
    ),
    # What is committed.
    QuorumMutant(
        "a leader that nobody fetches from resigns",
        (
            Edit(
                STEP,
                "if progress.deadline_ms is not None and progress.deadline_ms <= turn.now_ms:",
                "if progress.deadline_ms is not None and turn.now_ms < 0:",
            ),
        ),
        without_it="it goes on accepting entries that can never be committed",
        source="LeaderState.timeUntilCheckQuorumExpires",
    ),
    QuorumMutant(
        "entries of earlier epochs are committed by one of this epoch",
        (
            Edit(
                LEADER,
                "    least = progress.epoch_start_offset if known is None else known",
                "    least = NOTHING_FLUSHED if known is None else known",
            ),
        ),
        without_it="another leader may take back what a majority has of an earlier epoch",
        source="LeaderState.maybeUpdateHighWatermark, Raft 5.4.2",
    ),
    QuorumMutant(
        "a leader counts itself once it has synced",
        (
            Edit(
                STEP,
                "state.progress.flushed(turn.log.flushed_end_offset)",
                "state.progress.flushed(turn.log.end_offset)",
            ),
        ),
        without_it="a kill of the leader takes what it called committed",
        source="KIP-595, docs/departures.md",
    ),
    QuorumMutant(
        "a majority commits",
        (
            Edit(
                LEADER,
                "flushed[voters.majority - 1]",
                "flushed[(len(voters.nodes) + 1) // 2 - 1]",
            ),
        ),
        without_it="half of an even number of voters commit, and the other half other entries",
        source="LeaderState.maybeUpdateHighWatermark",
    ),
    QuorumMutant(
        "a fetch from a log that diverges is not counted",
        (
            Edit(
                REQUESTS,
                "    elif isinstance(position, ReadOn):\n",
                "    elif position is not None:\n",
            ),
        ),
        without_it="entries count as copied that are others on the follower",
        source="KAFKA-13141, KafkaRaftClient.tryCompleteFetchRequest",
    ),
    QuorumMutant(
        "a leading controller refuses a fetch of an earlier epoch",
        (
            Edit(
                TURN,
                "        if leader_epoch != self.quorum.leader_epoch:\n            is_old",
                "        if leader_epoch > self.quorum.leader_epoch:\n            is_old",
            ),
        ),
        without_it="a fetch counts for a leader that the follower does not follow",
        source="KafkaRaftClient.validateLeaderOnlyRequest",
        covered="an offset counts past the start of the epoch only: such a follower has no entry of it",
    ),
    QuorumMutant(
        "a log that ends in an epoch of its own diverges",
        (
            Edit(
                LOG_VIEW,
                "    if end.leader_epoch != last_fetched_epoch or end.offset < fetch_offset:",
                "    if end.offset < fetch_offset:",
            ),
        ),
        without_it="entries of an epoch that the leader never saw are kept, and counted",
        source="ReplicatedLog.validateOffsetAndEpoch",
    ),
    QuorumMutant(
        "a log that is longer in an epoch diverges",
        (
            Edit(
                LOG_VIEW,
                "    if end.leader_epoch != last_fetched_epoch or end.offset < fetch_offset:",
                "    if end.leader_epoch != last_fetched_epoch:",
            ),
        ),
        without_it="a tail that the leader does not have is kept, and counted",
        source="ReplicatedLog.validateOffsetAndEpoch",
    ),
    QuorumMutant(
        "a follower truncates what differs, and nothing below the high watermark",
        (
            Edit(
                LOG_VIEW,
                "        return Diverging(end)\n",
                "        return Diverging(OffsetAndEpoch(max(end.offset - 1, 0), end.leader_epoch))\n",
            ),
            Edit(
                ANSWERS,
                "    if isinstance(position, Diverging) and position.end.offset < committed:",
                "    if isinstance(position, Diverging) and position.end.offset < 0:",
            ),
        ),
        without_it="a follower cuts off entries that are committed, and may elect a leader without",
        source="KIP-279, ReplicatedLog.truncateToEndOffset",
    ),
    QuorumMutant(
        "what is committed is not truncated",
        (
            Edit(
                ANSWERS,
                "    if isinstance(position, Diverging) and position.end.offset < committed:",
                "    if isinstance(position, Diverging) and position.end.offset < 0:",
            ),
        ),
        without_it="a majority whose disks have lied takes from the others what was committed",
        source="KafkaRaftClient.handleFetchResponse, ReplicatedLog.truncateToEndOffset",
        caught_by="tests/replication/raft/test_simulation.py"
        "::test_a_node_keeps_what_is_committed_from_a_majority_that_has_lost_it",
    ),
    QuorumMutant(
        "a fetch that waits is no new sign of life",
        (
            Edit(
                REQUESTS,
                "    if event.replica.id >= 0 and not event.has_waited:",
                "    if event.replica.id >= 0:",
            ),
        ),
        without_it="a leader whose followers are dead resigns later than after check quorum's time",
        source="LeaderState.timeUntilCheckQuorumExpires",
    ),
    QuorumMutant(
        "a high watermark is in the log",
        (
            Edit(
                STEP,
                "        turn.raise_high_watermark(min(leaders, turn.log.end_offset))",
                "        turn.raise_high_watermark(leaders)",
            ),
        ),
        without_it="a follower takes what it does not have for committed",
        source="KafkaRaftClient.updateFollowerHighWatermark",
    ),
    # The voters.
    QuorumMutant(
        "a truncation takes a voter set back",
        (
            Edit(
                VOTERS,
                "            sets=self.sets.truncated(end_offset),",
                "            sets=self.sets,",
            ),
        ),
        without_it="a node counts votes among voters that no log names",
        source="VoterSetHistory.truncateNewEntries",
    ),
    QuorumMutant(
        "a voter set counts for its leader from its append on",
        (
            Edit(
                STEP,
                "            turn.take_progress(state.progress.among(voters))",
                "            pass",
            ),
        ),
        without_it="what the former voters have is called committed, the new ones may not have it",
        source="LeaderState.updateLocalState, KIP-853",
    ),
    QuorumMutant(
        "no change of the voters while another one is not committed",
        (
            Edit(
                MEMBERSHIP,
                "    if ground.pending is not None:",
                "    if ground.pending is not None and needs_offset < 0:",
            ),
            Edit(
                MEMBERSHIP,
                "    elif needs_offset and not ground.is_committed:",
                "    elif needs_offset and ground.is_committed < 0:",
            ),
        ),
        without_it="two majorities that do not meet, one of before both changes and one of after",
        source="KIP-853, AddVoterHandler.handleAddVoterRequest",
    ),
    QuorumMutant(
        "a leader that is no voter any more resigns",
        (
            Edit(
                MEMBERSHIP,
                "        return self.is_committed and not self.voters.is_voter(self.progress.me)",
                "        return False",
            ),
        ),
        without_it="it leads on, and no voter that knows it would elect it",
        source="RemoveVoterHandler.highWatermarkUpdated",
    ),
    QuorumMutant(
        "a voter with another disk is another voter",
        (
            Edit(
                TYPES,
                "        return self.id == replica.id and self.directory_id in {\n"
                "            NO_DIRECTORY_ID,\n"
                "            replica.directory_id,\n"
                "        }",
                "        return self.id == replica.id",
            ),
        ),
        without_it="a node that has lost its disk counts for what it had on it, and votes again",
        source="KIP-853, ReplicaKey",
    ),
)
