"""Positions that a new leader may not have (KIP-320)."""

import pytest

from replication.client.consumer.errors import LogTruncationError, NoOffsetForPartitionError
from replication.client.consumer.position import EARLIEST, LATEST, FetchPosition, FetchState
from storage.types import OffsetAndEpoch
from tests.replication.client.consumer.fetching import T0, T1, Rig


@pytest.mark.conformance("CF-66")
def test_a_position_of_an_older_reign_is_validated_before_it_is_used() -> None:
    rig = Rig()
    rig.assign(T0)
    rig.seek(T0, 5, epoch=1)
    rig.subscriptions.complete_validation(
        T0, FetchPosition(5, 1, rig.view.leader(T0)), OffsetAndEpoch(9, 1)
    )
    assert rig.subscriptions.is_fetchable(T0)
    rig.update_metadata(epoch=2)
    state = rig.subscriptions.state(T0)
    assert state.state is FetchState.AWAIT_VALIDATION
    assert rig.send() == []
    [(tp, asked)] = rig.subscriptions.needing_validation(0).items()
    assert (tp, asked.offset, asked.offset_epoch, asked.leader.epoch) == (T0, 5, 1, 2)
    assert rig.subscriptions.complete_validation(tp, asked, OffsetAndEpoch(9, 1)) is None
    [sent] = rig.send()
    assert sent.offsets() == {"t-0": 5}


def awaiting(policy: object = EARLIEST) -> tuple[Rig, FetchPosition]:
    rig = Rig(policy=policy)  # type: ignore[arg-type]  # a strategy, or none
    rig.assign(T0)
    rig.seek(T0, 10, epoch=1)
    [asked] = rig.subscriptions.needing_validation(0).values()
    return rig, asked


def test_a_log_that_was_cut_is_read_on_from_where_it_parts() -> None:
    rig, asked = awaiting()
    assert rig.subscriptions.complete_validation(T0, asked, OffsetAndEpoch(7, 0)) is None
    position = rig.subscriptions.valid_position(T0)
    assert position == FetchPosition(7, 0, asked.leader)


def test_a_truncated_log_is_raised_to_a_program_without_a_reset_policy() -> None:
    rig, asked = awaiting(policy=None)
    error = rig.subscriptions.complete_validation(T0, asked, OffsetAndEpoch(7, 0))
    assert isinstance(error, LogTruncationError)
    assert error.offsets == {T0: 10}
    assert error.divergent_offsets == {T0: OffsetAndEpoch(7, 0)}
    assert not rig.subscriptions.is_fetchable(T0)


@pytest.mark.parametrize("end", [OffsetAndEpoch(-1, 3), OffsetAndEpoch(7, -1)])
def test_an_epoch_that_the_leader_does_not_know_is_reset_or_raised(end: OffsetAndEpoch) -> None:
    rig, asked = awaiting(policy=LATEST)
    assert rig.subscriptions.complete_validation(T0, asked, end) is None
    assert rig.subscriptions.needing_reset(0) == {T0: LATEST}
    rig, asked = awaiting(policy=None)
    error = rig.subscriptions.complete_validation(T0, asked, end)
    assert error is not None
    assert error.divergent_offsets == {}


def test_an_answer_about_another_position_is_ignored() -> None:
    rig, asked = awaiting()
    rig.seek(T0, 11, epoch=1)
    assert rig.subscriptions.complete_validation(T0, asked, OffsetAndEpoch(7, 0)) is None
    assert rig.position(T0) == 11
    assert not rig.subscriptions.is_fetchable(T0)


def test_nothing_committed_and_no_policy_is_raised_for_all_of_them() -> None:
    rig = Rig(policy=None)
    rig.assign(T0, T1)
    with pytest.raises(NoOffsetForPartitionError) as raised:
        rig.subscriptions.reset_initializing()
    assert raised.value.partitions == {T0, T1}
