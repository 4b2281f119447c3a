"""The verdict of the live page: is anything wrong now, is anything lost, what happened.

    bad       a partition without a leader, no controller that leads, committed records lost
    warning   a broker that is not up, a link that is cut, an ISR that is not whole
    good      all else

Rule: what is said about dead brokers follows the controller. One that it still counts as alive may
lead: nobody takes over its partitions before its session has expired.
"""

from collections.abc import Iterator

from replication.observe.cluster_state import ClusterState, Status
from replication.observe.losses import LossCount
from replication.observe.pages import Level, PageVerdict, counted
from replication.observe.sentences import broker_name


def verdict(state: ClusterState, losses: LossCount) -> PageVerdict:
    wrong, waiting = list(_wrong(state)), list(_waiting(state))
    lost = "no committed record was lost"
    if losses.lost:
        lost = f"{counted(losses.lost, 'committed record')} lost"
    changes = counted(losses.leader_changes, "leader change")
    level = Level.BAD if wrong or losses.lost else Level.WARNING if waiting else Level.GOOD
    found = "; ".join(wrong + waiting) or (
        f"{counted(len(state.brokers), 'broker')} up, every ISR of"
        f" {counted(state.number_of_partitions, 'partition')} whole"
    )
    return PageVerdict(level, f"{found}. Since the start: {changes}, {lost}.")


def _wrong(state: ClusterState) -> Iterator[str]:
    if state.quorum is not None and state.quorum.leader is None:
        yield "no controller leads"
    if leaderless := sum(each.is_offline for each in state.partitions):
        yield f"{counted(leaderless, 'partition')} without a leader"


def _waiting(state: ClusterState) -> Iterator[str]:
    for each in state.brokers:
        name = broker_name(each.id)
        if each.is_dead and each.fenced is False:
            led = sum(one.leader == each.id for one in state.partitions)
            leads = f" and leads {counted(led, 'partition')}" if led else ""
            yield f"{name} is {each.status}, and the controller still counts it as alive{leads}"
        elif each.status is not Status.UP:
            yield f"{name} is {each.status}"
    if under := sum(each.is_under_replicated and not each.is_offline for each in state.partitions):
        yield f"{counted(under, 'ISR')} not whole"
    if state.cut:
        yield f"{counted(len(state.cut), 'link')} cut"
