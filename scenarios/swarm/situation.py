"""The situation of a run, as the generator knows it, and what a fault may need to find there.

A need is a function of a `Situation`. It returns the roles that a fault's lines name, or None
if no node or client is in the state for that fault: nothing is stopped that is down, and nothing is
resumed that is not paused. Chance decides among several that are.

The file is long because it has a need for each situation that the table of faults begins in.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import attrs

from replication.leader.rules.isr import CommittedIsr
from replication.leader.rules.quota import UNLIMITED
from scenarios.checkers.decisions import FENCED_FETCH_VERSION
from scenarios.story.arguments import partition_of, split
from scenarios.story.commands.disks import written_files
from scenarios.story.expected_records import OFFSETS, TRANSACTIONS
from scenarios.story.log_drawing import readable_batches
from scenarios.story.stage import Stage
from scenarios.world.clients.copying import Copier
from scenarios.world.clients.reading import Reader
from scenarios.world.clients.sending import SendingClient
from scenarios.world.clients.witness import Given
from scenarios.world.cluster import node_name, partition_directory
from scenarios.world.throttle_probe import MOST_BYTES
from storage.log.segment import INDEX_SUFFIX
from storage.types import TopicPartition

Roles: TypeAlias = dict[str, str]
MOST_PARTITIONS = 4
LEADERS_MORE = 2
"""How often a leader is drawn beside once as a node."""
START_VERBS = ("producer", "reader", "member", "copier")
_DISKS = ("wipe", "restore", "lie", "lose", "stale")
"""The faults of disks that are not for controllers: what these have synced is what all stands on."""
_MEETING = ("cut", "mute", "hold", "tear", "heal", "late")


@attrs.define(eq=False, repr=False)
class Situation:
    """The state of a run between two of its lines, read and never changed."""

    stage: Stage
    chance: random.Random
    controller_fails: bool = False
    """Whether controllers are among the nodes that are killed, stopped, paused and cut off."""
    untrusted: str = ""
    """The broker whose disk may lie or rot."""
    partition: TopicPartition = attrs.field(default=TopicPartition("t", 0))
    """The partition that the next fault is about."""
    client_lines: dict[str, str] = attrs.field(factory=dict)
    """How each client of ours is started: a template, drawn anew for each of its lives."""
    _partitions: list[TopicPartition] = attrs.field(factory=list, init=False)

    @property
    def brokers(self) -> list[str]:
        return self.stage.cluster.broker_names

    @property
    def names(self) -> list[str]:
        return self.stage.cluster.names

    @property
    def controllers(self) -> list[str]:
        return self.stage.cluster.controller_names

    @property
    def controller(self) -> str:
        """The controller that decides; the first one where none does."""
        return self.stage.cluster.deciding or self.controllers[0]

    @property
    def is_decided(self) -> bool:
        """Whether a controller decides, and is well."""
        name = self.stage.cluster.deciding
        return name is not None and self.is_well(name)

    @property
    def partitions(self) -> list[TopicPartition]:
        """The topic's partitions; an operator may have added some since the run was drawn."""
        while self.stage.cluster.partition(new := TopicPartition("t", len(self._partitions))):
            self._partitions.append(new)
        return self._partitions

    @property
    def nodes(self) -> list[str]:
        """The nodes that may fail."""
        return self.names if self.controller_fails else self.brokers

    @property
    def running_nodes(self) -> list[str]:
        return [name for name in self.nodes if self.stage.cluster.is_running(name)]

    def leader(self, where: str = "") -> str | None:
        """Return the leader of that partition, or of the one that the fault is about."""
        return self.stage.cluster.leader(partition_of(where) if where else self.partition)

    def replicas(self, where: str = "") -> list[str]:
        registration = self.stage.cluster.partition(
            partition_of(where) if where else self.partition
        )
        return [] if registration is None else list(map(node_name, registration.replicas))

    @property
    def clients(self) -> list[str]:
        return list(self.stage.programs.running)

    def is_leaving(self, name: str) -> bool:
        """Return whether this client of ours was asked to end, and runs still."""
        program = self.stage.programs.running.get(name)
        return program is not None and program.ending

    def is_paused(self, name: str) -> bool:
        return self.stage.world.clock(name).paused

    def is_well(self, name: str) -> bool:
        return self.stage.cluster.is_running(name) and not self.is_paused(name)

    def coordinator(self, topic: str) -> str | None:
        leader = self.stage.cluster.leader(TopicPartition(topic, 0))
        return leader if leader is not None and self.stage.cluster.is_running(leader) else None

    def copiers(self, *, at_work: bool = False) -> list[str]:
        programs = self.stage.programs.running.values()
        found = [each for each in programs if isinstance(each, Copier)]
        return [each.name for each in found if each.copying or not at_work]

    def senders(self, *, transactional: bool) -> list[str]:
        senders = self.stage.programs.senders
        return [
            each.name for each in senders if ("transactional.id" in each.config) == transactional
        ]

    def files(self, name: str, pattern: str) -> list[str]:
        """Return the paths of these files of a node, from its directory on, which have any content."""
        return [path.removeprefix(f"/{name}/") for path in written_files(self.stage, name, pattern)]

    @property
    def log_end(self) -> str:
        """The log end offset of the leader's replica; 0 before it has one."""
        manager = self.stage.cluster.replica_managers.get(self.leader() or "")
        replica = None if manager is None else manager.hosted.snapshot(self.partition)
        return str(0 if replica is None else replica.log_end_offset)

    def was_sending(self, name: str) -> bool:
        lives = [each for each in self.stage.programs.all if each.name == name]
        return bool(lives) and isinstance(lives[-1], SendingClient)

    def allows(self, line: str) -> bool:
        """Return whether the line can be carried out now."""
        verb, words, _ = split(line)
        running = self.stage.cluster.is_running
        named = [word for word in words if word in self.names]
        clients = [word for word in words if word in self.client_lines]
        if verb in START_VERBS:
            return words[0] not in self.clients
        if verb in _DISKS and not set(named).isdisjoint(self.controllers):
            return False
        if any(name not in self.clients for name in clients):
            return False
        match verb:
            case "kill":
                return all(map(running, named))
            case "stop" | "pause":
                return bool(words) and all(map(self.is_well, named))
            case "resume":
                return bool(words) and all(map(self.is_paused, named))
            case "start":
                return not any(map(running, named)) and all(map(self.stage.stays, named))
            case "wipe" | "lose" | "stale":
                return not any(map(running, named))
            case "restore":
                return not any(map(running, named)) and words[1] in self.stage.images
            case "image":
                return words[1] not in self.stage.images
            case _ if verb in _MEETING:
                return len(words) != 1 and len(set(named)) == len(named)
            case _:
                return True


Need: TypeAlias = Callable[[Situation], Roles | None]


def _one_of(situation: Situation, role: str, names: Iterable[str]) -> Roles | None:
    """Return one of the names in that role, and another node; None where there are none."""
    drawn = list(names)
    if not drawn:
        return None
    name = situation.chance.choice(drawn)
    others = [each for each in situation.names if each != name]
    return {role: name, "other": situation.chance.choice(others)}


# Nodes.


def anything(_: Situation) -> Roles:
    return {}


def anybody(situation: Situation) -> Roles | None:
    return _one_of(situation, "node", situation.names)


def broker(situation: Situation) -> Roles | None:
    return _one_of(situation, "node", situation.brokers)


def running(situation: Situation) -> Roles | None:
    up = situation.running_nodes
    cluster = situation.stage.cluster
    leaders = [cluster.leader(each) for each in situation.partitions]
    more = [name for name in leaders if name is not None and name in up]
    return _one_of(situation, "node", up + more * LEADERS_MORE)


def stopped(situation: Situation) -> Roles | None:
    is_running = situation.stage.cluster.is_running
    return _one_of(situation, "node", [each for each in situation.names if not is_running(each)])


def stopped_broker(situation: Situation) -> Roles | None:
    is_running = situation.stage.cluster.is_running
    return _one_of(situation, "node", [each for each in situation.brokers if not is_running(each)])


def paused(situation: Situation) -> Roles | None:
    up = filter(situation.stage.cluster.is_running, situation.names)
    return _one_of(situation, "node", filter(situation.is_paused, up))


def cut(situation: Situation) -> Roles | None:
    return {} if situation.stage.world.network.is_cut else None


def some(situation: Situation) -> Roles:
    names = situation.names
    drawn = situation.chance.sample(names, situation.chance.randint(1, len(names) - 1))
    return {"some": " ".join(drawn)}


def isr_change_pending(situation: Situation) -> Roles | None:
    """Require that controllers fail in this run, and that one has an ISR change to decide now."""
    if not situation.controller_fails or not situation.is_decided:
        return None
    led = [
        replica.leadership
        for manager in situation.stage.cluster.replica_managers.values()
        for replica in manager.hosted.online.values()
    ]
    asked = any(each and not isinstance(each.isr_state, CommittedIsr) for each in led)
    return {} if asked else None


# Several controllers.


def deciding(situation: Situation) -> Roles | None:
    """Require that a controller decides, and is well, and that another one runs."""
    if not (situation.controller_fails and situation.is_decided):
        return None
    others = [each for each in situation.controllers if each != situation.controller]
    roles = _one_of(situation, "standby", filter(situation.is_well, others))
    broker = situation.chance.choice(situation.brokers)
    return roles and roles | {"others": " ".join(others), "broker": broker}


# Partitions.


def some_replicas(situation: Situation) -> Roles:
    most = min(3, len(situation.brokers))
    drawn = situation.chance.sample(situation.brokers, situation.chance.randint(1, most))
    return {"some replicas": ",".join(drawn)}


def room(situation: Situation) -> Roles | None:
    count = len(situation.partitions)
    return (
        None if count >= MOST_PARTITIONS else some_replicas(situation) | {"count": str(count + 1)}
    )


def led(situation: Situation) -> Roles | None:
    """Require that the controller, the leader and a follower are well."""
    leader, followers = situation.leader(), situation.replicas()
    if leader is None or not (situation.is_well(leader) and situation.is_decided):
        return None
    followers = [each for each in followers if each != leader]
    situation.chance.shuffle(followers)
    followers.sort(key=lambda name: not situation.is_well(name))
    if not followers or not situation.is_well(followers[0]):
        return None
    roles = {"leader": leader, "replica": followers[0], "second": " ".join(followers[1:2])}
    return roles | {"others": " ".join(each for each in situation.brokers if each != leader)}


def newcomer(situation: Situation) -> Roles | None:
    """Require what `led` does, and a broker that is well and has no replica."""
    replicas = situation.replicas()
    others = [each for each in situation.brokers if each not in replicas]
    roles = led(situation)
    outside = _one_of(situation, "newcomer", filter(situation.is_well, others))
    return roles and outside and outside | roles


def calm(situation: Situation) -> Roles | None:
    """Require that every node is well, and that the partition has two followers."""
    roles = led(situation) if all(map(situation.is_well, situation.names)) else None
    return roles if roles and roles["second"] else None


def whole(situation: Situation) -> Roles | None:
    """Require that every node is well, and every replica in sync."""
    registration = situation.stage.cluster.partition(situation.partition)
    in_sync = registration and set(registration.isr) == set(registration.replicas)
    return calm(situation) if in_sync else None


def settled(situation: Situation) -> Roles | None:
    """Require that running brokers are well, and that one stays, which then has the first replica: it
    is neither starting nor stopping, and its disk does not fail. The others may be fenced.
    """
    stage = situation.stage
    brokers = [each for each in situation.brokers if stage.cluster.is_running(each)]
    are_well = all(map(situation.is_well, [*brokers, *situation.controllers]))
    may_fail = any(stage.world.disk(each).faults for each in situation.controllers)
    if "t" in stage.compacted or not are_well or (may_fail and len(situation.controllers) > 1):
        return None
    staying = [each for each in brokers if stage.stays(each) and not stage.world.disk(each).faults]
    copies = len(situation.replicas())
    if not staying or not copies:  # no controller may know the topic just then
        return None
    assigned = []
    for _ in situation.partitions:
        first = situation.chance.choice(staying)
        rest = [each for each in situation.brokers if each != first]
        assigned.append(",".join([first, *situation.chance.sample(rest, copies - 1)]))
    return {"assigned": "/".join(assigned)}


# The disk that is not to be trusted.


def untrusted(situation: Situation) -> Roles | None:
    roles = led(situation)
    replicas = situation.replicas()
    if roles is None or situation.untrusted not in replicas:
        return None
    idle = [each for each in replicas if each != situation.untrusted][1:]
    return roles | {"untrusted": situation.untrusted, "idle": " ".join(idle)}


def trusted_leader(situation: Situation) -> Roles | None:
    return None if situation.leader() == situation.untrusted else led(situation)


def written(situation: Situation) -> Roles | None:
    """Require that the untrusted disk has records of the partition; its broker may be down."""
    name = situation.untrusted
    if name not in situation.replicas():
        return None
    disk = situation.stage.cluster.disk(name)
    batches, _ = readable_batches(disk, partition_directory(disk, name, situation.partition))
    offsets = [
        str(offset)
        for batch in batches
        for offset in range(batch.base_offset, batch.last_offset + 1)
    ]
    roles = _one_of(situation, "offset", offsets)
    return roles and roles | {"untrusted": name}


# Files without a checksum.

CHECKPOINTS = (
    "log/replication-offset-checkpoint",
    "log/recovery-point-offset-checkpoint",
    "t-*/leader-epoch-checkpoint",
)


def indexed(situation: Situation) -> Roles | None:
    """Require a replica that has an index with entries; its broker may be down."""
    pattern = f"{situation.partition}/*{INDEX_SUFFIX}"
    roles = _one_of(
        situation, "node", [each for each in situation.replicas() if situation.files(each, pattern)]
    )
    return roles and roles | {
        "index": situation.chance.choice(situation.files(roles["node"], pattern))
    }


def with_checkpoint(situation: Situation) -> Roles | None:
    """Require a broker that is down, and has a checkpoint."""
    roles = stopped_broker(situation)
    if roles is None:
        return None
    found = [path for each in CHECKPOINTS for path in situation.files(roles["node"], each)]
    return roles | {"checkpoint": situation.chance.choice(found)} if found else None


# Our own clients.


def client(situation: Situation) -> Roles | None:
    roles = _one_of(situation, "client", situation.clients)
    return roles and roles | {"other": situation.chance.choice(situation.brokers)}


def member(situation: Situation) -> Roles | None:
    """Require that a member of a group runs; it is started again as `member line` says."""
    running = situation.stage.programs.running.values()
    members = [each.name for each in running if isinstance(each, Reader) and each.group]
    roles = _one_of(situation, "member", members)
    return roles and roles | {"member line": situation.client_lines[roles["member"]]}


def member_coordinated(situation: Situation) -> Roles | None:
    name = situation.coordinator(OFFSETS)
    roles = member(situation)
    return (roles and name and roles | {"coordinator": name}) or None


def member_with_room(situation: Situation) -> Roles | None:
    return room(situation) if member(situation) else None


def client_paused(situation: Situation) -> Roles | None:
    return _one_of(situation, "client", filter(situation.is_paused, situation.clients))


def client_gone(situation: Situation) -> Roles | None:
    lines = situation.client_lines.items()
    return _one_of(
        situation, "client line", [line for name, line in lines if name not in situation.clients]
    )


def producer(situation: Situation) -> Roles | None:
    return _one_of(situation, "sender", situation.senders(transactional=False))


def producer_led(situation: Situation) -> Roles | None:
    roles = producer(situation) if situation.leader() else None
    return roles and roles | {"leader": str(situation.leader())}


def transactional(situation: Situation) -> Roles | None:
    another = situation.chance.choice(situation.partitions)
    also = "" if another == situation.partition else f" {another} {{records}}"
    roles = _one_of(situation, "sender", situation.senders(transactional=True))
    return roles and roles | {"also": also}


def transactional_led(situation: Situation) -> Roles | None:
    roles = _one_of(situation, "sender", situation.senders(transactional=True))
    leader = situation.leader()
    return roles | {"leader": leader} if roles and leader else None


def coordinator(situation: Situation) -> Roles | None:
    """Require that a client of ours runs, and the coordinator of groups or of transactions."""
    topic = situation.chance.choice((OFFSETS, TRANSACTIONS))
    name = situation.coordinator(topic) if situation.clients else None
    return None if name is None else {"coordinator": name}


def copier(situation: Situation) -> Roles | None:
    name = situation.coordinator(OFFSETS)
    roles = _one_of(situation, "copier", situation.copiers())
    return (roles and name and roles | {"coordinator": name}) or None


def position(situation: Situation) -> Roles | None:
    """Require that a reader without a group has read records."""
    happened = situation.stage.programs.witness.happened
    for reader in situation.stage.programs.readers:
        if reader.group is None and reader.name in situation.clients:
            where = situation.chance.choice(list(reader.partitions))
            given = [
                str(each.offset)
                for each in happened[where]
                if isinstance(each, Given) and each.reader == reader.name
            ]
            if given:
                roles = {"client": reader.name, "read partition": str(where)}
                return roles | {"position": situation.chance.choice(given)}
    return None


# The end of a run.


def led_with_producers(situation: Situation) -> Roles | None:
    started = any(line.startswith("producer p") for line in situation.client_lines.values())
    leader = situation.leader()
    return {"leader": leader} if started and leader else None


def without_transactions(situation: Situation) -> Roles | None:
    """Require that no client has asked for a transaction yet."""
    log = situation.stage.cluster.partition(TopicPartition(TRANSACTIONS, 0))
    return None if log else some_replicas(situation)


def without_groups(situation: Situation) -> Roles | None:
    """Require that no client has asked for a group yet."""
    log = situation.stage.cluster.partition(TopicPartition(OFFSETS, 0))
    return None if log else some_replicas(situation)


def two_brokers(situation: Situation) -> Roles | None:
    """Require two brokers that are well."""
    return _drawn(situation, ("leader", "replica"), situation.brokers)


def three_brokers(situation: Situation) -> Roles | None:
    """Require three brokers that are well, and are no controllers."""
    controllers = situation.controllers
    brokers = [each for each in situation.brokers if each not in controllers]
    return _drawn(situation, ("leader", "replica", "third"), brokers)


def three_brokers_without_epochs(situation: Situation) -> Roles | None:
    """Require what `three_brokers` does, and that fetches name no leader epoch."""
    configs = [each.config for each in situation.stage.cluster.brokers.values()]
    name_epochs = any(
        each.understudy_inter_broker_fetch_version >= FENCED_FETCH_VERSION for each in configs
    )
    return None if name_epochs else three_brokers(situation)


def _drawn(situation: Situation, roles: Sequence[str], names: Iterable[str]) -> Roles | None:
    well = list(filter(situation.is_well, names))
    if len(well) < len(roles):
        return None
    return dict(zip(roles, situation.chance.sample(well, len(roles)), strict=True))


def one_batch_a_fetch(situation: Situation) -> Roles | None:
    """Require two brokers that are well, whose fetches have one batch each, and that have throttled
    nothing yet: their rates begin with the first fetch that counts.
    """
    configs = [each.config for each in situation.stage.cluster.brokers.values()]
    are_fit = all(
        each.replica_fetch_max_bytes <= MOST_BYTES
        and each.leader_replication_throttled_rate == UNLIMITED
        for each in configs
    )
    return two_brokers(situation) if are_fit else None


def transactions_elsewhere(situation: Situation) -> Roles | None:
    """Require a coordinator of transactions, and another broker; it is to lead a partition."""
    name = situation.coordinator(TRANSACTIONS)
    others = [each for each in situation.brokers if each != name]
    roles = name and _one_of(situation, "leader", others)
    return (roles and roles | {"coordinator": str(name)}) or None


def coordinating_transactions(situation: Situation) -> Roles | None:
    """Require a coordinator of transactions."""
    return _coordinating(situation, TRANSACTIONS)


def coordinating_groups(situation: Situation) -> Roles | None:
    """Require a coordinator of groups whose log has another replica."""
    roles = _coordinating(situation, OFFSETS)
    return roles if roles and roles["followers"] else None


def _coordinating(situation: Situation, topic: str) -> Roles | None:
    name = situation.coordinator(topic)
    if name is None:
        return None
    others = [each for each in situation.replicas(f"{topic}-0") if each != name]
    return {
        "coordinator": name,
        "followers": " ".join(others),
        "coordinator first": ",".join([name, *others]),
    }


def copiers(situation: Situation) -> Roles | None:
    """Require copy loops. Hold up what they commit, or how they end a transaction."""
    held = (("TXN_OFFSET_COMMIT", OFFSETS), ("END_TXN", TRANSACTIONS))
    api, topic = situation.chance.choice(held)
    name = situation.coordinator(topic)
    if name is None or not any(each.startswith("w") for each in situation.client_lines):
        return None
    return {"api": api, "coordinator": name}
