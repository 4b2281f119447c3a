"""Runs of a simulated quorum, one for each seed, and what each shows.

    trouble     for half a minute whatever the run's kinds of fault bring
    progress    all is whole again: soon every node knows one leader and all that it commits
    return      a voter that was cut off comes back, and the leader stays (KIP-996)
    alone       a leader that is cut off resigns, the others elect another one and go on
    end         whole again, all logs are equal

`python -m tests.replication.raft.runs 1 200` runs these seeds, and prints what each had in it.
"""

import sys
import traceback
from random import Random

import attrs

from tests.replication.raft.checkers import CHECK_QUORUM_MS, RuleBrokenError, require
from tests.replication.raft.faults import drawn
from tests.replication.raft.network import LinkQuality
from tests.replication.raft.node import SETTINGS
from tests.replication.raft.world import Shape, World

TROUBLE_MS = 30_000
PROGRESS_MS = 30_000
"""The time in which a quorum that is whole elects a leader and commits: Kafka bounds the moves."""


@attrs.frozen(kw_only=True)
class RaftRun:
    """The outcome of a run."""

    seed: int
    lines: tuple[str, ...]
    """The faults that happened, each with its time."""
    wrong: str
    """The failure in one line; empty where nothing failed."""
    rule: str
    """The rule that it broke."""
    traceback: str
    moves: int
    elections: int
    committed: int
    truncations: int
    snapshots: int
    voter_changes: int
    trace: int
    """A number that two runs share if they are the same."""


def run_seed(seed: int) -> RaftRun:
    """Return the run of that seed; an error in it ends it, and is part of it."""
    world = World(shape_of(seed), str(seed))
    wrong, rule, where = "", "", ""
    try:
        play(world, Random(f"{seed} faults"))
    except Exception as error:  # noqa: BLE001 (a rule that raises has failed)
        wrong, where = f"{type(error).__name__}: {error}", traceback.format_exc()
        broken = isinstance(error, RuleBrokenError)
        rule = str(error).partition(":")[0] if broken else type(error).__name__
    checkers = world.checkers
    return RaftRun(
        seed=seed,
        lines=tuple(world.lines),
        wrong=wrong,
        rule=rule,
        traceback=where,
        moves=world.moves,
        elections=checkers.elections,
        committed=len(checkers.committed),
        truncations=checkers.truncations,
        snapshots=checkers.snapshots,
        voter_changes=checkers.voter_changes,
        trace=world.links.chance.getrandbits(64),
    )


def shape_of(seed: int) -> Shape:
    """Draw the size of a run, and how bad its links and disks are."""
    chance = Random(f"{seed} shape")
    return Shape(
        voters=chance.choice((1, 2, 3, 3, 3, 3, 4, 5, 5)),
        observers=chance.choice((0, 0, 1, 2)),
        quality=LinkQuality(
            delay_ms=chance.choice((2, 10, 10, 50, 150)),
            loss=chance.choice((0, 0, 0.02, 0.1, 0.25)),
            duplicates=chance.choice((0, 0.05, 0.2)),
        ),
        sync_ms=chance.choice((0, 5, 5, 50, 200)),
        is_dynamic=chance.random() < 0.5,
        jitter_ms=chance.choice((50, 300, 1000)),
    )


def play(world: World, chance: Random) -> None:
    have_trouble(world, chance)
    make_whole(world)
    make_progress(world, world.ids)
    return_to_the_quorum(world, chance)
    leave_the_leader_alone(world)
    make_whole(world)
    make_progress(world, world.ids)


def have_trouble(world: World, chance: Random) -> None:
    kinds = drawn(chance)
    weights = [kind.weight for kind in kinds]
    pace_ms = chance.choice((100, 300, 1000))
    end_ms = world.schedule.now_ms + TROUBLE_MS
    while world.schedule.now_ms < end_ms:
        [kind] = chance.choices(kinds, weights)
        line = kind.fault(world, chance)
        if line:
            world.say(line)
        world.run(1 + int(chance.expovariate(1 / pace_ms)))


def make_whole(world: World) -> None:
    """Start all nodes, and heal the links: from here on nothing is lost."""
    world.say("heal and start all")
    world.links.cut.clear()
    world.links.quality = LinkQuality(min(world.links.quality.delay_ms, 50))
    for node in world.ids:
        world.start(node)
        world.processes[node].paused_until_ms = 0
        world.processes[node].work()


def make_progress(world: World, nodes: list[int]) -> None:
    """Require that these nodes soon agree on a leader, and that a new entry is committed on all."""
    processes = [world.processes[node] for node in nodes]

    def agree() -> bool:
        leader = processes[0].quorum.leader_id
        epoch = processes[0].quorum.leader_epoch
        is_voter = leader in processes[0].voters.ids
        return (
            is_voter
            and leader in nodes
            and all(
                (each.quorum.leader_id, each.quorum.leader_epoch) == (leader, epoch)
                for each in processes
            )
        )

    world.run_until(agree, PROGRESS_MS, "one leader for all")
    before = len(world.checkers.committed)
    world.append(1)
    world.run_until(
        lambda: all(each.high_watermark > before for each in processes),
        PROGRESS_MS,
        "what is appended is committed on all",
    )


def return_to_the_quorum(world: World, chance: Random) -> None:
    """Cut one node off that does not lead, for long; it comes back, and nothing changes."""
    world.run(SETTINGS.fetch_timeout_ms)  # the leader may be a new one
    leader = world.leader()
    followers = [node for node in world.ids if node != leader]
    if leader is None or not followers:
        return
    node = chance.choice(followers)
    if not world.can_spare(node):
        return
    epoch = world.processes[leader].quorum.leader_epoch
    world.say(f"isolate {node}, which does not lead")
    world.isolate(node)
    world.run(chance.randint(1, 4) * SETTINGS.fetch_timeout_ms)
    world.say("heal")
    world.links.cut.clear()
    world.run(2 * SETTINGS.fetch_timeout_ms)
    found = world.processes[leader].quorum.leader_epoch
    require(
        world.leader() == leader and found == epoch,
        "a node that returns deposes no leader",
        *(node, "returns:", leader, "in", epoch, "is followed by", world.leader(), "in", found),
    )


def leave_the_leader_alone(world: World) -> None:
    """Cut the leader off: it resigns, and the rest goes on without it."""
    leader = world.leader()
    if leader is None or not world.can_spare(leader):
        return
    world.say(f"isolate {leader}, which leads")
    world.isolate(leader)
    process = world.processes[leader]
    epoch = process.quorum.leader_epoch
    world.run_until(
        lambda: not process.is_leader or process.quorum.leader_epoch != epoch,
        2 * CHECK_QUORUM_MS,
        "a leader alone resigns",
    )
    make_progress(world, [node for node in world.ids if node != leader])


def main(first: int, last: int) -> int:
    failed = 0
    for seed in range(first, last + 1):
        run = run_seed(seed)
        failed += bool(run.wrong)
        print(
            f"{seed:>5}  {run.moves:>6} moves {run.elections:>3} elections"
            f" {run.committed:>4} committed {run.truncations:>3} truncations"
            f" {run.snapshots:>3} snapshots  {run.wrong}"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
