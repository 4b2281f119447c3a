"""The election of a leader, the eligible replicas, and the ISR after it (PartitionChangeBuilder).

Every change of a partition is a `Wish`, and passes through four steps:

    complete    a reassignment whose wanted replicas are all in sync is done
    eligible    a replica that leaves an ISR which becomes too small joins the ELR (KIP-966)
    elect       the present leader if it still may lead; else the first in assignment order
    remember    the last leader, where there is none now

Electable is, in this order:

    clean       a member of the ISR that is active
    eligible    only where the ISR is empty: a member of the ELR that is active
    last known  only where ISR and ELR are empty: the last leader, if active. No replica is known
                to hold more, but it may have lost unsynced records
    unclean     only where the topic's configuration or an operator asks for it: the first active
                replica

After each of the last two the ISR is the leader alone, because the records of the others are not
known, and the leader counts as recovering until it reports that it has recovered (KIP-704).

Rule 1: the high watermark stands still while the ISR is smaller than min.insync.replicas.
So a replica that left the ISR since it became so small holds all committed records: it is in the
ELR. A broker that has not been shut down cleanly may have lost its unsynced tail: it
leaves the ISR and the ELR when it registers again.

Rule 2: a leader is named in a change only where it differs from the present one, or where a
replica goes, for naming one bumps the leader epoch. An ISR that only shrinks keeps its leader
and its leader epoch.

    min.insync.replicas 2
    isr {1,2,3} leader 1         1 is fenced   ->  isr {2,3} leader 2            leader epoch + 1
    isr {2,3}   leader 2         3 is fenced   ->  isr {2}   elr {3}             as it was
    isr {2}     leader 2 elr {3} 2 is fenced   ->  isr {}    elr {2,3} no leader leader epoch + 1
    isr {}      elr {2,3}        2 was killed  ->  isr {}    elr {3}             as it was
    isr {}      elr {3}          3 comes back  ->  isr {3}   leader 3            leader epoch + 1

Without eligible leader replicas (eligible.leader.replicas.version 0) there is no ELR, and
the ISR never becomes empty: its last member stays in it, fenced or not.
"""

import enum
from collections.abc import Callable, Collection, Iterator
from types import MappingProxyType
from typing import Any

import attrs

from replication.controller.rules.reassignment import completed
from replication.leader.rules.isr import effective_min_isr
from replication.metadata.rules.image import PartitionRegistration
from replication.metadata.rules.records import LeaderRecoveryState
from replication.wire.metadata import NO_LEADER
from replication.wire.metadata_records import PartitionChangeRecord
from storage.attributes import frozen
from storage.types import TopicId


class Election(enum.Enum):
    """The kinds of elections (PartitionChangeBuilder.Election)."""

    ONLINE = enum.auto()
    """Keep the present leader if possible."""
    PREFERRED = enum.auto()
    """Elect the first replica if possible."""
    UNCLEAN = enum.auto()
    """Elect as ONLINE does, and any active replica rather than none."""


@frozen(kw_only=True)
class ElectionRules:
    """The configuration of a topic and of the cluster that elections depend on."""

    min_insync_replicas: int = 1
    unclean: bool = False
    eligible: bool = True
    """eligible.leader.replicas.version is 1."""


@frozen(kw_only=True)
class Wish:
    """The wanted fields of a partition; None leaves a field as it is."""

    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    leader_recovery_state: LeaderRecoveryState | None = None
    directories: tuple[bytes, ...] | None = None
    lost_its_tail: int | None = None
    """The id of a broker that was not shut down cleanly."""

    def made(self, partition: PartitionRegistration) -> PartitionRegistration:
        wishes = {field: value for field in _WISHED if (value := getattr(self, field)) is not None}
        return attrs.evolve(partition, **wishes) if wishes else partition


_WISHED = ("isr", "replicas", "adding", "removing", "leader_recovery_state", "directories")


def after(
    partition: PartitionRegistration,
    wish: Wish,
    *,
    rules: ElectionRules,
    is_active: Callable[[int], bool],
    election: Election | None = None,
) -> PartitionRegistration:
    """Return the partition with `wish` fulfilled and with all consequences; its epochs are not
    counted. An active broker is registered, not fenced and not shutting down. Without `election`
    the topic's `rules` decide how to elect.
    """
    if election is None:
        election = Election.UNCLEAN if rules.unclean else Election.ONLINE
    wanted = completed(wish.made(partition))
    if rules.eligible:
        wanted = _with_eligible(wanted, partition, rules, wish.lost_its_tail)
    elif not wanted.isr:
        wanted = attrs.evolve(wanted, isr=partition.isr)
    wanted = _elected(wanted, election, is_active, eligible=rules.eligible)
    # The minimum may have become smaller while there was no leader: then this leader commits alone.
    if wanted.elr and len(wanted.isr) >= _min_isr(wanted, rules):
        wanted = attrs.evolve(wanted, elr=())
    wanted = _with_last_known(wanted, partition, eligible=rules.eligible)
    if wanted.directories and wanted.replicas != partition.replicas:
        directories = partition.directories_of(wanted.replicas)
        wanted = attrs.evolve(wanted, directories=tuple(directories))
    return wanted


def _with_eligible(
    wanted: PartitionRegistration,
    before: PartitionRegistration,
    rules: ElectionRules,
    lost_its_tail: int | None,
) -> PartitionRegistration:
    if len(wanted.isr) >= _min_isr(wanted, rules):
        return attrs.evolve(wanted, elr=()) if wanted.elr else wanted
    eligible = {*before.isr, *wanted.elr} - {*wanted.isr, lost_its_tail}
    return attrs.evolve(wanted, elr=_in_order(wanted, eligible))


def _min_isr(wanted: PartitionRegistration, rules: ElectionRules) -> int:
    """Return the minimum, which is no more than the replicas of this partition.

    Kafka's controller takes the number of replicas of partition 0, which is another one only
    after a reassignment.
    """
    return effective_min_isr(
        min_insync_replicas=rules.min_insync_replicas, remote_replicas=len(wanted.replicas) - 1
    )


def _in_order(partition: PartitionRegistration, members: Collection[int]) -> tuple[int, ...]:
    """Return the replicas that are in `members`, in assignment order."""
    return tuple(replica for replica in partition.replicas if replica in members)


def _elected(
    wanted: PartitionRegistration,
    election: Election,
    is_active: Callable[[int], bool],
    *,
    eligible: bool,
) -> PartitionRegistration:
    electorate = wanted.isr or wanted.elr
    for replica in _candidates(wanted, election):
        if replica in electorate and is_active(replica):
            if wanted.isr:
                return wanted if replica == wanted.leader else attrs.evolve(wanted, leader=replica)
            others = tuple(each for each in wanted.elr if each != replica)
            return attrs.evolve(wanted, leader=replica, isr=(replica,), elr=others)
    risked = _at_risk(wanted, election, eligible=eligible)
    replica = next(filter(is_active, risked), NO_LEADER)
    if replica == NO_LEADER:
        return attrs.evolve(wanted, leader=NO_LEADER)
    return attrs.evolve(
        wanted,
        leader=replica,
        isr=(replica,),
        elr=(),
        leader_recovery_state=LeaderRecoveryState.RECOVERING,
    )


def _candidates(wanted: PartitionRegistration, election: Election) -> Iterator[int]:
    if election is Election.PREFERRED:
        yield wanted.replicas[0]
    yield wanted.leader
    yield from wanted.replicas


def _at_risk(wanted: PartitionRegistration, election: Election, *, eligible: bool) -> Iterator[int]:
    """Yield the replicas that may become leader though they may lack committed records."""
    if eligible and not (wanted.isr or wanted.elr):
        yield from _in_order(wanted, wanted.last_known_elr)
    if election is Election.UNCLEAN:
        yield from wanted.replicas


def _with_last_known(
    wanted: PartitionRegistration, before: PartitionRegistration, *, eligible: bool
) -> PartitionRegistration:
    """Keep the leader under which the ISR became empty, until there is a leader again."""
    if wanted.leader != NO_LEADER:
        return attrs.evolve(wanted, last_known_elr=()) if wanted.last_known_elr else wanted
    if not (eligible and before.isr and not wanted.isr):
        return wanted
    # Without a leader but with an ISR: eligible leader replicas have just been turned on,
    # and that ISR is the last replica that was in sync.
    last = before.isr[0] if before.leader == NO_LEADER else before.leader
    return attrs.evolve(wanted, last_known_elr=(last,))


def change_record(
    before: PartitionRegistration,
    wanted: PartitionRegistration,
    *,
    topic_id: TopicId,
    number: int,
) -> PartitionChangeRecord | None:
    """Return the record that makes `before` become `wanted`; None where nothing changes."""
    changed: dict[str, Any] = {
        recorded: list(value) if isinstance(value, tuple) else value
        for field, recorded in _RECORDED.items()
        if (value := getattr(wanted, field)) != getattr(before, field)
    }
    if "replicas" in changed:
        # Kafka keeps as many directories as replicas.
        changed["directories"] = wanted.directories_of(wanted.replicas)
        if not set(before.replicas) <= set(wanted.replicas):
            # The replicas that stay learn a new leader epoch (Rule 2).
            changed["leader"] = wanted.leader
    if not changed:
        return None
    return PartitionChangeRecord(partition_id=number, topic_id=topic_id, **changed)


_RECORDED = MappingProxyType(
    {
        "replicas": "replicas",
        "adding": "adding_replicas",
        "removing": "removing_replicas",
        "isr": "isr",
        "elr": "eligible_leader_replicas",
        "last_known_elr": "last_known_elr",
        "leader": "leader",
        "leader_recovery_state": "leader_recovery_state",
        "directories": "directories",
    }
)
"""The fields of a partition, and their names in the record of a change."""
