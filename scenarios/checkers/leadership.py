"""Rules about leaders, and about what the controller decides about them.

I3    one replica, in one life, leads in a leader epoch
I13   LeaderInIsr, and the algebra of ISR and ELR (KIP-966):

      isr, elr ⊆ replicas, and disjoint          with min.insync.replicas in sync: no elr
      leader ∈ isr, or there is none             empty isr: no leader
      no fenced or stopping broker in the isr    a recovering leader is alone in the isr
      isr and elr empty: one last known leader   no member is lost from isr ∪ elr

I12   a broker that registers after an unclean shutdown leads no partition, and is in no ISR or ELR,
      from that decision on until it has caught up again (KIP-966): the controller cannot know
      whether its disk lost anything. Not checked in a cluster without eligible leader replicas,
      where the last member of an ISR stays
an unclean election         only where the topic says so, or an operator has asked for one
ReplicationQuorumSuperset   the maximal ISR of the leader that the controller has elected contains
                            the controller's ISR: what the leader commits, all of these have
I14   a followed partition is in one fetcher at most, one that is led here in none
"""

from collections.abc import Callable, Collection, Iterator

import attrs

from replication.metadata.rules.image import PartitionRegistration
from replication.metadata.rules.records import LeaderRecoveryState
from replication.wire.metadata import NO_LEADER
from scenarios.checkers.observed import OnlineReplica, Wrong
from storage.types import TopicPartition

ONE_LEADER = "one replica leads in an epoch"
LEADER_IN_ISR = "the leader is in the ISR"
ALGEBRA = "ISR and ELR are what KIP-966 says"
SLIPPED = "no replica slips out of ISR and ELR"
MOVES = "a move is over once all that stay are in sync, and leads back to its beginning"
DECIDED = "the epochs that the controller decides count up"
UNCLEAN = "an unclean election was asked for"
SUPERSET = "every member of the controller's ISR has what the leader commits"
EXCLUDED = "a replica that may have lost its tail is neither in sync nor eligible"
FETCHERS = "one fetcher follows a partition, and none a partition that is led here"


def one_leader(known: OnlineReplica | None, leads: OnlineReplica) -> Iterator[Wrong]:
    """Check I3; `known` is the replica first seen to lead in this leader epoch."""
    if known is not None and (known.node, known.life) != (leads.node, leads.life):
        who = known.node if known.node != leads.node else "an earlier process of its own"
        yield Wrong(
            ONE_LEADER, f"{leads.where} leads in epoch {leads.leader_epoch}, and so did {who}"
        )


def counts_the_isr(leader: OnlineReplica, decided: PartitionRegistration) -> Iterator[Wrong]:
    """Check ReplicationQuorumSuperset, unless the leader is deposed: then it commits nothing."""
    left_out = set(decided.isr) - leader.maximal_isr
    if leader.leader_epoch == decided.leader_epoch and left_out:
        yield Wrong(
            SUPERSET,
            f"{leader.where} commits what {_names(leader.maximal_isr)} have, and not"
            f" {_names(left_out)}, in sync for the controller",
        )


def followed_once(replica: OnlineReplica, fetchers: int) -> Iterator[Wrong]:
    if fetchers > (0 if replica.is_leader else 1):
        yield Wrong(
            FETCHERS,
            f"{replica.where}, which {'leads' if replica.is_leader else 'follows'}, is in"
            f" {fetchers} fetchers",
        )


@attrs.frozen(kw_only=True)
class Decided:
    """One partition as the controller has it, and what that is to be held against."""

    partition: TopicPartition
    registration: PartitionRegistration
    min_isr: int
    """The minimum in force: never more than there are replicas."""
    may_be_in_isr: Callable[[int], bool]
    unclean: bool = False
    """The value of unclean.leader.election.enable."""
    eligible: bool = True
    """Whether there are eligible leader replicas; without them the ISR never becomes empty."""


def isr_and_elr(decided: Decided) -> Iterator[Wrong]:
    registration = decided.registration
    isr, elr = set(registration.isr), set(registration.elr)
    leader = registration.leader
    if leader != NO_LEADER and leader not in isr:
        yield _wrong(decided, f"b{leader} leads", LEADER_IN_ISR)
    if leader == NO_LEADER and not decided.eligible and not isr:
        yield _wrong(decided, "without an ELR, the ISR is never empty")
    if not isr | elr <= set(registration.replicas):
        yield _wrong(decided, f"replicas are {_names(registration.replicas)}")
    if isr & elr:
        yield _wrong(decided, f"{_names(isr & elr)} is in both")
    if elr and len(isr) >= decided.min_isr:
        yield _wrong(decided, f"with {decided.min_isr} in sync nobody else is eligible")
    outside = {each for each in isr if not decided.may_be_in_isr(each)}
    if outside and (decided.eligible or len(isr) > 1):
        yield _wrong(decided, f"{_names(outside)} is fenced, or on its way out")
    if registration.leader_recovery_state is LeaderRecoveryState.RECOVERING and len(isr) > 1:
        yield _wrong(decided, "its leader recovers, and is not alone in sync")
    if decided.eligible and not isr | elr and len(registration.last_known_elr) != 1:
        yield _wrong(decided, f"last known: {_names(registration.last_known_elr) or 'nobody'}")


def goes_on(before: Decided, after: Decided, *, registered: Collection[int]) -> Iterator[Wrong]:
    """Check the step from one decision to a later one; `registered` are the brokers that registered
    in between.
    """
    # The log directory of a replica changes without a new partition epoch (KIP-858).
    was = attrs.evolve(before.registration, directories=())
    now = attrs.evolve(after.registration, directories=())
    if now in (was, attrs.evolve(was, elr=())):
        return  # another minimum ISR clears the ELR, which moves no epoch (ClearElrRecord)
    moved = was.leader != now.leader
    if now.partition_epoch <= was.partition_epoch or now.leader_epoch < was.leader_epoch + moved:
        yield _wrong(
            after,
            f"leader epoch {was.leader_epoch} and partition epoch {was.partition_epoch} went to"
            f" {now.leader_epoch} and {now.partition_epoch}",
            DECIDED,
        )
    yield from _no_member_is_lost(before, after, registered)
    if now.partition_epoch == was.partition_epoch + 1:
        yield from _moves(after, was, now)


def _moves(
    after: Decided, was: PartitionRegistration, now: PartitionRegistration
) -> Iterator[Wrong]:
    """Check one step of a move (KIP-455): it is over when all that stay are in sync, and however its
    target changes, it leads back to the replicas that it began with. A move to replicas that are all
    in sync is one step.
    """
    began, stay = set(was.replicas) - set(was.adding), set(was.replicas) - set(was.removing)
    if not (was.adding or was.removing):
        stay = set(now.replicas) - set(now.removing)
        if now.adding or now.removing or stay == began:
            return
    if now.adding or now.removing:
        if (leads_back := set(now.replicas) - set(now.adding)) != began:
            yield _wrong(
                after,
                f"called off, it has {_names(leads_back)}, and began as {_names(began)}",
                MOVES,
            )
    elif set(now.replicas) == stay != began and not stay <= set(now.isr):
        yield _wrong(after, f"it has moved to {_names(stay)}", MOVES)


def at_risk(before: Decided, after: Decided, risk: str, *, asked: bool) -> Iterator[Wrong]:
    """Check that an unclean election was asked for; `risk` says why the new leader may lack
    records.

    Only single changes are checked: of two, the first may have named the last known leader.
    """
    one_change = after.registration.partition_epoch == before.registration.partition_epoch + 1
    if risk == "unclean" and one_change and not (after.unclean or asked):
        was = before.registration
        yield _wrong(
            after,
            f"b{after.registration.leader} was elected from isr {_names(was.isr) or 'nobody'},"
            f" elr {_names(was.elr) or 'nobody'}, last known {_names(was.last_known_elr)}",
            UNCLEAN,
        )


def _no_member_is_lost(
    before: Decided, after: Decided, registered: Collection[int]
) -> Iterator[Wrong]:
    """Check that no member is lost from ISR and ELR while the ISR is too small.

    A member that was in sync when the ISR became too small has all that is committed until it
    registers again, and until then it stays in one of the two. Only single changes are checked: of
    two, the first may have removed it while enough others were in sync.
    """
    was, now = before.registration, after.registration
    if now.partition_epoch != was.partition_epoch + 1:
        return
    if not after.eligible or len(now.isr) >= after.min_isr or before.min_isr != after.min_isr:
        return
    if now.leader_recovery_state is LeaderRecoveryState.RECOVERING:
        return  # an election that may lose what was committed starts over
    if was.elr and not now.elr:
        return  # setting min.insync.replicas, even to its present value, empties it
    held = ({*was.isr, *was.elr} & set(now.replicas)) - set(registered)
    if slipped := held - {*now.isr, *now.elr}:
        yield _wrong(
            after, f"isr {_names(was.isr)}, elr {_names(was.elr)} had {_names(slipped)}", SLIPPED
        )


def _wrong(decided: Decided, why: str, rule: str = ALGEBRA) -> Wrong:
    registration = decided.registration
    return Wrong(
        rule,
        f"{decided.partition}: isr {_names(registration.isr) or 'nobody'},"
        f" elr {_names(registration.elr) or 'nobody'}: {why}",
    )


def _names(brokers: Collection[int]) -> str:
    return " ".join(f"b{each}" for each in sorted(brokers))


def excluded(
    broker_id: int, partition: TopicPartition, registration: PartitionRegistration
) -> Iterator[Wrong]:
    """Check a partition at the moment when a broker registers after an unclean shutdown."""
    standing = {
        "leads": {registration.leader},
        "is in the ISR of": registration.isr,
        "is in the ELR of": registration.elr,
    }
    for words, members in standing.items():
        if broker_id in members:
            yield Wrong(
                EXCLUDED,
                f"b{broker_id} {words} {partition}, and was not shut down cleanly",
            )
