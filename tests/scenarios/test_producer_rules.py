"""The rules about producers find what is wrong in a log, and nothing in a sound one."""

from collections.abc import Sequence

import pytest

from scenarios.checkers.observed import Batch, Written
from scenarios.checkers.producers import FOLLOW, KNOWN, ProducersOfLog
from storage.batch.record_batch import MAX_SEQUENCE
from storage.producers.snapshot import BatchMetadata, ProducerState
from storage.producers.state import ProducerStateManager
from storage.testing import FaultyFileSystem
from storage.types import Offset
from tests.scenarios.values import rules
from tests.storage.logs import new_disk


def data(sequence: int, last: int | None = None, *, epoch: int = 0, opens: bool = False) -> Written:
    last = sequence if last is None else last
    return Written(7, epoch, sequence, last, is_transactional=opens, coordinator_epoch=None)


def marker(*, epoch: int = 0, coordinator_epoch: int = 0) -> Written:
    return Written(7, epoch, -1, -1, is_transactional=True, coordinator_epoch=coordinator_epoch)


def log_of(*written: Written | None) -> list[Batch]:
    """Return batches of one record each, at the offsets 0, 1, ..."""
    return [Batch(offset, offset, 0, offset, each) for offset, each in enumerate(written)]


def followed(*written: Written | None, log_start: Offset = 0) -> list[str]:
    return rules(ProducersOfLog().follow("t-0", log_of(*written), log_start=log_start))


@pytest.mark.parametrize(
    "written",
    [
        [data(0), data(1, 3), data(4)],
        [data(17), data(18)],  # what came before may have been deleted
        [data(0), None, data(0, epoch=1), data(1, epoch=1)],
        [data(MAX_SEQUENCE), data(0)],
        [data(0), data(0)._replace(producer_id=8), data(1)],
        [data(0, opens=True), marker(), data(1, opens=True)],
        [data(0, opens=True), marker(epoch=1), data(0, epoch=1, opens=True)],
        [marker(coordinator_epoch=2), marker(coordinator_epoch=3)],
    ],
)
def test_batches_that_follow_each_other(written: Sequence[Written | None]) -> None:
    assert not followed(*written)


@pytest.mark.parametrize(
    "written",
    [
        [data(0), data(2)],
        [data(0), data(0)],
        [data(0, epoch=1), data(1, epoch=0)],
        [data(0), data(1, epoch=1)],
        [data(0, opens=True), marker(epoch=1), data(1, epoch=1, opens=True)],
        [marker(coordinator_epoch=3), marker(coordinator_epoch=2)],
        [marker(epoch=2), marker(epoch=1)],
    ],
)
def test_batches_that_do_not_follow_each_other(written: Sequence[Written | None]) -> None:
    assert followed(*written) == [FOLLOW]
    assert not followed(*written, log_start=3), "what was deleted may have been forgotten"


# What a log knows.


@pytest.fixture
def disk() -> FaultyFileSystem:
    return new_disk()


def known_as(
    disk: FaultyFileSystem,
    *states: ProducerState,
    open_from: Offset | None = None,
    ended: tuple[Offset, Offset] | None = None,
) -> ProducerStateManager:
    manager = ProducerStateManager(disk, "/d")
    manager.producers |= {each.producer_id: each for each in states}
    if open_from is not None:
        manager._ongoing[open_from] = 7
    if ended is not None:
        manager._unreplicated[ended[0]] = ended[1]
    return manager


def state(last_sequence: int, *, epoch: int = 0, open_from: Offset | None = None) -> ProducerState:
    known = ProducerState(7, producer_epoch=epoch, transaction_first_offset=open_from)
    known.batches.append(BatchMetadata(last_sequence, 0, 0, 0))
    return known


def compared(
    written: Sequence[Written | None],
    manager: ProducerStateManager,
    *,
    high_watermark: Offset = 0,
    log_start: Offset = 0,
    reloaded_at: Offset | None = None,
    now_ms: int = 0,
) -> list[str]:
    twin = ProducersOfLog()
    if reloaded_at is not None:
        twin.forget(reloaded_at)
    assert not rules(twin.follow("t-0", log_of(*written), log_start=0))
    return rules(
        twin.known(
            "t-0", manager, log_start=log_start, high_watermark=high_watermark, now_ms=now_ms
        )
    )


def test_the_last_batch_of_a_producer_is_known(disk: FaultyFileSystem) -> None:
    written = [data(0), data(1, 3)]
    assert not compared(written, known_as(disk, state(3)))
    for other in (state(2), state(3, epoch=1), state(3, open_from=0)):
        assert compared(written, known_as(disk, other)) == [KNOWN]
    assert compared(written, known_as(disk)) == [KNOWN]
    assert not compared(written, known_as(disk), log_start=2)


def test_an_open_transaction_is_known(disk: FaultyFileSystem) -> None:
    written = [data(0, opens=True), data(1, opens=True)]
    opened = state(1, open_from=0)
    assert not compared(written, known_as(disk, opened, open_from=0))
    assert compared(written, known_as(disk, opened)) == [KNOWN]
    assert not compared(written, known_as(disk, state(1, open_from=1), open_from=1), log_start=1)


def test_a_marker_alone_says_no_sequence(disk: FaultyFileSystem) -> None:
    written, read_again = [data(0, opens=True), marker()], state(0)
    read_again.batches.clear()
    assert not compared(written, known_as(disk, read_again), high_watermark=2, log_start=1)
    assert compared(written, known_as(disk, read_again), high_watermark=2) == [KNOWN]


def test_a_producer_may_be_forgotten_when_it_has_expired(disk: FaultyFileSystem) -> None:
    written, manager = [data(0)._replace(timestamp=1000)], known_as(disk)
    expires_ms = 1000 + manager.expiration_ms
    assert not compared(written, manager, now_ms=expires_ms)
    assert compared(written, manager, now_ms=expires_ms - 1) == [KNOWN]
    opened = [written[0]._replace(is_transactional=True)]
    assert compared(opened, manager, now_ms=expires_ms) == [KNOWN, KNOWN]


def test_a_transaction_is_unstable_until_its_end_is_committed(disk: FaultyFileSystem) -> None:
    written = [data(0, opens=True), marker()]
    ended = state(0)
    waits = known_as(disk, ended, ended=(0, 1))
    assert not compared(written, waits, high_watermark=1)
    assert compared(written, waits, high_watermark=2) == [KNOWN]
    assert compared(written, known_as(disk, ended), high_watermark=1) == [KNOWN]
    assert not compared(written, known_as(disk, ended), high_watermark=2)
    assert not compared(written, known_as(disk, ended), high_watermark=1, reloaded_at=2)


def test_what_was_stable_need_not_be_unstable_again(disk: FaultyFileSystem) -> None:
    twin, ended = ProducersOfLog(), known_as(disk, state(0))
    assert not rules(twin.follow("t-0", log_of(data(0, opens=True), marker()), log_start=0))
    for high_watermark in (2, 1):  # a follower takes that of a new leader
        assert not rules(
            twin.known("t-0", ended, log_start=0, high_watermark=high_watermark, now_ms=0)
        )


def test_a_transaction_may_have_begun_in_batches_that_were_deleted(disk: FaultyFileSystem) -> None:
    open_early = known_as(disk, state(2, open_from=0), open_from=0)
    ended_early = known_as(disk, state(2), ended=(0, 2))

    def judged(
        manager: ProducerStateManager, *left: Written | None, committed: Offset
    ) -> list[str]:
        twin = ProducersOfLog()
        batches = log_of(None, None, *left)[2:]
        assert not rules(twin.follow("t-0", batches, log_start=2))
        return rules(
            twin.known("t-0", manager, log_start=2, high_watermark=committed, now_ms=0)
        )  # fmt: skip

    assert not judged(open_early, None, committed=3), "only a snapshot remembers its beginning"
    assert not judged(open_early, data(2, opens=True), committed=3)
    assert judged(open_early, marker(), committed=2) == [KNOWN]
    assert not judged(ended_early, marker(), committed=2)
    assert judged(ended_early, marker(), committed=3) == [KNOWN], "it is stable from then on"
    assert judged(known_as(disk, open_from=0), None, committed=3) == [KNOWN], "of nobody"
