"""The reads of one log: where they find a divergence."""

import operator
from itertools import product

import attrs
import pytest

from replication.errors import KafkaError
from replication.leader.rules.fetch_data import FetchInfo, FetchPartitionData, Isolation
from replication.leader.rules.log_reader import LogReader, diverging_end
from storage.log.log import Log
from storage.types import LeaderEpoch, Offset, OffsetAndEpoch
from tests.replication.leader.leader_side import batch, open_log

EPOCHS = (0, 0, 2, 2, 5)


def _log(*, start: Offset) -> Log:
    """[e0: 0-1][e2: 2-3][e5: 4], from `start` on."""
    log = open_log()
    for offset, epoch in enumerate(EPOCHS):
        log.append_as_follower(batch(base_offset=offset, leader_epoch=epoch))
    log.update_high_watermark(len(EPOCHS))
    log.increment_log_start_offset(start)
    return log


@pytest.mark.parametrize("start", [0, 1, 3])
def test_a_read_finds_a_divergence_exactly_where_the_rule_finds_one(start: Offset) -> None:
    log = _log(start=start)
    for fetch_offset, epoch in product(range(8), range(-1, 8)):
        naive = _outcome_of_the_rule(log, fetch_offset, epoch)
        assert _outcome_of_available_bytes(log, fetch_offset, epoch) == (naive is None)
        if start <= fetch_offset <= len(EPOCHS) or naive is not None:
            assert _outcome_of_a_read(log, fetch_offset, epoch) == naive


def _outcome_of_the_rule(
    log: Log, fetch_offset: Offset, epoch: LeaderEpoch
) -> OffsetAndEpoch | str | None:
    try:
        return diverging_end(log, fetch_offset=fetch_offset, last_fetched_epoch=epoch)
    except KafkaError as error:
        return str(error)


def _outcome_of_a_read(
    log: Log, fetch_offset: Offset, epoch: LeaderEpoch
) -> OffsetAndEpoch | str | None:
    info = FetchInfo(fetch_offset, last_fetched_epoch=epoch)
    try:
        answer = LogReader(log).read(info, Isolation.LOG_END, max_bytes=1000, min_one=True)
    except KafkaError as error:
        return str(error)
    return answer.diverging_epoch


def _outcome_of_available_bytes(log: Log, fetch_offset: Offset, epoch: LeaderEpoch) -> bool:
    """Return whether the fetch may go on waiting for records, or has some."""
    info = FetchInfo(fetch_offset, last_fetched_epoch=epoch)
    # Nothing is available beyond the end, whatever the epochs.
    beyond = epoch == -1 and fetch_offset > len(EPOCHS)
    return beyond or LogReader(log).available_bytes(info, Isolation.LOG_END, enough=1) is not None


def test_equal_fetches_share_one_read_until_those_who_wait_are_answered() -> None:
    log = _log(start=0)
    reader = LogReader(log)
    fetches = [(FetchInfo(offset), size) for offset in range(5) for size in (1, 1000)]

    def answers() -> list[FetchPartitionData]:
        return [
            reader.read(info, Isolation.LOG_END, max_bytes=size, min_one=True)
            for info, size in fetches
        ]

    shared: list[list[FetchPartitionData]] = []
    reader.share(lambda: shared.extend([answers(), answers()]))
    first, second = shared
    assert all(map(operator.is_, first, second))
    for alone, together in zip(answers(), first, strict=True):
        assert alone is not together
        assert alone.records is not None
        assert together.records is not None
        assert alone.records.read() == together.records.read()
        assert attrs.evolve(alone, records=None) == attrs.evolve(together, records=None)
