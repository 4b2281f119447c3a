"""The controllers of a run, watched: their states, their logs, and what is on their platters.

    controller    log, high watermark, state        read where one of them has changed
                  platter: the log and quorum-state  read where something was committed, or elected
    broker        its copy of the log                read where it has grown

Rule 1: a look costs as much as has changed since the last one. A batch is read once from a log, and
once from a platter.

Rule 2: platters are read beside the nodes, the ones of nodes that are down too.
"""

import json
from collections.abc import Iterator

import attrs

from replication.controller.controller import Controller
from replication.metadata.rules.checkpoint import checkpoint_id
from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.records import METADATA_PARTITION, METADATA_TOPIC_ID
from replication.raft.quorum_state import QUORUM_STATE
from replication.raft.rules.states import Leading
from replication.raft.rules.types import ElectionState, ReplicaKey
from replication.wire.control_records import LeaderChangeMessage, decode_message
from scenarios.checkers import committed, quorum
from scenarios.checkers.admin_requests import AdminRequests
from scenarios.checkers.committed import CommittedLog
from scenarios.checkers.observed import Batch, Held, HeldLog, OnlineReplica, Wrong
from scenarios.checkers.quorum import ControllerState
from scenarios.world.cluster import SimulatedCluster, log_directory, node_name
from storage.batch.record_batch import check_crc, walk
from storage.batch.records import decode_batch
from storage.errors import CorruptRecordError
from storage.log.log import Log
from storage.log.segment import LOG_SUFFIX
from storage.testing import SimulatedDisk
from storage.testing.disk import DirectoryNode, FileNode, Node, path_names
from storage.types import LeaderEpoch, Offset


@attrs.define(eq=False)
class Platter(Held):
    """The batches of a metadata log that a power cut would leave, whatever else it takes."""

    disk: SimulatedDisk
    directory: str
    _places: list[tuple[str, int, int]] = attrs.field(factory=list, init=False)
    """The file of each batch, and where it begins and ends there."""
    _election: tuple[Node | None, ElectionState | None] = attrs.field(
        default=(None, None), init=False
    )
    """The file `quorum-state` that was read last, and what it says."""

    def has(self, batch: Batch) -> bool:
        """Return whether the batch is there, or a snapshot that contains it."""
        self.read_on()
        newest_first = reversed(self.batches)
        return any(each == batch for each in newest_first) or (
            self._snapshot_end() > batch.last_offset
        )

    def election(self) -> ElectionState | None:
        """Return what `quorum-state` says."""
        node = _durable(self.disk, f"{self.directory}/{QUORUM_STATE}")
        if node is not self._election[0]:  # the file is replaced as a whole
            self._election = (node, _election_in(node))
        return self._election[1]

    def read_on(self) -> None:
        """Drop the batches that are gone; read the new ones."""
        files = self._files()
        while self.batches and not self._is_still_there(files):
            self.drop_last()
            self._places.pop()
        last, _, end = self._places[-1] if self._places else ("", 0, 0)
        for name in sorted(each for each in files if each.endswith(LOG_SUFFIX) and each >= last):
            self._read(name, files[name], end if name == last else 0)

    def _files(self) -> dict[str, Node]:
        node = _durable(self.disk, self.directory)
        return node.durable if isinstance(node, DirectoryNode) else {}

    def _snapshot_end(self) -> Offset:
        ids = map(checkpoint_id, self._files())
        return max((each.offset for each in ids if each is not None), default=0)

    def _is_still_there(self, files: dict[str, Node]) -> bool:
        name, start, end = self._places[-1]
        node = files.get(name)
        if not isinstance(node, FileNode) or len(node.durable) < end:
            return False
        return self.batches[-1] == _batch_at(node.durable, start, end)

    def _read(self, name: str, node: Node, start: int) -> None:
        assert isinstance(node, FileNode), "a segment is a file"
        try:
            for position, header in walk(node.durable, start):
                end = position + header.size
                batch = _batch_at(node.durable, position, end)
                if batch is None:
                    return
                self.add(batch)
                self._places.append((name, position, end))
        except CorruptRecordError:
            return  # torn by a power cut, and truncated by the next start


def _election_in(node: Node | None) -> ElectionState | None:
    if not isinstance(node, FileNode):
        return None
    values = json.loads(bytes(node.durable))
    leader_id, voted_id = values["leaderId"], values["votedId"]
    return ElectionState(
        leader_epoch=values["leaderEpoch"],
        leader_id=None if leader_id < 0 else leader_id,
        voted=None if voted_id < 0 else ReplicaKey(voted_id),
    )


def _batch_at(content: bytearray, start: int, end: int) -> Batch | None:
    """Return the batch between these bytes; None where it is torn."""
    data = content[start:end]
    try:
        [(_, header)] = walk(data)
    except (CorruptRecordError, ValueError):
        return None
    if not check_crc(bytes(data)):
        return None
    return Batch(header.base_offset, header.last_offset, header.leader_epoch, header.crc)


def _durable(disk: SimulatedDisk, path: str) -> Node | None:
    """Return what a power cut would leave under a path."""
    node: Node | None = disk.root
    for name in path_names(path):
        if not isinstance(node, DirectoryNode):
            return None
        node = node.durable.get(name)
    return node


@attrs.define(eq=False)
class _Watched:
    """A process, with its log as far as it was read."""

    owner: object
    life: int
    log: Log
    held: HeldLog
    seen: object = None
    """The state at the last look; another one is due where it has changed."""
    state: ControllerState | None = None
    elected: LeaderEpoch = -1
    """The last leader epoch whose beginning was checked."""


@attrs.define(eq=False, repr=False)
class WatchedControllers:
    """The controllers of a run, and the brokers' copies of their log."""

    requests: AdminRequests = attrs.field(factory=AdminRequests, init=False)
    newest: MetadataImage = attrs.field(factory=MetadataImage, init=False)
    """The newest metadata that a controller has shown as committed."""
    _is_trusted: bool = attrs.field(default=True, init=False)
    _committed: CommittedLog = attrs.field(factory=CommittedLog, init=False)
    _watched: dict[str, _Watched] = attrs.field(factory=dict, init=False)
    _leaders: dict[LeaderEpoch, str] = attrs.field(factory=dict, init=False)
    _platters: dict[str, Platter] = attrs.field(factory=dict, init=False)
    _elections: dict[str, ElectionState] = attrs.field(factory=dict, init=False)
    """The last election that each platter was seen to have."""
    _images: dict[Offset, MetadataImage] = attrs.field(factory=dict, init=False)

    def untrusted(self) -> None:
        """Compare nothing more: the disk of a controller may lack anything."""
        self._is_trusted = False

    def look(self, cluster: SimulatedCluster) -> Iterator[Wrong]:
        """Check what has changed."""
        for name, controller in _controllers(cluster):
            node, log = controller.node, controller.log
            watched = self._watch(cluster, name, controller, log.log)
            seen = (node.quorum, *_ends(log.log), node.active_epoch, log.committed_image.offset)
            if watched.seen != seen:
                watched.seen = seen
                yield from self._look_at_controller(cluster, name, controller, watched)
        for name, broker in cluster.brokers.items() if self._is_trusted else ():
            copy = broker.logs.get(METADATA_PARTITION) if hasattr(broker, "logs") else None
            if copy is not None:
                watched = self._watch(cluster, name, broker, copy)
                if watched.seen != _ends(copy):
                    watched.seen = _ends(copy)
                    latest = max(self._leaders, default=0)
                    copied = _as_replica(name, watched, copy.log_end_offset, latest)
                    yield from self._look_at_log(cluster, watched, copied)

    def judge_answered(self) -> Iterator[Wrong]:
        """Check Q7; a look comes first."""
        if self._is_trusted:
            yield from self.requests.missing(self.newest)

    def _watch(self, cluster: SimulatedCluster, name: str, owner: object, log: Log) -> _Watched:
        known = self._watched.get(name)
        if known is None or known.owner is not owner or known.log is not log:
            life = 1 if known is None else known.life + (known.owner is not owner)
            held = HeldLog(cluster.world.disk(name), log)
            known = self._watched[name] = _Watched(owner, life, log, held)
        return known

    def _look_at_controller(
        self, cluster: SimulatedCluster, name: str, controller: Controller, watched: _Watched
    ) -> Iterator[Wrong]:
        node, before = controller.node, watched.state
        now = watched.state = ControllerState(
            node=name,
            life=watched.life,
            leader_epoch=node.quorum.leader_epoch,
            high_watermark=watched.log.high_watermark,
            leads=isinstance(node.quorum.state, Leading),
            decides=node.active_epoch if controller.is_active else None,
        )
        yield from quorum.one_leader(self._leaders, now)
        if now.leads:
            self._leaders.setdefault(now.leader_epoch, name)
        if not self._is_trusted:
            return
        if before is not None:
            yield from quorum.never_back(before, now)
        replica = _as_replica(name, watched, now.high_watermark, now.leader_epoch)
        yield from self._look_at_log(cluster, watched, replica)
        yield from self._look_at_election(name, cluster)
        if now.leads and watched.elected < now.leader_epoch:
            yield from self._look_at_beginning(cluster, controller, watched, replica)
        image = controller.log.committed_image
        if image.offset >= 0:
            yield from quorum.same_metadata(
                name, self._images.setdefault(image.offset, image), image
            )
        if image.offset > self.newest.offset:
            self.newest = image

    def _look_at_log(
        self, cluster: SimulatedCluster, watched: _Watched, replica: OnlineReplica
    ) -> Iterator[Wrong]:
        """Check Q3, and Q4 for what is seen to be committed for the first time."""
        watched.held.read_on()
        before = self._committed.batches[-1:]
        yield from committed.below(self._committed, replica, watched.held)
        after = self._committed.batches[-1:]
        if after and after != before:
            names = cluster.controller_names
            having = [each for each in names if self._platter(cluster, each).has(after[0])]
            yield from quorum.on_a_majority(after[0], having, len(names))

    def _look_at_election(self, name: str, cluster: SimulatedCluster) -> Iterator[Wrong]:
        known, synced = self._elections.get(name), self._platter(cluster, name).election()
        yield from quorum.synced_never_back(name, known, synced)
        if synced is not None:
            self._elections[name] = synced

    def _look_at_beginning(
        self,
        cluster: SimulatedCluster,
        controller: Controller,
        watched: _Watched,
        replica: OnlineReplica,
    ) -> Iterator[Wrong]:
        """Check a new leader once its log has the beginning of its leader epoch."""
        state, log = controller.node.quorum.state, watched.log
        assert isinstance(state, Leading), "it leads"
        start = state.progress.epoch_start_offset
        if log.log_end_offset <= start:
            return
        watched.elected = replica.leader_epoch
        yield from committed.elected(self._committed, replica, watched.held)
        if log.log_start_offset > start:
            return  # it led before the first look
        for voter_id in _granting(watched.held.content_from(start)):
            voter = node_name(voter_id)
            yield from quorum.vote_is_synced(
                voter,
                self._platter(cluster, voter).election(),
                leader_id=controller.config.node_id,
                leader_epoch=replica.leader_epoch,
            )

    def _platter(self, cluster: SimulatedCluster, name: str) -> Platter:
        if name not in self._platters:
            directory = f"{log_directory(name)}/{METADATA_PARTITION}"
            self._platters[name] = Platter(cluster.world.disk(name), directory)
        return self._platters[name]


def _controllers(cluster: SimulatedCluster) -> Iterator[tuple[str, Controller]]:
    for node_id, controller in cluster.nodes.controllers.items():
        if controller.port:  # before that its log is being opened
            yield node_name(node_id), controller


def _ends(log: Log) -> tuple[Offset, Offset, Offset]:
    return log.log_start_offset, log.high_watermark, log.log_end_offset


def _as_replica(
    name: str, watched: _Watched, high_watermark: Offset, leader_epoch: LeaderEpoch
) -> OnlineReplica:
    """Return a copy of the metadata log in the form that the rules of partitions take."""
    log = watched.log
    return OnlineReplica(
        node=name,
        life=watched.life,
        partition=METADATA_PARTITION,
        topic_id=METADATA_TOPIC_ID,
        is_leader=False,
        leader_epoch=leader_epoch,
        partition_epoch=0,
        log_start=log.log_start_offset,
        high_watermark=high_watermark,
        log_end=log.log_end_offset,
    )


def _granting(beginning: bytes) -> list[int]:
    """Return the voters whose votes the first batch of a leader epoch names."""
    messages = map(decode_message, decode_batch(beginning))
    return [
        voter.voter_id
        for each in messages
        if isinstance(each, LeaderChangeMessage)
        for voter in each.granting_voters
    ]
