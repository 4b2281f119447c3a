"""Whatever two logs were, the fetcher makes them alike, and loses nothing that they shared."""

from typing import NamedTuple

import pytest
import trio
from hypothesis import given, settings, strategies as st
from trio.testing import MockClock

from replication.errors import ErrorCode, PeerUnavailableError
from replication.wire.fetch import FetchResponse, PartitionData
from storage.types import TopicPartition
from tests.replication.follower.following import LEGACY, T0, T1, Following, following
from tests.replication.follower.model_log import ModelLog, common_prefix
from tests.replication.leader.histories import histories

ROUNDS = 200


class Trouble(NamedTuple):
    """What goes wrong in one round, before the leader is itself again."""

    kind: str
    partition: TopicPartition


troubles = st.lists(
    st.builds(
        Trouble,
        st.sampled_from(
            ["lost", "corrupt", "refused", "session", "added again", "written", "nothing"]
        ),
        st.sampled_from([T0, T1]),
    ),
    max_size=12,
)


def cause(it: Following, trouble: Trouble) -> None:
    """Arrange for it to happen in the next round only."""
    leader, tp = it.leader, trouble.partition
    leader.on_fetch = lambda: None
    leader.change_data = lambda _tp, _data: None
    leader.change_response = lambda _response: None
    if trouble.kind == "lost":
        leader.on_fetch = _lose
    elif trouble.kind == "corrupt":
        leader.change_data = _corrupt
    elif trouble.kind == "refused":
        leader.change_data = _refuse
    elif trouble.kind == "session":
        leader.change_response = _refuse_session
    elif trouble.kind == "added again":
        leader.on_fetch = lambda: _add_again(it, tp)
    elif trouble.kind == "written":
        led = leader.led[tp]
        led.log.append_as_leader(led.epoch, 7)
        led.log.high_watermark = led.log.log_end_offset


def _lose() -> None:
    raise PeerUnavailableError("cut")


def _corrupt(_tp: TopicPartition, data: PartitionData) -> None:
    if isinstance(data.records, memoryview) and data.records:
        data.records[0] ^= 1


def _refuse(_tp: TopicPartition, data: PartitionData) -> None:
    data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER


def _refuse_session(response: FetchResponse) -> None:
    response.error_code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def _add_again(it: Following, tp: TopicPartition) -> None:
    it.fetcher.partitions.remove([tp])
    it.add(tp, it.leader.led[tp].epoch)


async def follow_until_alike(it: Following, logs: dict[TopicPartition, ModelLog]) -> None:
    for _ in range(ROUNDS):
        if all(it.alike(tp) for tp in logs):
            return
        await it.work()
    raise AssertionError(f"{it.replicas.logs} never became {it.leader.led}")


@pytest.mark.parametrize("fetch_version", [7, LEGACY, 12])
@given(first=histories(), second=histories(), troubles=troubles, sessions=st.booleans())
@settings(max_examples=60)
def test_logs_become_alike_whatever_goes_wrong_on_the_way(
    fetch_version: int,
    first: tuple[ModelLog, ModelLog],
    second: tuple[ModelLog, ModelLog],
    troubles: list[Trouble],
    *,
    sessions: bool,
) -> None:
    async def play() -> None:
        it = following(fetch_version=fetch_version, sessions=sessions)
        it.leader.latency = 0.1  # time passes, so that a backoff ends
        shared = {}
        for tp, (there, here) in ((T0, first), (T1, second)):
            shared[tp] = common_prefix(there.records, here.records)
            there.high_watermark = there.log_end_offset
            # A high watermark never passes what the logs share: that is what it means.
            here.high_watermark = min(len(shared[tp]), here.log_end_offset)
            epoch = there.latest_epoch
            assert epoch is not None
            it.follow(tp, leader=there, local=here, leader_epoch=epoch)
        for trouble in troubles:
            cause(it, trouble)
            await it.work()
            for tp, kept in shared.items():
                assert it.local(tp).records[: len(kept)] == kept
        cause(it, Trouble("nothing", T0))
        await follow_until_alike(it, it.replicas.logs)
        assert not it.bugs
        assert not it.failed

    trio.run(play, clock=MockClock(autojump_threshold=0))
