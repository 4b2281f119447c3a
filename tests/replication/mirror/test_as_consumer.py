"""Out of range for who fetches as a consumer: LATEST is no end, and cuts nothing."""

from trio.testing import MockClock

from replication.errors import ErrorCode, KafkaError
from replication.wire.fetch import PartitionData
from storage.types import TopicPartition
from tests.replication.follower.following import LEGACY, T0, Following, committed, following
from tests.replication.follower.model_log import drawn

CONSUMER = -1


def refusing_once(it: Following) -> None:
    """The next fetch of each partition is out of range."""
    refused: set[TopicPartition] = set()

    def refuse(partition: TopicPartition, data: PartitionData) -> None:
        if partition not in refused:
            refused.add(partition)
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE

    it.leader.change_data = refuse


async def test_records_above_the_leaders_high_watermark_are_not_truncated(
    autojump_clock: MockClock,
) -> None:
    it = following(replica_id=CONSUMER)
    leader = drawn((0, 0, 5))
    leader.high_watermark = 2
    it.follow(leader=leader, local=committed((0, 0, 5)))
    refusing_once(it)
    await it.work(4)
    assert it.leader.list_offsets == ["earliest"]
    assert it.local().log_end_offset == 6
    assert it.state().fetch_offset == 6


async def test_without_truncation_on_fetch_epochs_say_where_to_truncate(
    autojump_clock: MockClock,
) -> None:
    it = following(replica_id=CONSUMER, fetch_version=LEGACY)
    it.follow(leader=committed((0, 0, 1), (2, 2, 2)), local=committed((0, 0, 1)))
    await it.work_until_alike()
    it.leader.led[T0].log = committed((0, 0, 0), (3, 1, 1))
    await it.work_until_alike()
    assert it.leader.list_offsets == ["earliest"]


async def test_a_leader_without_epochs_is_retried_and_nothing_is_truncated(
    autojump_clock: MockClock,
) -> None:
    it = following(replica_id=CONSUMER)
    it.follow(leader=committed((0, 0, 0)), local=committed((0, 0, 1), (2, 2, 2)))
    await it.work(6)
    assert len(it.leader.list_offsets) > 1
    assert it.local().log_end_offset == 3


async def test_an_offset_that_is_not_available_yet_is_waited_for(autojump_clock: MockClock) -> None:
    it = following(replica_id=CONSUMER)
    leader = committed((0, 0, 5))
    leader.move_start_to(4)
    it.follow(leader=leader, local=committed((0, 0, 1)))
    asked: list[str] = []

    def not_yet() -> None:
        asked.append("earliest")
        if len(asked) < 3:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, "a new leader")

    it.leader.on_list_offsets = not_yet
    await it.work(2)
    assert it.local().log_end_offset == 2
    await it.work_until_alike()
    assert len(asked) == 3
