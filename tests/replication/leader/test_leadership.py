"""A leader, its followers and its ISR: Kafka's PartitionTest, for one partition."""

import pytest

from replication.errors import ErrorCode, KafkaError
from replication.leader.rules.isr import (
    NEVER_MS,
    CommittedIsr,
    IsrMember,
    PendingExpand,
    PendingShrink,
)
from tests.replication.leader.leader_side import (
    LOCAL,
    MAX_LAG_MS,
    OTHER,
    REMOTE,
    Broker,
    append,
    batch,
    epoch_of,
    fetch,
    lead,
    open_log,
    registration,
)

ALL = (LOCAL, REMOTE, OTHER)


@pytest.fixture
def broker() -> Broker:
    return Broker()


# The high watermark.


def test_the_high_watermark_follows_the_slowest_member(broker: Broker) -> None:
    partition = broker.leader(ALL, records=10)
    fetch(partition, 10)
    assert partition.log.high_watermark == 0
    fetch(partition, 4, replica=OTHER)
    assert partition.log.high_watermark == 4
    assert broker.reported == ["high watermark 4"]


def test_a_leader_alone_commits_what_it_appends(broker: Broker) -> None:
    partition = broker.leader((LOCAL,), records=3)
    append(partition, 2)
    assert partition.log.high_watermark == 5
    assert broker.reported == ["high watermark 5"]
    partition = broker.leader((LOCAL, REMOTE))
    append(partition)
    assert broker.reported == ["log end"]


def test_a_new_leader_does_not_move_the_high_watermark_before_its_followers_fetch() -> None:
    log = open_log()
    log.append_as_follower(batch(5, leader_epoch=1))
    log.update_high_watermark(3)
    partition = Broker().leader(leader_epoch=2, log=log)
    assert log.high_watermark == 3
    fetch(partition, 5)
    assert log.high_watermark == 5


@pytest.mark.conformance("PT-40")
def test_below_the_minimum_isr_nothing_is_committed(broker: Broker) -> None:
    partition = broker.leader((LOCAL, REMOTE), replicas=ALL, records=6, min_insync_replicas=3)
    fetch(partition, 6)
    fetch(partition, 6, replica=OTHER)
    assert partition.log.high_watermark == 0
    broker.answer(partition)
    assert partition.log.high_watermark == 6


def test_a_smaller_minimum_lets_it_go_on(broker: Broker) -> None:
    partition = broker.leader((LOCAL,), replicas=(LOCAL, REMOTE), records=6, min_insync_replicas=2)
    assert partition.log.high_watermark == 0
    partition.configure(min_insync_replicas=1)
    assert partition.log.high_watermark == 6


@pytest.mark.conformance("PT-33")
@pytest.mark.parametrize(
    ("state", "expected"),
    [({"fenced": True}, 20), ({"in_controlled_shutdown": True}, 20), ({}, 10)],
    ids=["fenced", "shutting down", "neither"],
)
def test_a_follower_that_has_left_holds_the_high_watermark_only_if_it_may_come_back(
    state: dict[str, bool], expected: int
) -> None:
    broker = Broker()
    partition = broker.leader(records=10)
    fetch(partition, 10)
    broker.set_broker(REMOTE, **state)
    append(partition, 10)
    partition.make_leader(registration(partition_epoch=2, isr=(LOCAL,)))
    assert partition.log.high_watermark == expected


def test_a_joining_follower_counts_before_the_controller_agrees(broker: Broker) -> None:
    """KIP-497: the controller may have added it, and may elect it, before we hear of it."""
    partition = broker.leader((LOCAL,), replicas=(LOCAL, REMOTE), records=4)
    fetch(partition, 4)
    append(partition, 3)
    assert isinstance(lead(partition).isr_state, PendingExpand)
    assert partition.log.high_watermark == 4


def test_a_leaving_follower_counts_until_the_controller_agrees(broker: Broker) -> None:
    partition = broker.leader(records=4)
    fetch(partition, 1)
    broker.now_ms += MAX_LAG_MS + 1
    lead(partition).maybe_shrink_isr()
    append(partition, 1)
    assert partition.log.high_watermark == 1
    broker.answer(partition)
    assert partition.log.high_watermark == 5


def test_a_follower_that_is_refused_no_longer_holds_the_high_watermark(broker: Broker) -> None:
    partition = broker.leader((LOCAL, REMOTE), replicas=ALL, records=4)
    fetch(partition, 0, replica=OTHER)
    fetch(partition, 4)
    append(partition, 2)
    fetch(partition, 4, replica=OTHER)
    assert isinstance(lead(partition).isr_state, PendingExpand)
    fetch(partition, 6)
    assert partition.log.high_watermark == 4
    broker.set_broker(OTHER, fenced=True)
    broker.refuse(partition, ErrorCode.INELIGIBLE_REPLICA)
    assert partition.log.high_watermark == 6


# What is known of a follower.


@pytest.mark.conformance("PT-28")
def test_where_a_follower_stands_is_learned_from_its_fetches(broker: Broker) -> None:
    partition = broker.leader(records=6)
    elected_ms = broker.now_ms
    follower = lead(partition).followers[REMOTE]
    assert (follower.last_caught_up_ms, follower.log_end_offset) == (elected_ms, -1)
    broker.now_ms += 500
    fetch(partition, 3)
    assert (follower.last_caught_up_ms, follower.log_end_offset) == (elected_ms, 3)
    assert follower.log_start_offset == 0
    broker.now_ms += 500
    fetch(partition, 6)
    assert (follower.last_caught_up_ms, follower.log_end_offset) == (broker.now_ms, 6)


def test_a_non_member_was_never_caught_up_when_a_leader_epoch_begins() -> None:
    partition = Broker().leader((LOCAL,), replicas=ALL)
    assert lead(partition).followers[OTHER].last_caught_up_ms == NEVER_MS


@pytest.mark.conformance("PT-42")
def test_a_follower_that_reached_the_end_of_its_last_fetch_stays(broker: Broker) -> None:
    partition = broker.leader(records=10)
    first_ms = broker.now_ms
    fetch(partition, 5)
    assert partition.log.high_watermark == 5
    broker.now_ms += 5000
    append(partition, 5)
    fetch(partition, 10)
    assert lead(partition).followers[REMOTE].last_caught_up_ms == first_ms
    assert partition.log.high_watermark == 10
    lead(partition).maybe_shrink_isr()
    assert broker.proposals == []


# Joining the ISR.


@pytest.mark.conformance("PT-25")
def test_a_follower_joins_when_it_reaches_the_current_leader_epoch(broker: Broker) -> None:
    log = open_log()
    log.append_as_follower(batch(10, leader_epoch=1))
    log.update_high_watermark(6)
    partition = broker.leader((LOCAL, REMOTE), replicas=ALL, leader_epoch=2, log=log)
    fetch(partition, 6, replica=OTHER)
    assert broker.proposals == []
    fetch(partition, 10, replica=OTHER)
    [pending] = broker.proposals
    assert pending.sent.broker_ids == {*ALL}
    assert partition.isr == {LOCAL, REMOTE}
    assert lead(partition).maximal_isr == {*ALL}
    assert pending.sent.isr == (
        IsrMember(LOCAL, epoch_of(LOCAL)),
        IsrMember(REMOTE, -1),
        IsrMember(OTHER, epoch_of(OTHER)),
    )


@pytest.mark.conformance("PT-35")
def test_only_the_process_that_is_registered_now_may_join(broker: Broker) -> None:
    partition = broker.leader((LOCAL,), replicas=ALL, records=4)
    broker.set_broker(REMOTE, broker_epoch=90)
    fetch(partition, 4, broker_epoch=95)
    assert broker.proposals == []
    broker.set_broker(REMOTE, broker_epoch=95)
    fetch(partition, 4, broker_epoch=95)
    [pending] = broker.proposals
    assert pending.sent.isr == (IsrMember(LOCAL, epoch_of(LOCAL)), IsrMember(REMOTE, 95))


@pytest.mark.conformance("PT-29")
def test_a_follower_that_is_gone_from_the_metadata_is_not_eligible(broker: Broker) -> None:
    partition = broker.leader((LOCAL,), replicas=(LOCAL, 9), records=4)
    fetch(partition, 4, replica=9)
    assert broker.proposals == []


@pytest.mark.conformance("PT-34")
@pytest.mark.conformance("PT-37")
@pytest.mark.parametrize("state", ["fenced", "in_controlled_shutdown"])
def test_an_ineligible_follower_is_not_asked_for_again_until_it_is_eligible(state: str) -> None:
    broker = Broker()
    partition = broker.leader((LOCAL,), replicas=(LOCAL, REMOTE), records=4)
    fetch(partition, 4)
    assert not broker.refuse(partition, ErrorCode.INELIGIBLE_REPLICA)
    assert lead(partition).isr_state == CommittedIsr(frozenset({LOCAL}))
    broker.set_broker(REMOTE, fenced=state == "fenced", in_controlled_shutdown=state != "fenced")
    fetch(partition, 4)
    assert len(broker.proposals) == 1
    broker.set_broker(REMOTE)
    fetch(partition, 4)
    assert len(broker.proposals) == 2
    broker.answer(partition)
    assert partition.isr == {LOCAL, REMOTE}
    assert partition.partition_epoch == 2
    assert broker.reported[-1] == "isr [1, 2]"


# Leaving it.


@pytest.mark.conformance("PT-39")
def test_a_follower_that_never_fetched_is_dropped_after_the_lag(broker: Broker) -> None:
    partition = broker.leader(ALL, records=10)
    fetch(partition, 10)
    lead(partition).maybe_shrink_isr()
    assert broker.proposals == []
    broker.now_ms += MAX_LAG_MS + 1
    lead(partition).maybe_shrink_isr()
    [pending] = broker.proposals
    assert isinstance(pending, PendingShrink)
    assert pending.leaving == {OTHER}
    assert pending.sent.isr == (
        IsrMember(LOCAL, epoch_of(LOCAL)),
        IsrMember(REMOTE, epoch_of(REMOTE)),
    )
    assert partition.log.high_watermark == 0
    broker.answer(partition)
    assert partition.log.high_watermark == 10


@pytest.mark.conformance("PT-43")
def test_a_follower_at_the_log_end_stays_however_long_it_is_silent(broker: Broker) -> None:
    partition = broker.leader(records=10)
    fetch(partition, 10)
    broker.now_ms += MAX_LAG_MS + 1
    lead(partition).maybe_shrink_isr()
    assert broker.proposals == []


@pytest.mark.conformance("PT-38")
def test_a_shrink_whose_fate_is_unknown_is_asked_for_again(broker: Broker) -> None:
    partition = broker.leader(records=10)
    broker.now_ms += MAX_LAG_MS + 1
    lead(partition).maybe_shrink_isr()
    assert broker.refuse(partition, ErrorCode.NETWORK_EXCEPTION)
    assert lead(partition).failed_isr_updates == 1
    assert partition.isr == lead(partition).maximal_isr == {LOCAL, REMOTE}
    assert (partition.partition_epoch, partition.log.high_watermark) == (1, 0)
    assert not broker.answer(partition)
    assert partition.isr == {LOCAL}
    assert partition.partition_epoch == 2
    assert partition.log.high_watermark == 10


@pytest.mark.conformance("PT-44")
def test_a_shrink_at_an_old_partition_epoch_waits_for_metadata(broker: Broker) -> None:
    partition = broker.leader(records=10)
    broker.now_ms += MAX_LAG_MS + 1
    lead(partition).maybe_shrink_isr()
    assert not broker.refuse(partition, ErrorCode.INVALID_UPDATE_VERSION)
    assert isinstance(lead(partition).isr_state, PendingShrink)
    assert partition.isr == {LOCAL, REMOTE}
    assert partition.log.high_watermark == 0


@pytest.mark.conformance("PT-30")
@pytest.mark.conformance("PT-32")
@pytest.mark.conformance("PT-45")
@pytest.mark.conformance("PT-46")
@pytest.mark.conformance("PT-47")
@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_an_expansion_that_came_too_late_waits_for_metadata(error: ErrorCode) -> None:
    broker = Broker()
    partition = broker.leader((LOCAL,), replicas=(LOCAL, REMOTE), records=4)
    fetch(partition, 4)
    assert not broker.refuse(partition, error)
    assert partition.isr == {LOCAL}
    assert lead(partition).maximal_isr == {LOCAL, REMOTE}
    assert lead(partition).failed_isr_updates == 1
    fetch(partition, 4)
    assert len(broker.proposals) == 1


@pytest.mark.conformance("PT-48")
def test_an_expansion_that_failed_somehow_is_asked_for_again(broker: Broker) -> None:
    partition = broker.leader((LOCAL,), replicas=(LOCAL, REMOTE), records=4)
    fetch(partition, 4)
    assert broker.refuse(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert isinstance(lead(partition).isr_state, PendingExpand)


@pytest.mark.conformance("PT-41")
def test_newer_metadata_replaces_a_pending_change_and_its_answer_means_nothing() -> None:
    broker = Broker()
    partition = broker.leader(ALL, records=10)
    broker.now_ms += MAX_LAG_MS + 1
    lead(partition).maybe_shrink_isr()
    partition.make_leader(registration(partition_epoch=2, isr=ALL, replicas=ALL))
    assert isinstance(lead(partition).isr_state, CommittedIsr)
    assert not broker.answer(partition)
    assert partition.isr == {*ALL}
    lead(partition).maybe_shrink_isr()
    assert broker.proposals[-1].sent.partition_epoch == 2
    # While the first request is out, the second is not taken: it may be tried again later.
    assert not broker.refuse(partition, ErrorCode.OPERATION_NOT_ATTEMPTED)
    lead(partition).maybe_shrink_isr()
    assert len(broker.proposals) == 3


# What acks=all may rely on.


@pytest.mark.conformance("PT-26")
@pytest.mark.conformance("PT-27")
@pytest.mark.conformance("PT-55")
def test_the_minimum_isr(broker: Broker) -> None:
    partition = broker.leader(ALL, min_insync_replicas=2)
    assert not lead(partition).under_min_isr
    partition.make_leader(registration(partition_epoch=2, isr=(LOCAL,), replicas=ALL))
    assert lead(partition).under_min_isr
    assert partition.snapshot().under_min_isr


def test_acks_all_is_refused_while_the_isr_is_too_small_and_the_others_are_not() -> None:
    partition = Broker().leader((LOCAL,), replicas=ALL, min_insync_replicas=2)
    with pytest.raises(KafkaError) as refused:
        append(partition, acks=-1)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.log.log_end_offset == 0
    for acks in (0, 1):
        append(partition, acks=acks)
    assert partition.log.log_end_offset == 2


def test_how_an_append_to_all_ends(broker: Broker) -> None:
    partition = broker.leader(ALL, records=5, min_insync_replicas=2)
    assert partition.produced(5) is None
    fetch(partition, 5)
    fetch(partition, 5, replica=OTHER)
    assert partition.produced(5) is ErrorCode.NONE
    partition.make_leader(registration(partition_epoch=2, isr=(LOCAL,), replicas=ALL))
    assert partition.produced(5) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert partition.produced(6) is None
    partition.make_follower(registration(leader=REMOTE, leader_epoch=2, partition_epoch=3))
    assert partition.produced(5) is ErrorCode.NOT_LEADER_OR_FOLLOWER
