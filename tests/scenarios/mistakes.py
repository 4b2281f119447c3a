"""Mistakes to be planted, one for each way in which a run can go wrong."""

from typing import Any

import attrs
import pytest

from replication.controller.rules import decisions as controller_decisions, election
from replication.controller.rules.election import Wish
from replication.errors import ErrorCode
from replication.leader.partition import Partition
from replication.leader.purgatory import Purgatory
from replication.leader.rules import leadership
from replication.leader.rules.leadership import Leadership
from replication.metadata.rules import PartitionRegistration
from replication.replica_manager import LocalReplicas
from scenarios.story.commands.judge import ACKS_ALL
from storage.types import Offset


def a_leader_commits_alone(planting: pytest.MonkeyPatch) -> None:
    def its_own_log_end(*_: object, leader_log_end: Offset, **__: object) -> Offset:
        return leader_log_end

    planting.setattr(leadership, "committed_end", its_own_log_end)


def anybody_is_elected(planting: pytest.MonkeyPatch) -> None:
    honest = election.after

    def after(partition: PartitionRegistration, wish: Wish, **how: Any) -> PartitionRegistration:
        if wish.isr is not None and partition.leader not in wish.isr:
            wish = attrs.evolve(wish, isr=tuple(filter(how["is_active"], partition.replicas)))
        return honest(partition, wish, **how)

    planting.setattr(controller_decisions, "after", after)


def no_follower_truncates(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(LocalReplicas, "truncate_to", lambda *_, **__: None)


def acks_all_does_not_wait(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(Leadership, "produced", lambda *_: ErrorCode.NONE)


def any_fetch_joins_the_isr(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(leadership, "may_expand", lambda *_, **__: True)


def no_follower_joins_the_isr(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(Leadership, "_maybe_expand_isr", lambda *_: None)


def no_batch_is_ever_refused(planting: pytest.MonkeyPatch) -> None:
    """The refusal is for the producer's ears only: the batch is written."""
    honest = Partition.append_as_leader

    def append(self: Partition, *of: Any, **how: Any) -> Any:
        under = self.leadership is not None and self.leadership.under_min_isr
        if under and how["required_acks"] == ACKS_ALL:
            honest(self, *of, **how | {"required_acks": 1})
        return honest(self, *of, **how)

    planting.setattr(Partition, "append_as_leader", append)


def who_has_waited_is_remembered(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(Purgatory, "_forget", lambda *_: None)
