"""What goes wrong in a run: one table of faults, each with the weight it is drawn with.

A run has some kinds of fault and not others: where everything may happen at any time, most of it
hides the rest (swarm testing, Groce et al., 2012). A fault that cannot happen now is passed over.
"""

from collections.abc import Callable
from random import Random

import attrs

from replication.raft.rules.messages import AddVoterReceived, RemoveVoterReceived, UpgradeAsked
from replication.raft.rules.voters import RECONFIGURABLE
from tests.replication.raft.world import World

Fault = Callable[[World, Random], str]
"""A function that makes a fault happen, and returns what it did in one line; empty for nothing."""


def kill(world: World, chance: Random) -> str:
    node = chance.choice(world.ids)
    if not world.is_running(node):
        return ""
    world.kill(node)
    return f"kill {node}"


def kill_leader(world: World, chance: Random) -> str:
    leader = world.leader()
    if leader is None:
        return ""
    world.kill(leader)
    return f"kill {leader}, which leads"


def kill_all(world: World, chance: Random) -> str:
    for node in world.ids:
        world.kill(node)
    return "kill all"


def start(world: World, chance: Random) -> str:
    stopped = [node for node in world.ids if not world.is_running(node)]
    if not stopped:
        return ""
    node = chance.choice(stopped)
    world.start(node)
    return f"start {node}"


def restart(world: World, chance: Random) -> str:
    node = chance.choice(world.ids)
    world.kill(node)
    world.start(node)
    return f"kill and start {node}"


def restart_voter(world: World, chance: Random) -> str:
    """Kill a node that has voted for another one a moment ago, and start it again."""
    voted = [
        each.me.id
        for each in world.processes.values()
        if (vote := each.quorum.state.election_state.voted) is not None and vote != each.me
    ]
    if not voted:
        return ""
    node = chance.choice(sorted(voted))
    world.kill(node)
    world.start(node)
    return f"kill and start {node}, which has voted"


def pause(world: World, chance: Random) -> str:
    node = chance.choice(world.ids)
    milliseconds = chance.choice((300, 1500, 4000))
    world.pause(node, milliseconds)
    return f"pause {node} for {milliseconds} ms"


def cut_one_way(world: World, chance: Random) -> str:
    sender, receiver = chance.sample(world.ids, 2) if len(world.ids) > 1 else (0, 0)
    world.links.cut.add((sender, receiver))
    return f"cut {sender} -> {receiver}"


def isolate(world: World, chance: Random) -> str:
    node = chance.choice(world.ids)
    world.isolate(node)
    return f"isolate {node}"


def isolate_leader(world: World, chance: Random) -> str:
    leader = world.leader()
    if leader is None:
        return ""
    world.isolate(leader)
    return f"isolate {leader}, which leads"


def split(world: World, chance: Random) -> str:
    """Cut the nodes into two groups."""
    group = chance.sample(world.ids, chance.randint(1, len(world.ids)))
    others = [node for node in world.ids if node not in group]
    for node in group:
        for other in others:
            world.links.cut |= {(node, other), (other, node)}
    return f"split {sorted(group)} from {sorted(others)}"


def heal(world: World, chance: Random) -> str:
    if not world.links.cut:
        return ""
    world.links.cut.clear()
    return "heal"


def append(world: World, chance: Random) -> str:
    """Append entries on every node that believes it leads; most runs have one such node."""
    count = chance.randint(1, 4)
    return f"append {count}" if world.append(count) else ""


def snapshot(world: World, chance: Random) -> str:
    nodes = world.ids if chance.random() < 0.5 else [chance.choice(world.ids)]
    taken = [node for node in nodes if world.take_snapshot(node, chance)]
    return f"snapshot on {taken}" if taken else ""


def resign(world: World, chance: Random) -> str:
    leader = world.leader()
    if leader is None:
        return ""
    world.resign(leader)
    return f"ask {leader} to resign"


def _may_change_voters(world: World) -> bool:
    leaders = world.leaders()
    return bool(leaders) and leaders[0].quorum.kraft_version >= RECONFIGURABLE


def add_voter(world: World, chance: Random) -> str:
    """Ask for a new voter, or for one in the place of a voter whose disk was lost."""
    if not _may_change_voters(world):
        return ""
    process = world.processes[chance.choice(sorted(world.processes))]
    voters = world.leaders()[0].voters
    after = voters.with_voter(process.quorum.node)
    if after is None or not world.has_majority(after):
        return ""
    world.asks(AddVoterReceived(voter=process.me, endpoints=process.quorum.endpoints))
    return f"add the voter {process.me.id}"


def remove_voter(world: World, chance: Random) -> str:
    """Ask for one voter less, if the others are a majority without it (docs/found.md, open)."""
    if not _may_change_voters(world):
        return ""
    voters = world.leaders()[0].voters
    voter = chance.choice(voters.nodes).key
    after = voters.without_voter(voter)
    if after is None or not world.has_majority(after) or not world.can_spare(voter.id):
        return ""
    world.asks(RemoveVoterReceived(voter=voter))
    return f"remove the voter {voter.id}"


def replace_disk(world: World, chance: Random) -> str:
    """Lose the disk of a node without which every voter set still has a majority."""
    node = chance.choice(world.ids)
    directory_id = bytes([node, 1]) * 8
    is_new = world.around.disks[node].directory_id != directory_id
    spared = all(world.has_majority(each, without=node) for each in world.voter_sets())
    if not (world.shape.is_dynamic and is_new and spared):
        return ""
    world.kill(node)
    world.replace_disk(node, directory_id)
    world.start(node)
    return f"replace the disk of {node}"


def upgrade(world: World, chance: Random) -> str:
    """Ask for `kraft.version` 1 where the voters stand in the configuration alone."""
    leader = world.leader()
    if leader is None or world.leaders()[0].quorum.kraft_version >= RECONFIGURABLE:
        return ""
    epoch = world.leaders()[0].quorum.leader_epoch
    world.asks(UpgradeAsked(kraft_version=RECONFIGURABLE, leader_epoch=epoch))
    return "raise kraft.version"


@attrs.frozen
class FaultKind:
    fault: Fault
    weight: float
    always: bool = False


FAULTS = (
    FaultKind(append, 8, always=True),
    FaultKind(start, 3, always=True),
    FaultKind(heal, 2, always=True),
    FaultKind(kill, 1),
    FaultKind(kill_leader, 1),
    FaultKind(kill_all, 0.3),
    FaultKind(restart, 1),
    FaultKind(restart_voter, 3),
    FaultKind(pause, 1),
    FaultKind(cut_one_way, 1),
    FaultKind(isolate, 1),
    FaultKind(isolate_leader, 1),
    FaultKind(split, 1),
    FaultKind(snapshot, 2),
    FaultKind(resign, 0.5),
    FaultKind(add_voter, 3),
    FaultKind(remove_voter, 2),
    FaultKind(replace_disk, 0.5),
    FaultKind(upgrade, 1),
)


def drawn(chance: Random) -> list[FaultKind]:
    """Return the kinds of fault of a run: each of those that not every run has, or not."""
    return [kind for kind in FAULTS if kind.always or chance.random() < 0.5]
