"""The rules of KRaft in simulated quorums: nothing goes wrong in random runs, and in directed ones
what Apache Kafka's RaftEventSimulationTest asserts.
"""

import os
import subprocess
import sys
from random import Random

import attrs
import pytest

from replication.raft.rules.messages import AddVoterReceived, RemoveVoterReceived
from tests.deep import one_in
from tests.replication.raft.checkers import Checkers, RuleBrokenError
from tests.replication.raft.disk import Entry, NaiveLog, UnsyncedDisk, flushed_end
from tests.replication.raft.quorums import voter_set
from tests.replication.raft.runs import make_progress, make_whole, run_seed
from tests.replication.raft.world import Shape, World

SEEDS = (1, 2)
SOME = 7


@pytest.mark.parametrize("seed", one_in(20, range(1, 201)))
@pytest.mark.conformance("KR-307")
@pytest.mark.conformance("KR-308")
@pytest.mark.conformance("KR-309")
@pytest.mark.conformance("KR-310")
@pytest.mark.conformance("KR-313")
def test_nothing_goes_wrong(seed: int) -> None:
    run = run_seed(seed)
    assert not run.wrong, "\n".join([*run.lines, run.traceback])


def test_random_runs_have_what_they_are_to_find() -> None:
    runs = [run_seed(seed) for seed in range(1, 6)]
    assert all(run.committed > 0 for run in runs)
    assert sum(run.elections for run in runs) > 3 * len(runs)
    assert sum(run.truncations for run in runs) > 0
    assert sum(run.snapshots for run in runs) > 0


@pytest.mark.parametrize("hash_seed", one_in(2, ["1", "2"]))
def test_another_process_repeats_the_same_run(hash_seed: str) -> None:
    code = f"from tests.replication.raft.runs import run_seed; print(run_seed({SOME}).trace)"
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(result.stdout) == run_seed(SOME).trace


# What RaftEventSimulationTest asserts, in worlds without chance but for delays.


def quorum(voters: int, seed: int, observers: int = 1) -> World:
    """Return a quorum that has elected a leader and committed ten entries."""
    world = World(Shape(voters, observers), f"directed {voters} {seed}")
    make_progress(world, world.ids)
    for _ in range(10):
        world.append(1)
        world.run(20)
    return world


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("voters", range(1, 6))
@pytest.mark.conformance("KR-300")
def test_a_first_leader_is_elected(voters: int, seed: int) -> None:
    world = quorum(voters, seed)
    make_progress(world, world.ids)
    assert world.checkers.committed[0].epoch == 1


LEADERLESS_MS = {"kill": 10_000, "resign": 1_000, "isolate": 10_000}
"""The time until another one leads; a leader that resigns names its successors."""
FAILURES = {"kill": World.kill, "resign": World.resign, "isolate": World.isolate}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("voters", range(3, 6))
@pytest.mark.parametrize(
    "way",
    [
        pytest.param("kill", marks=pytest.mark.conformance("KR-301")),
        pytest.param("resign", marks=pytest.mark.conformance("KR-314")),
        pytest.param("isolate", marks=pytest.mark.conformance("KR-303")),
    ],
)
def test_another_leader_follows_one_that_fails(way: str, voters: int, seed: int) -> None:
    world = quorum(voters, seed)
    leader = world.leader()
    assert leader is not None
    FAILURES[way](world, leader)
    rest = [node for node in world.ids if way == "resign" or node != leader]
    world.run_until(lambda: world.leader() not in {None, leader}, LEADERLESS_MS[way], "a leader")
    make_progress(world, rest)
    make_whole(world)
    make_progress(world, world.ids)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("voters", range(1, 6))
@pytest.mark.conformance("KR-302")
def test_a_majority_goes_on_after_all_were_killed(voters: int, seed: int) -> None:
    world = quorum(voters, seed)
    for node in world.ids:
        world.kill(node)
    majority = world.ids[: voters // 2 + 1]
    for node in majority:
        world.start(node)
    make_progress(world, majority)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.conformance("KR-304")
def test_the_larger_part_of_a_split_quorum_goes_on(seed: int) -> None:
    world = quorum(5, seed, observers=0)
    for few in (1, 2):
        for many in (3, 4, 5):
            world.links.cut |= {(few, many), (many, few)}
    make_progress(world, [3, 4, 5])
    committed = world.processes[3].high_watermark
    assert all(world.processes[node].high_watermark < committed for node in (1, 2))
    make_whole(world)
    make_progress(world, world.ids)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("voters", range(3, 6))
@pytest.mark.conformance("KR-305")
def test_leaders_that_fail_one_after_the_other(voters: int, seed: int) -> None:
    world = quorum(voters, seed)
    for _ in range(3):
        leader = world.leader()
        assert leader is not None
        world.links.cut.clear()
        world.isolate(leader)
        make_progress(world, [node for node in world.ids if node != leader])
    make_whole(world)
    make_progress(world, world.ids)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.conformance("KR-311")
@pytest.mark.conformance("KR-312")
def test_a_node_that_the_log_has_left_behind_fetches_the_snapshot(seed: int) -> None:
    world = quorum(3, seed, observers=0)
    world.kill(1)
    make_progress(world, [2, 3])
    for node in (2, 3):
        process = world.processes[node]
        process.disk.log.write(attrs.evolve(process.log, start=process.high_watermark))
    world.around.disks[1].log.write(NaiveLog())
    world.start(1)
    make_progress(world, world.ids)
    assert world.checkers.snapshots == 1
    assert world.processes[1].log.start > 0


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.conformance("KR-306")
def test_a_voter_that_has_lost_its_disk_is_replaced(seed: int) -> None:
    world = World(Shape(3, is_dynamic=True), f"replaced {seed}")
    make_progress(world, world.ids)
    lost = next(node for node in world.ids if node != world.leader())
    former = world.processes[lost].me
    world.kill(lost)
    world.replace_disk(lost, bytes([9]) * 16)
    world.start(lost)
    make_progress(world, world.ids)
    process = world.processes[lost]
    assert process.me not in process.voters.keys
    world.asks(RemoveVoterReceived(voter=former))
    make_progress(world, world.ids)
    world.asks(AddVoterReceived(voter=process.me, endpoints=process.quorum.endpoints))
    make_progress(world, world.ids)
    assert process.voters.is_voter(process.me)
    assert world.checkers.voter_changes == 2


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.conformance("KR-315")
def test_a_leader_that_is_removed_hands_over(seed: int) -> None:
    world = World(Shape(3, is_dynamic=True), f"removed {seed}")
    make_progress(world, world.ids)
    leader = world.leader()
    assert leader is not None
    world.asks(RemoveVoterReceived(voter=world.processes[leader].me))
    make_progress(world, world.ids)
    assert world.leader() not in {None, leader}
    assert world.processes[leader].voters.ids == set(world.ids) - {leader}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_keeps_what_is_committed_from_a_majority_that_has_lost_it(seed: int) -> None:
    """Two of three disks have lied, so that their nodes elect a leader without what was committed."""
    world = quorum(3, seed, observers=0)
    keeps, *others = sorted(world.ids, key=lambda node: node == world.leader())
    world.isolate(keeps)
    for node in others:
        world.kill(node)
        disk = world.around.disks[node].log
        disk.versions = [disk.read.truncated(3)]
    world.checkers.committed, world.checkers.committed_in = [], []
    for node in others:
        world.start(node)
    make_progress(world, others)
    world.links.cut.clear()
    with pytest.raises(RuleBrokenError, match=f"{keeps} heard: the leader's log ends at"):
        world.run(20_000)


# The parts of the simulator, where they decide what a run may find.


def test_a_disk_may_lose_what_was_not_synced() -> None:
    first, second, third = (NaiveLog((Entry(1, 0),) * length) for length in (1, 2, 3))
    disk = UnsyncedDisk([first])
    disk.write(second)
    written = disk.written
    disk.write(third)
    assert flushed_end(disk) == 1
    disk.synced(written)
    assert disk.versions == [second, third]
    assert flushed_end(disk) == 2
    left = set()
    for seed in range(20):
        lost = UnsyncedDisk([second, third])
        lost.lose(Random(seed))
        left.add(lost.read)
    assert left == {second, third}


def test_a_truncation_that_is_not_synced_leaves_only_what_both_logs_have() -> None:
    old = NaiveLog((Entry(1, 0), Entry(1, 1), Entry(1, 2)))
    disk = UnsyncedDisk([old])
    disk.write(old.truncated(1))
    disk.write(old.truncated(1).with_entries(Entry(2, 7)))
    assert flushed_end(disk) == 1


def test_majorities_of_sets_that_differ_by_one_voter_meet() -> None:
    checkers = Checkers()
    checkers.changes_voters(voter_set(1, 2, 3), voter_set(1, 2, 3, 4))
    with pytest.raises(RuleBrokenError, match="majorities"):
        checkers.changes_voters(voter_set(1, 2, 3), voter_set(2, 3, 4))
