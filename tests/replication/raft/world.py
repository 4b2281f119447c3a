"""A simulated quorum: its nodes, what can be done to them, and the passing of virtual time."""

from collections.abc import Callable
from random import Random

import attrs

from replication.raft.rules.messages import ResignAsked, VoterChangeAsked
from replication.raft.rules.quorum import fresh
from replication.raft.rules.types import ReplicaKey
from replication.raft.rules.voters import (
    BOOTSTRAP_OFFSET,
    RECONFIGURABLE,
    SUPPORTED,
    LogHistory,
    VoterSet,
    VoterSetHistory,
)
from tests.replication.raft.checkers import Checkers, require
from tests.replication.raft.disk import NaiveLog, UnsyncedDisk
from tests.replication.raft.network import LinkQuality, Links, Schedule
from tests.replication.raft.node import SETTINGS, NodeDisk, Process, Surroundings
from tests.replication.raft.quorums import CLUSTER, endpoints, key, voter_set

GOOD = LinkQuality()
MOST_MOVES = 2_000
"""The number of moves in one millisecond after which a run is without an end."""


@attrs.frozen
class Shape:
    """The size of a run, and the quality of its links and disks."""

    voters: int
    observers: int = 0
    quality: LinkQuality = GOOD
    sync_ms: int = 5
    is_dynamic: bool = False
    """Whether the voters are in the log, and can be changed (KIP-853)."""
    jitter_ms: int = SETTINGS.election_timeout_ms
    """The span of time in which nodes that lose their leader stand for election."""


def first_voters(shape: Shape) -> VoterSetHistory:
    voters = voter_set(*range(1, shape.voters + 1))
    if not shape.is_dynamic:
        return VoterSetHistory(static=voters)
    named = VoterSet(tuple(attrs.evolve(each, kraft_versions=SUPPORTED) for each in voters.nodes))
    return VoterSetHistory(
        sets=LogHistory[VoterSet]().added(BOOTSTRAP_OFFSET, named),
        versions=LogHistory[int]().added(BOOTSTRAP_OFFSET, RECONFIGURABLE),
    )


class World:
    """All nodes of a run; each move of it is judged by its checkers."""

    def __init__(self, shape: Shape, seed: str) -> None:
        self.shape = shape
        self.ids = list(range(1, shape.voters + shape.observers + 1))
        self.schedule = Schedule()
        self.links = Links(self.schedule, Random(f"{seed} links"), shape.quality)
        self.checkers = Checkers()
        self.lines: list[str] = []
        self.moves = 0
        self._values = 0
        self.around = Surroundings(
            self.schedule,
            self.links,
            Random(f"{seed} nodes"),
            self.checkers,
            shape.sync_ms,
            shape.jitter_ms,
            first_voters(shape),
        )
        self._disk_chance = Random(f"{seed} disks")
        for node in self.ids:
            self.replace_disk(node, key(node).directory_id)
            self.start(node)

    # --- nodes ------------------------------------------------------------------------------

    @property
    def processes(self) -> dict[int, Process]:
        return self.around.processes

    def is_running(self, node: int) -> bool:
        return node in self.processes

    def start(self, node: int) -> None:
        if self.is_running(node):
            return
        disk = self.around.disks[node]
        me = ReplicaKey(node, disk.directory_id)
        history = disk.log.read.history(self.around.first_voters)
        quorum = fresh(
            me,
            endpoints=endpoints(node),
            cluster_id=CLUSTER,
            voters=history.voters,
            voters_offset=history.voters_offset,
            kraft_version=history.kraft_version,
            settings=SETTINGS,
        )
        self.processes[node] = process = Process(me, self.around, disk, quorum, history)
        process.begin()

    def replace_disk(self, node: int, directory_id: bytes) -> None:
        """Give a node that is down an empty disk, with which it is another replica."""
        log = UnsyncedDisk([NaiveLog()])
        self.around.disks[node] = NodeDisk(directory_id, UnsyncedDisk([None]), log)
        self.around.logs[ReplicaKey(node, directory_id)] = log

    def kill(self, node: int) -> None:
        """End a process; of each of its files a version is left that was not synced over."""
        process = self.processes.pop(node, None)
        if process is not None:
            process.is_alive = False
            process.disk.election.lose(self._disk_chance)
            process.disk.log.lose(self._disk_chance)

    def pause(self, node: int, milliseconds: int) -> None:
        if self.is_running(node):
            self.processes[node].pause(milliseconds)

    def isolate(self, node: int) -> None:
        for other in self.ids:
            if other != node:
                self.links.cut |= {(node, other), (other, node)}

    def leaders(self) -> list[Process]:
        """Return the processes that believe they lead, the one of the latest epoch first."""
        found = [each for each in self.processes.values() if each.is_leader]
        return sorted(found, key=lambda each: each.quorum.leader_epoch, reverse=True)

    def leader(self) -> int | None:
        return next((each.me.id for each in self.leaders()), None)

    def append(self, count: int) -> bool:
        leaders = self.leaders()
        for leader in leaders:
            values = range(self._values, self._values + count)
            self._values += count
            leader.append(values)
        return bool(leaders)

    def take_snapshot(self, node: int, chance: Random) -> bool:
        """Let a snapshot of what is committed take the place of the beginning of a log."""
        process = self.processes.get(node)
        if process is None or process.high_watermark <= process.log.start:
            return False
        end = chance.randint(process.log.start + 1, process.high_watermark)
        process.disk.log.write(attrs.evolve(process.log, start=end))
        process.history = process.history.trimmed(end - 1)
        return True

    def can_spare(self, node: int) -> bool:
        """Return whether the voters that the leader knows are a majority without this node."""
        leaders = self.leaders()
        return bool(leaders) and self.has_majority(leaders[0].voters, without=node)

    def has_majority(self, voters: VoterSet, without: int | None = None) -> bool:
        """Return whether enough of these voters still have their disks."""
        disks = self.around.disks
        whole = [
            each
            for each in voters.keys
            if each.id != without and disks[each.id].directory_id == each.directory_id
        ]
        return len(whole) >= voters.majority

    def voter_sets(self) -> list[VoterSet]:
        """Return every voter set that some disk may still have as its newest."""
        first = self.around.first_voters
        versions = [each for disk in self.around.disks.values() for each in disk.log.versions]
        return [version.history(first).voters for version in versions]

    def asks(self, event: VoterChangeAsked) -> None:
        """Let an operator ask the leader for another voter set."""
        self.leaders()[0].happens(event)

    def resign(self, node: int) -> None:
        process = self.processes[node]
        process.happens(ResignAsked(process.quorum.leader_epoch))

    # --- time -------------------------------------------------------------------------------

    def run(self, milliseconds: int) -> None:
        end = self.schedule.now_ms + milliseconds
        moves = 0
        while self.schedule.next_ms <= end:
            was_ms = self.schedule.now_ms
            self.schedule.run_next()
            self.moves += 1
            moves = moves + 1 if self.schedule.now_ms == was_ms else 0
            require(moves < MOST_MOVES, "time goes on", moves, "moves at", was_ms)
        self.schedule.now_ms = end

    def run_until(self, condition: Callable[[], bool], within_ms: int, wanted: str) -> None:
        """Run until the condition holds, which is looked at every 10 ms."""
        end = self.schedule.now_ms + within_ms
        while not condition():
            require(self.schedule.now_ms < end, f"not within {within_ms // 1000} s", wanted)
            self.run(10)

    def say(self, line: str) -> None:
        self.lines.append(f"{self.schedule.now_ms:>7} ms  {line}")
