"""Which partitions may lose what was committed, and after which faults."""

import math
from typing import Any

import attrs
import pytest

from replication.controller.rules import election
from replication.wire.metadata import NO_LEADER
from scenarios.checkers import leadership
from scenarios.checkers.contract import WITHIN, Budget, Contract, within
from scenarios.story.runner import run_story
from scenarios.story.script import parse
from scenarios.swarm.generator import LossBudget
from scenarios.swarm.runner import play
from storage.types import TopicPartition
from tests.scenarios.values import PARTITION, decided, rules


def test_loss_is_allowed_after_these_elections_and_no_others() -> None:
    contract = Contract()
    contract.created(PARTITION)
    for cause in ("created", "clean", "eligible", "last known"):
        contract.elected(PARTITION, "b1", cause)
    assert not contract.may_have_lost
    contract.lost_its_disk("b1")
    for cause in ("clean", "eligible"):
        contract.elected(PARTITION, "b1", cause)
    contract.elected(PARTITION, "b2", "last known")
    assert not contract.may_have_lost
    contract.elected(PARTITION, "b1", "last known")
    assert contract.may_have_lost == {PARTITION: "last known"}
    contract.created(PARTITION)
    assert not contract.may_have_lost, "another partition of that name"
    contract.elected(PARTITION, "b2", "unclean")
    assert contract.may_have_lost == {PARTITION: "unclean"}


def test_later_records_are_promised_unless_an_older_leader_still_appends() -> None:
    contract = Contract()
    contract.created(PARTITION)
    contract.elected(PARTITION, "b1", "clean", at=1.0)
    assert not contract.lost_until
    contract.elected(PARTITION, "b2", "unclean", at=5.0)
    assert contract.lost_until == {PARTITION: 5.0}
    contract.led_still(PARTITION, at=7.0)
    assert contract.lost_until == {PARTITION: 7.0}
    contract.lost_its_disk("b1")
    contract.elected(PARTITION, "b1", "clean", watched=False, at=9.0)
    assert contract.lost_until == {PARTITION: math.inf}


def test_a_replica_that_has_joined_the_isr_since_has_everything() -> None:
    contract = Contract()
    contract.created(PARTITION)
    contract.lost_its_disk("b1")
    contract.joined(PARTITION, "b1")
    assert contract.is_unsure(PARTITION, "b1"), "a late event about an earlier decision"
    contract.registered("b1")
    assert contract.is_unsure(PARTITION, "b1")
    contract.joined(PARTITION, "b1")
    contract.elected(PARTITION, "b1", "last known")
    assert not contract.may_have_lost


def test_a_replica_proposed_for_its_former_process_is_unproven() -> None:
    contract = Contract()
    contract.created(PARTITION)
    contract.joined(PARTITION, "b1", perhaps_formerly=True)
    assert not contract.is_unproven(PARTITION, "b1"), "it has lost nothing"
    contract.lost_its_disk("b1")
    contract.joined(PARTITION, "b1", perhaps_formerly=True)
    contract.registered("b1")
    assert not contract.is_unproven(PARTITION, "b1"), "a late event: it has left since"
    contract.joined(PARTITION, "b1", perhaps_formerly=True)
    assert contract.is_unproven(PARTITION, "b1")
    assert contract.is_unsure(PARTITION, "b1")
    assert not contract.may_have_lost
    contract.elected(PARTITION, "b1", "clean")
    assert contract.may_have_lost
    contract.caught_up(PARTITION, "b1")
    assert not contract.is_unsure(PARTITION, "b1")


def test_a_member_that_followed_a_loss_is_unproven_until_it_has_everything() -> None:
    contract = Contract()
    contract.created(PARTITION)
    contract.followed_a_loss(PARTITION, "b1")
    assert contract.is_unproven(PARTITION, "b1")
    contract.elected(PARTITION, "b2", "clean")
    assert not contract.may_have_lost, "another one leads, who has everything"
    contract.caught_up(PARTITION, "b1")
    contract.elected(PARTITION, "b1", "clean")
    assert not contract.may_have_lost


def test_a_rotten_replica_is_unsure_of_that_partition_only() -> None:
    contract = Contract()
    other = TopicPartition("t", 1)
    for partition in (PARTITION, other):
        contract.created(partition)
    contract.rotted(PARTITION, "b1")
    contract.elected(PARTITION, "b1", "clean")
    contract.elected(PARTITION, "b2", "last known")
    contract.elected(other, "b1", "last known")
    assert not contract.may_have_lost, "who is in sync has everything; others have not rotten"
    contract.joined(PARTITION, "b1")
    contract.elected(PARTITION, "b1", "last known")
    assert contract.may_have_lost == {PARTITION: "last known"}, (
        "it fetched what it lacked, and no more"
    )
    contract.created(PARTITION)
    contract.elected(PARTITION, "b1", "last known")
    assert not contract.may_have_lost, "another partition of that name"


def test_a_lying_disk_excuses_only_what_a_power_cut_does() -> None:
    contract = Contract()
    contract.created(PARTITION)
    contract.lost_its_disk("b1")
    for cause in ("clean", "eligible"):
        contract.elected(PARTITION, "b1", cause)
    assert not contract.may_have_lost, "an eligible replica has all that was committed"
    contract.elected(PARTITION, "b1", "last known")
    assert contract.may_have_lost == {PARTITION: "last known"}


def test_without_an_elr_the_end_of_a_broker_does_not_matter() -> None:
    contract = Contract()
    contract.created(PARTITION)
    contract.elected(PARTITION, "b1", "clean", watched=False)
    assert not contract.may_have_lost
    contract.lost_its_disk("b1")
    contract.elected(PARTITION, "b1", "clean", watched=False)
    assert contract.may_have_lost


# The budget of unclean shutdowns.


def test_a_budget_is_the_unclean_shutdowns_that_cost_nothing() -> None:
    budget = Budget()
    budget.decided(None, decided(isr=(1, 2, 3)))  # two of three are the minimum
    assert not budget.is_spent(PARTITION)
    assert not budget.would_be_spent(["b1"])
    assert budget.would_be_spent(["b1", "b2"])
    assert not budget.would_be_spent(["b9"])
    budget.ended.affect("b1")
    assert budget.would_be_spent(["b2"])
    assert not budget.would_be_spent(["b1"]), "it has ended so already"
    assert rules(within(budget, PARTITION, "b1")) == [WITHIN]
    budget.ended.joined(PARTITION, "b1")
    assert budget.would_be_spent(["b2"]), "a late event: it has yet to register"
    budget.ended.registered("b1")
    budget.ended.joined(PARTITION, "b1")
    assert not budget.would_be_spent(["b2"])
    for node in ("b2", "b3"):
        budget.ended.affect(node)
    assert budget.is_spent(PARTITION)
    assert not rules(within(budget, PARTITION, "b2"))


def test_a_replica_in_sync_from_the_beginning_may_be_down_already() -> None:
    budget = Budget()
    budget.ended.affect("b1")
    budget.decided(None, decided(isr=(1, 2, 3)))
    assert budget.would_be_spent(["b2"])


def test_a_clean_shutdown_costs_no_budget() -> None:
    budget = Budget()
    budget.decided(None, decided(isr=(1, 2, 3)))
    budget.in_good_order.add("b1")
    budget.stopped("b1")
    assert not budget.ended.among(PARTITION)
    budget.stopped("b1")  # on its way up: its marker is gone
    assert set(budget.ended.among(PARTITION)) == {"b1"}


def test_a_shutdown_without_one_of_the_log_directories_is_unclean() -> None:
    budget = Budget()
    budget.decided(None, decided(isr=(1, 2, 3)))
    budget.lost_a_directory("b1")
    assert not budget.ended.among(PARTITION), "it runs"
    budget.in_good_order |= {"b1", "b2"}
    budget.stopped("b2")
    budget.stopped("b1")
    assert set(budget.ended.among(PARTITION)) == {"b1"}
    budget.ended.registered("b1")
    budget.ended.joined(PARTITION, "b1")
    budget.in_good_order.add("b1")
    budget.stopped("b1")
    assert not budget.ended.among(PARTITION), "its next process has all of them"


def test_a_rotten_log_counts_as_an_unclean_shutdown_once_it_is_found() -> None:
    budget = Budget()
    budget.decided(None, decided(isr=(1, 2, 3)))
    budget.found_lacking(PARTITION, "b1")
    assert not budget.ended.among(PARTITION), "no unclean shutdown explains it"
    budget.rotted(PARTITION, "b1")
    budget.in_good_order.add("b1")
    budget.stopped("b1")
    assert not budget.ended.among(PARTITION), "nobody has looked"
    budget.found_lacking(TopicPartition("t", 1), "b1")
    budget.found_lacking(PARTITION, "b2")
    assert not budget.ended.among(PARTITION), "these have not rotten"
    budget.found_lacking(PARTITION, "b1")
    assert set(budget.ended.among(PARTITION)) == {"b1"}
    budget.ended.registered("b1")
    budget.ended.joined(PARTITION, "b1")
    assert not budget.ended.among(PARTITION)


@pytest.mark.parametrize(
    "otherwise",
    [{"replicas": (1, 2)}, {"adding": (3,)}, {"removing": (3,)}, {"elr": ()}],
    ids=str,
)
def test_a_budget_that_cannot_be_counted_is_spent(otherwise: Any) -> None:
    before = decided(isr=(1,), elr=(2,))
    budget = Budget()
    budget.decided(None, decided(isr=(1, 2, 3)))
    budget.decided(before, decided(isr=(), elr=(1, 2), leader=NO_LEADER))
    assert not budget.is_spent(PARTITION)
    budget.decided(before, decided(before.registration, **otherwise))
    assert budget.is_spent(PARTITION)


def test_a_partition_that_begins_with_few_or_has_another_minimum_has_no_budget() -> None:
    budget = Budget()
    budget.decided(None, decided())
    assert budget.is_spent(PARTITION), "the third of its replicas was not there"
    budget.decided(None, decided(isr=(1, 2, 3)))
    assert not budget.is_spent(PARTITION), "another one of that name"
    budget.decided(decided(), attrs.evolve(decided(), min_isr=1))
    assert budget.is_spent(PARTITION)


def test_an_unclean_election_spends_the_budget() -> None:
    """It leaves its leader alone in sync, and another replica may still have everything."""
    budget = Budget()
    budget.decided(None, decided(isr=(1, 2, 3)))
    budget.forgo(PARTITION)
    assert budget.is_spent(PARTITION)
    budget.decided(None, decided(isr=(1, 2, 3)))
    assert not budget.is_spent(PARTITION), "another one of that name"


# b2 is cut off and still has everything; b1 is elected uncleanly, and again without its disk.
LAST_KNOWN_AFTER_UNCLEAN = """\
cluster brokers=2 broker.session.timeout.ms=3000 min.insync.replicas=2 unclean.leader.election.enable=true
topic t replicas=b2,b1
produce t-0 one
kill b1
wipe b1
run 4s
cut b2 c b1
run 4s
start b1 &
run 1s
kill b1
run 4s
wipe b1
start b1 &
run 1s
events leader_elected
"""


def test_the_leader_of_an_unclean_election_may_lose_with_its_disk() -> None:
    (step,) = run_story(parse(LAST_KNOWN_AFTER_UNCLEAN)).actual.steps
    assert "cause=unclean" in step.answer[-2]
    assert "cause=last known" in step.answer[-1]


# In a run.

CHEAP_AND_DEAR = """\
cluster brokers=3 min.insync.replicas=2
topic t replicas=b1,b2,b3
kill b1
kill b2
power-cut b1
power-cut b1 at=write
alter t min.insync.replicas=1
reassign t-0 b1
reassign t-0 back
reassign t-0 b3,b2,b1
start b1
wait whole t-0
wipe b1 b2
stop b3
wipe b3
kill c
"""


def test_a_run_with_a_budget_leaves_out_lines_that_exceed_it() -> None:
    run = play(lambda stage: LossBudget(stage).lines(CHEAP_AND_DEAR.splitlines()), seed=1)
    assert not run.wrong
    left_out = [line for line in CHEAP_AND_DEAR.splitlines() if line not in run.lines]
    assert left_out == [
        "kill b2",
        "power-cut b1 at=write",
        "alter t min.insync.replicas=1",
        "reassign t-0 b1",
        "reassign t-0 back",
        "wipe b1 b2",
    ]


ONE_END = """\
cluster brokers=2 min.insync.replicas=2
topic t replicas=b1,b2
produce t-0 one
stop b2
power-cut b1
start b1
wait leader t-0
"""


def test_one_unclean_end_of_two_leaves_somebody_who_has_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where nobody is eligible who left in good order, b1 is asked, which may have lost it."""

    def nobody(wanted: Any, *_: object) -> Any:
        return attrs.evolve(wanted, elr=())

    monkeypatch.setattr(election, "_with_eligible", nobody)
    monkeypatch.setattr(leadership, "_no_member_is_lost", lambda *_: ())
    run = play(lambda _: ONE_END.splitlines(), seed=1)
    assert run.rule == f"InvariantViolatedError: {WITHIN}"


ROTTEN_IN_GOOD_ORDER = """\
cluster brokers=1
topic t replicas=b1/b1
produce t-0 one
produce t-1 two
rot b1 t-0 0
rot b1 t-1 0
stop b1
start b1
wait leader t-0
wait leader t-1
"""


def test_a_rotten_only_copy_may_be_lost() -> None:
    run = play(lambda _: ROTTEN_IN_GOOD_ORDER.splitlines(), seed=1)
    assert not run.wrong
