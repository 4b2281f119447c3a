"""Checks of a node of the quorum: what its tasks sync, send and answer, and when."""

from tests.mutants.mutant import Edit, Mutant

NODE = "replication.raft.node"
ENDPOINT = "replication.raft.endpoint"
LOG_SERVICE = "replication.raft.log_service"
CONTROLLER = "replication.controller.controller"
LOG = "replication.metadata.log"

MUTANTS = (
    Mutant(
        "a decision is answered once it is committed",
        (
            Edit(
                CONTROLLER,
                "        await self.log.wait_until_committed(end, leader_epoch)\n"
                "        if of_client",
                "        if of_client",
            ),
        ),
        without_it="a request is answered, and the next controller has never heard of it: S76",
        source="KIP-595, QuorumController.ControllerWriteEvent",
    ),
    Mutant(
        "a broker is sent what is committed",
        (
            Edit(
                LOG_SERVICE,
                "                end=node.log.log_end_offset if is_voter"
                " else node.log.high_watermark,\n",
                "                end=node.log.log_end_offset,\n",
            ),
        ),
        without_it="a broker leads by an election that no other controller has: S75",
        source="KIP-595, KafkaRaftClient.tryCompleteFetchRequest",
    ),
    Mutant(
        "a vote is written before it is sent",
        (
            Edit(
                NODE,
                "                await self.seams.offload(write)\n",
                "                await self.seams.offload(lambda: None)\n",
            ),
        ),
        without_it="a voter that lost its power votes again in the same epoch",
        source="KIP-595, QuorumState.durableTransitionTo",
    ),
    Mutant(
        "a vote is synced before it is sent",
        (
            Edit(
                NODE,
                "                    await self._persist(effect)\n",
                "                    self._tasks.start_soon(self._persist, effect)\n",
            ),
        ),
        without_it="a voter that lost its power votes again in the same epoch",
        source="KIP-595, QuorumState.durableTransitionTo",
    ),
    Mutant(
        "a follower flushes what it has fetched before it fetches again",
        (
            Edit(
                ENDPOINT,
                "        if log.flushed_end_offset < log.log_end_offset:\n",
                "        if log.flushed_end_offset < 0:\n",
            ),
        ),
        without_it="a power cut takes what a majority was said to have",
        source="KIP-595, KafkaRaftClient.appendAsFollower",
    ),
    Mutant(
        "a leader's own records count once they are flushed",
        (
            Edit(
                NODE,
                "            flushed_end_offset=log.flushed_end_offset,\n",
                "            flushed_end_offset=log.log_end_offset,\n",
            ),
        ),
        without_it="a power cut takes what a majority was said to have",
        source="KIP-595, docs/departures.md",
    ),
    Mutant(
        "a controller that is deposed decides no more",
        (
            Edit(
                NODE,
                "                    self.log.step_down()\n"
                "                    self._become_active(None)\n",
                "                    pass\n",
            ),
        ),
        without_it="two controllers decide, and one of them into the log of the other",
        source="QuorumController.renounce",
    ),
    Mutant(
        "a new leader decides once the start of its epoch is committed",
        (
            Edit(
                NODE,
                "            await self.log.wait_until_committed(epoch_start_offset + 1,"
                " leader_epoch)\n",
                "",
            ),
        ),
        without_it="it decides without what the leader before it had committed",
        source="KafkaRaftClient.maybeFireHandleLeaderChange",
    ),
    Mutant(
        "a new leader has applied what is committed",
        (
            Edit(
                NODE,
                "            await self.log.apply_committed()\n        except KafkaError:",
                "        except KafkaError:",
            ),
        ),
        without_it="it decides without what the leader before it had committed",
        source="KafkaRaftClient.maybeFireHandleLeaderChange",
    ),
    Mutant(
        "what a leader could not commit is not in its image afterwards",
        (
            Edit(
                LOG,
                "        self.leading_epoch = None\n        self.image = self.committed_image\n",
                "        self.leading_epoch = None\n",
            ),
        ),
        without_it="it decides by an election that it has taken back",
        source="QuorumController.renounce, SnapshotRegistry.revertToSnapshot",
        covered="the next committed record that is applied replaces the image, and a new leader has"
        " one: the start of its epoch",
    ),
    Mutant(
        "what a start reads is synced, though a sync had failed",
        (Edit(LOG, "            _write_again(file_system, log)\n", ""),),
        without_it="a voter counts for what only its page cache has: see docs/found.md",
        source="docs/found.md",
    ),
    Mutant(
        "a snapshot replaces the log for which it was named",
        (
            Edit(
                LOG,
                "                if self._last != received.instead_of:\n"
                "                    return\n",
                "",
            ),
            Edit(
                LOG,
                "                if self._last == received.instead_of:\n"
                "                    await self.seams.offload(received.freeze)\n",
                "                await self.seams.offload(received.freeze)\n",
            ),
        ),
        without_it="a follower cuts off what it has acknowledged: see docs/found.md",
        source="ReplicatedLog.truncateToLatestSnapshot, docs/found.md",
        caught_by="tests/replication/metadata/test_metadata_follower.py"
        "::test_a_snapshot_replaces_no_log_that_has_moved_on",
    ),
)
