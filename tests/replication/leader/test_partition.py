"""One partition: its roles, its epochs, what it reads and what it appends.

The file is long because each operation of a partition has its cases here.
"""

import random
from collections.abc import Callable

import pytest

from replication.errors import ErrorCode, KafkaError
from replication.leader.list_offsets import NOT_FOUND, offset_for_timestamp
from replication.leader.partition import Partition
from replication.leader.rules.fetch_data import (
    FetchInfo,
    FetchParams,
    FetchPartitionData,
    Isolation,
)
from replication.wire import list_offsets as wire
from replication.wire.fetch import AbortedTransactionData
from storage.batch.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    encode_batch,
    encode_control_batch,
)
from storage.errors import OffsetOutOfRangeError, UnexpectedAppendOffsetError
from storage.testing import FaultyFileSystem
from storage.testing.disk import Fault
from storage.types import OffsetAndEpoch
from tests.replication.leader.leader_side import (
    LOCAL,
    OTHER,
    REMOTE,
    Broker,
    append,
    batch,
    consumer_params,
    fetch,
    follower_params,
    lead,
    open_log,
    registration,
)


def code(call: Callable[[], object]) -> ErrorCode:
    """The error that `call` is refused with; NONE where it is not."""
    try:
        call()
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


# Divergence (KIP-595). Epochs 0@0-1, 3@2-7, 4@8-12, 7@13, 9@14-16; leader at epoch 10.


def with_history() -> Partition:
    log = open_log()
    for epoch, first, last in ((0, 0, 1), (3, 2, 7), (4, 8, 12), (7, 13, 13), (9, 14, 16)):
        log.append_as_follower(batch(last - first + 1, base_offset=first, leader_epoch=epoch))
    return Broker().leader(leader_epoch=10, log=log)


@pytest.mark.conformance("PT-1")
@pytest.mark.parametrize(
    ("last", "offset", "diverging"),
    [
        (2, 5, (0, 2)),
        (0, 4, (0, 2)),
        (6, 6, (4, 13)),
        (5, 9, (4, 13)),
        pytest.param(10, 18, (10, 17), id="past the end of the current leader epoch"),
    ],
)
def test_a_fetch_of_a_diverged_log_is_answered_where_they_diverge(
    last: int, offset: int, diverging: tuple[int, int]
) -> None:
    answer = fetch(with_history(), offset, last=last)
    epoch, end = diverging
    assert answer.diverging_epoch == OffsetAndEpoch(offset=end, leader_epoch=epoch)
    assert answer.records is None
    assert answer.error is ErrorCode.NONE


@pytest.mark.conformance("PT-2")
@pytest.mark.parametrize(("last", "offset"), [(0, 2), (7, 14), (9, 17), (10, 17)])
def test_a_fetch_on_the_same_branch_is_served(last: int, offset: int) -> None:
    answer = fetch(with_history(), offset, last=last)
    assert answer.diverging_epoch is None
    assert (answer.records is not None) == (offset < 17)


@pytest.mark.conformance("PT-2")
def test_an_epoch_from_the_future_is_out_of_range() -> None:
    assert code(lambda: fetch(with_history(), 5, last=11)) is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.conformance("PT-3")
def test_divergence_after_the_log_start_has_moved() -> None:
    partition = with_history()
    partition.log.update_high_watermark(17)
    partition.log.increment_log_start_offset(5)
    answer = fetch(partition, 8, last=2)
    assert answer.diverging_epoch == OffsetAndEpoch(offset=5, leader_epoch=2)
    for last in (0, 3):
        assert fetch(partition, 5, last=last).diverging_epoch is None
    assert code(lambda: fetch(partition, 0, last=0)) is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.conformance("PT-4")
@pytest.mark.parametrize("last", [5, 3])
def test_below_the_log_start_nothing_is_compared(last: int) -> None:
    partition = with_history()
    partition.log.update_high_watermark(17)
    partition.log.increment_log_start_offset(10)
    assert code(lambda: fetch(partition, 6, last=last)) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_fetch_that_diverges_says_nothing_about_its_follower() -> None:
    """KAFKA-13141: it counted as progress, and committed what the follower did not have."""
    partition = with_history()
    fetch(partition, 4, last=0)
    assert lead(partition).followers[REMOTE].log_end_offset == -1
    assert partition.log.high_watermark == 0


def test_out_of_range_without_epochs() -> None:
    partition = Broker().leader(records=3)
    with pytest.raises(OffsetOutOfRangeError):
        fetch(partition, 4)


# Epochs of requests.

EPOCH = 5
MATRIX = [
    (-1, ErrorCode.NONE),
    (EPOCH, ErrorCode.NONE),
    (EPOCH + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    (EPOCH - 1, ErrorCode.FENCED_LEADER_EPOCH),
]


@pytest.mark.conformance("PT-15")
@pytest.mark.conformance("PT-13")
@pytest.mark.parametrize(("current", "expected"), MATRIX)
def test_a_leader_judges_the_epoch_first(current: int, expected: ErrorCode) -> None:
    partition = Broker().leader(leader_epoch=EPOCH)
    assert code(lambda: fetch(partition, 0, current=current)) is expected
    assert code(lambda: partition.check_access(current, leader_only=True)) is expected


@pytest.mark.conformance("PT-17")
@pytest.mark.parametrize(("current", "expected"), MATRIX)
def test_a_look_up_by_time_is_judged_too(current: int, expected: ErrorCode) -> None:
    partition = Broker().leader(leader_epoch=EPOCH)

    def look_up() -> object:
        return offset_for_timestamp(
            partition, timestamp=0, isolation=None, current_leader_epoch=current, replica_id=-1
        )

    assert code(look_up) is expected


@pytest.mark.conformance("PT-7")
@pytest.mark.conformance("PT-14")
@pytest.mark.parametrize(("current", "expected"), MATRIX)
def test_a_follower_serves_no_follower(current: int, expected: ErrorCode) -> None:
    partition = Broker().partition()
    partition.make_follower(registration(leader=REMOTE, leader_epoch=EPOCH))
    if expected is ErrorCode.NONE:
        expected = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code(lambda: fetch(partition, 0, current=current)) is expected


@pytest.mark.conformance("PT-16")
@pytest.mark.conformance("RM-13")
@pytest.mark.parametrize(("current", "expected"), MATRIX)
@pytest.mark.parametrize("knows_followers", [True, False])
def test_a_follower_serves_consumers_that_can_read_from_followers(
    current: int, expected: ErrorCode, knows_followers: bool
) -> None:
    partition = Broker().partition()
    partition.make_follower(registration(leader=REMOTE, leader_epoch=EPOCH))
    params = consumer_params(knows_followers=knows_followers)
    if expected is ErrorCode.NONE and not knows_followers:
        expected = ErrorCode.NOT_LEADER_OR_FOLLOWER

    def read() -> object:
        info = FetchInfo(0, current_leader_epoch=current)
        return partition.fetch(params, info, max_bytes=100, min_one=True, note=True)

    assert code(read) is expected


@pytest.mark.conformance("PT-8")
def test_a_broker_that_is_no_replica_leaves_no_trace() -> None:
    partition = Broker().leader(leader_epoch=EPOCH)
    assert code(lambda: fetch(partition, 0, replica=OTHER, current=EPOCH)) is (
        ErrorCode.UNKNOWN_LEADER_EPOCH
    )
    assert code(lambda: fetch(partition, 0, replica=OTHER)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert OTHER not in lead(partition).followers
    newly = partition.make_leader(
        registration(leader_epoch=EPOCH, partition_epoch=2, replicas=(LOCAL, REMOTE, OTHER))
    )
    assert not newly
    fetch(partition, 0, replica=OTHER, current=EPOCH)
    assert lead(partition).followers[OTHER].log_end_offset == 0


@pytest.mark.conformance("PT-36")
def test_a_fetch_of_a_replaced_process_is_refused() -> None:
    broker = Broker()
    partition = broker.leader(records=5)
    fetch(partition, 2)
    broker.set_broker(REMOTE, broker_epoch=110)
    stale = code(lambda: fetch(partition, 5, broker_epoch=109))
    assert stale is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert lead(partition).followers[REMOTE].log_end_offset == 2
    assert lead(partition).followers[REMOTE].broker_epoch == 102


# What readers see.


@pytest.mark.conformance("RM-8")
def test_followers_read_to_the_log_end_and_consumers_to_the_high_watermark() -> None:
    partition = Broker().leader(records=4)
    follower = partition.fetch(
        follower_params(), FetchInfo(0), max_bytes=1 << 20, min_one=True, note=False
    )
    consumer = partition.fetch(
        consumer_params(), FetchInfo(0), max_bytes=1 << 20, min_one=True, note=False
    )
    assert follower.records is not None
    assert consumer.records is None
    assert (consumer.error, consumer.high_watermark) == (ErrorCode.NONE, 0)


def test_the_first_batch_is_read_whole_unless_the_limit_is_hard() -> None:
    partition = Broker().leader(isr=(LOCAL,), records=10)

    def read(*, hard: bool) -> int:
        params = FetchParams(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=20,
            isolation=Isolation.HIGH_WATERMARK,
            hard_max_bytes=hard,
        )
        answer = partition.fetch(params, FetchInfo(0), max_bytes=20, min_one=not hard, note=False)
        return answer.records_size

    assert read(hard=False) == partition.log.size
    assert read(hard=True) == 20


def test_a_disk_that_fails_answers_a_waiting_fetch_at_once() -> None:
    disk = FaultyFileSystem(random.Random(1))
    partition = Broker().leader((LOCAL,), log=open_log(disk), records=5)
    append(partition, 5)
    info = FetchInfo(2, max_bytes=1 << 20)
    disk.inject(Fault(operation="read", names="*", times=None))
    assert partition.available_bytes(consumer_params(), info, enough=100) is None


def test_an_answer_without_news_is_the_same_object_again() -> None:
    partition = Broker().leader(records=4)
    first, again = fetch(partition, 4), fetch(partition, 4)
    assert first.records is None
    assert fetch(partition, 4) is again


def test_read_committed_has_an_empty_list_where_nothing_was_aborted() -> None:
    partition = Broker().leader()
    params = consumer_params(isolation=Isolation.LAST_STABLE)
    answer = partition.fetch(params, FetchInfo(0), max_bytes=9, min_one=True, note=False)
    assert answer.aborted_transactions == ()
    assert answer.last_stable_offset == 0


def test_read_committed_gets_the_aborted_transactions_of_its_records() -> None:
    log = open_log()
    ended = EndTransactionMarker(ControlRecordType.ABORT, coordinator_epoch=0)
    sent = [Record(value=b"x"), Record(value=b"y")]
    for each in (
        encode_batch(sent, producer_id=7, producer_epoch=0, transactional=True),
        encode_control_batch(ended, timestamp=0, base_offset=2, producer_id=7, producer_epoch=0),
        encode_batch(sent, base_offset=3),
        encode_batch(sent, base_offset=5, producer_id=7, producer_epoch=0, transactional=True),
    ):
        log.append_as_follower(memoryview(bytearray(each)))
    partition = Broker().leader(isr=(LOCAL,), log=log)

    def read(offset: int, isolation: Isolation) -> FetchPartitionData:
        params = consumer_params(isolation=isolation)
        info = FetchInfo(offset)
        return partition.fetch(params, info, max_bytes=1 << 20, min_one=True, note=False)

    answer = read(1, Isolation.LAST_STABLE)
    assert (answer.high_watermark, answer.last_stable_offset) == (7, 5)
    assert answer.aborted_transactions == (AbortedTransactionData(producer_id=7, first_offset=0),)
    assert read(3, Isolation.LAST_STABLE).aborted_transactions == ()
    assert read(5, Isolation.LAST_STABLE).aborted_transactions == ()
    assert read(1, Isolation.HIGH_WATERMARK).aborted_transactions is None


# Roles.


@pytest.mark.conformance("PT-5")
def test_a_leader_epoch_is_in_the_epoch_cache_before_its_first_append() -> None:
    log = open_log()
    log.append_as_follower(batch(4, leader_epoch=5))
    partition = Broker().leader(leader_epoch=8, log=log)
    assert log.end_offset_for_epoch(8) == OffsetAndEpoch(offset=4, leader_epoch=8)
    assert lead(partition).epoch_start == 4


@pytest.mark.conformance("PT-24")
def test_a_new_epoch_of_the_same_leader_is_news_to_a_follower() -> None:
    partition = Broker().partition()
    assert partition.make_follower(registration(leader=REMOTE, leader_epoch=1))
    assert partition.make_follower(registration(leader=REMOTE, leader_epoch=4, partition_epoch=4))
    assert not partition.make_follower(
        registration(leader=REMOTE, leader_epoch=4, partition_epoch=4)
    )


@pytest.mark.conformance("PT-59")
def test_metadata_older_than_ours_makes_no_leader() -> None:
    partition = Broker().leader()
    partition.make_leader(registration(partition_epoch=5, isr=(LOCAL,)))
    assert not partition.make_leader(registration(partition_epoch=4))
    assert partition.partition_epoch == 5
    assert partition.isr == {LOCAL}


@pytest.mark.conformance("PT-59b")
def test_metadata_older_than_ours_makes_no_follower() -> None:
    partition = Broker().leader()
    partition.make_leader(registration(partition_epoch=5))
    assert not partition.make_follower(registration(leader=REMOTE, partition_epoch=4))
    assert partition.is_leader


@pytest.mark.conformance("PT-60")
@pytest.mark.conformance("PT-56")
def test_a_follower_knows_nothing_of_the_other_replicas() -> None:
    partition = Broker().leader(replicas=(LOCAL, REMOTE, OTHER))
    assert set(lead(partition).followers) == {REMOTE, OTHER}
    partition.make_follower(registration(leader=REMOTE, leader_epoch=2, partition_epoch=2))
    assert partition.leadership is None
    assert partition.isr == frozenset()
    assert partition.replicas == (LOCAL, REMOTE)


@pytest.mark.conformance("PT-58")
@pytest.mark.conformance("PT-58b")
def test_within_a_leader_epoch_the_state_of_followers_stays() -> None:
    partition = Broker().leader(records=4)
    fetch(partition, 2)
    partition.make_leader(registration(partition_epoch=2))
    assert lead(partition).followers[REMOTE].log_end_offset == 2
    assert lead(partition).epoch_start == 0
    assert [entry.epoch for entry in partition.log.leader_epoch_cache.entries] == [1]


def test_a_missed_leader_epoch_may_have_truncated_the_followers() -> None:
    """Metadata comes in steps of any size: another broker may have led between two of our own
    leader epochs, and its followers may hold less now than when they followed us.
    """
    broker = Broker()
    partition = broker.leader((LOCAL, REMOTE, OTHER), records=12)
    fetch(partition, 11)
    fetch(partition, 12, replica=OTHER)
    assert partition.log.high_watermark == 11
    # Epoch 2 was REMOTE's, whose log ended at 11: OTHER has been cut to that since.
    everybody = (LOCAL, REMOTE, OTHER)
    partition.make_leader(
        registration(leader_epoch=3, partition_epoch=3, isr=everybody, replicas=everybody)
    )
    fetch(partition, 12)
    assert partition.log.high_watermark == 11
    fetch(partition, 12, replica=OTHER)
    assert partition.log.high_watermark == 12


def test_what_a_leader_knows_already_does_not_drop_its_next_proposal() -> None:
    """The answer to a change may come before the metadata that says the same."""
    broker = Broker()
    partition = broker.leader(isr=(LOCAL,), replicas=(LOCAL, REMOTE, OTHER))
    fetch(partition, 0)
    broker.answer(partition)
    fetch(partition, 0, replica=OTHER)
    assert lead(partition).maximal_isr == {LOCAL, REMOTE, OTHER}
    partition.make_leader(registration(partition_epoch=2, replicas=(LOCAL, REMOTE, OTHER)))
    assert lead(partition).maximal_isr == {LOCAL, REMOTE, OTHER}


# Following.


def take_over(partition: Partition, records: memoryview, **answer: int) -> None:
    partition.append_as_follower(
        records,
        fetch_offset=answer.get("fetch_offset", partition.log.log_end_offset),
        leader_epoch=answer.get("leader_epoch", partition.leader_epoch),
        high_watermark=answer.get("high_watermark", 0),
        log_start_offset=answer.get("log_start_offset", 0),
        wall_ms=0,
    )


def follower() -> Partition:
    partition = Broker().partition()
    partition.make_follower(registration(leader=REMOTE))
    return partition


def test_a_follower_takes_over_no_batch_of_a_later_epoch_than_it_follows_in() -> None:
    partition = follower()
    sent = [batch(2, leader_epoch=1), batch(2, base_offset=2, leader_epoch=2)]
    take_over(partition, memoryview(bytearray(b"".join(sent))))
    assert partition.log.log_end_offset == 2
    take_over(partition, sent[1])
    assert partition.log.log_end_offset == 2
    take_over(partition, sent[1], leader_epoch=2)
    assert partition.log.log_end_offset == 4


def test_a_follower_takes_over_records_high_watermark_and_log_start() -> None:
    partition = follower()
    take_over(partition, batch(5, leader_epoch=1), high_watermark=4)
    assert (partition.log.log_end_offset, partition.log.high_watermark) == (5, 4)
    take_over(partition, memoryview(b""), high_watermark=99, log_start_offset=2)
    log = partition.log
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (2, 5, 5)
    take_over(partition, memoryview(b""), high_watermark=3)
    assert log.high_watermark == 3


def test_an_answer_to_another_position_is_not_appended() -> None:
    partition = follower()
    take_over(partition, batch(5, leader_epoch=1))
    with pytest.raises(UnexpectedAppendOffsetError):
        take_over(partition, batch(1, base_offset=7, leader_epoch=1), fetch_offset=7)
    assert partition.log.log_end_offset == 5


def test_a_log_cut_inside_of_its_batch_takes_the_leaders_batch() -> None:
    partition = follower()
    log = partition.log
    take_over(partition, batch(4, leader_epoch=0))
    take_over(partition, batch(2, base_offset=4, leader_epoch=0))
    log.truncate_to(5)
    assert (log.log_end_offset, log.segments.active.end_offset) == (5, 4)
    with pytest.raises(UnexpectedAppendOffsetError):
        take_over(partition, batch(3, base_offset=3, leader_epoch=1))
    sent = batch(2, base_offset=4, leader_epoch=1)
    take_over(partition, sent, high_watermark=6, log_start_offset=5)
    assert (log.log_start_offset, log.log_end_offset) == (5, 6)


@pytest.mark.conformance("PT-21")
def test_an_empty_log_may_start_inside_the_leaders_first_batch() -> None:
    partition = follower()
    log = partition.log
    log.truncate_fully_and_start_at(5)
    with pytest.raises(UnexpectedAppendOffsetError):
        take_over(partition, batch(1, base_offset=3, leader_epoch=0))
    assert log.log_end_offset == 5
    take_over(partition, batch(3, base_offset=4, leader_epoch=0))
    assert (log.log_start_offset, log.log_end_offset) == (4, 7)
    take_over(partition, batch(1, base_offset=7, leader_epoch=0))
    with pytest.raises(UnexpectedAppendOffsetError):
        take_over(partition, batch(2, base_offset=3, leader_epoch=0))
    assert log.log_end_offset == 8
    take_over(partition, batch(1, base_offset=8, leader_epoch=0))
    assert log.log_end_offset == 9


# ListOffsets.


def offset_of(
    partition: Partition,
    timestamp: int,
    *,
    isolation: Isolation | None = Isolation.HIGH_WATERMARK,
    replica_id: int = -1,
) -> tuple[int, int, int]:
    return offset_for_timestamp(
        partition,
        timestamp=timestamp,
        isolation=isolation,
        current_leader_epoch=-1,
        replica_id=replica_id,
    )


@pytest.mark.conformance("PT-19")
@pytest.mark.conformance("UL-53")
def test_the_latest_offset_carries_the_leader_epoch() -> None:
    partition = Broker().leader(isr=(LOCAL,), leader_epoch=EPOCH, records=2)
    assert offset_of(partition, wire.LATEST) == (-1, 2, EPOCH)
    assert offset_of(partition, wire.EARLIEST) == (-1, 0, EPOCH)
    assert offset_of(partition, wire.LATEST_TIERED) == NOT_FOUND
    assert offset_of(partition, wire.EARLIEST_PENDING_UPLOAD) == NOT_FOUND
    assert code(lambda: offset_of(partition, -7)) is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.conformance("PT-20")
def test_latest_offsets_never_go_back_over_a_change_of_leader() -> None:
    broker = Broker()
    partition = broker.leader(leader_epoch=1)
    for timestamp, values in ((10, 2), (20, 3)):
        partition.append_as_leader(batch(values, timestamp=timestamp), required_acks=1, wall_ms=0)
    fetch(partition, 0)
    fetch(partition, 2)
    assert offset_of(partition, wire.LATEST, replica_id=REMOTE)[1] == 5
    assert offset_of(partition, wire.LATEST)[1] == 2
    assert offset_of(partition, 100) == NOT_FOUND

    partition.make_follower(registration(leader=REMOTE, leader_epoch=2, partition_epoch=2))
    partition.make_leader(registration(leader_epoch=3, partition_epoch=3))
    not_available = ErrorCode.OFFSET_NOT_AVAILABLE
    assert code(lambda: offset_of(partition, wire.LATEST)) is not_available
    assert offset_of(partition, wire.LATEST, replica_id=REMOTE)[1] == 5
    assert offset_of(partition, wire.EARLIEST)[1] == 0
    assert offset_of(partition, wire.EARLIEST_LOCAL)[1] == 0
    assert offset_of(partition, 11)[:2] == (11, 1)
    assert code(lambda: offset_of(partition, 100)) is not_available
    assert code(lambda: offset_of(partition, wire.MAX_TIMESTAMP)) is not_available

    fetch(partition, 5)
    assert offset_of(partition, wire.LATEST)[1] == 5
    assert offset_of(partition, 100) == NOT_FOUND
    assert offset_of(partition, wire.MAX_TIMESTAMP)[:2] == (22, 4)


def test_only_a_debugger_looks_into_a_follower() -> None:
    partition = follower()
    take_over(partition, batch(3, leader_epoch=1))
    assert code(lambda: offset_of(partition, wire.LATEST)) is (ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert offset_of(partition, wire.LATEST, replica_id=-2)[1] == 3


def test_appending_needs_the_lead() -> None:
    partition = follower()
    assert code(lambda: append(partition)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
