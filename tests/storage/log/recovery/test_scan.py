"""A segment that is read again: it is indexed and remembered as when it was appended.

The first bytes of a batch, its length and its offset, are covered by no checksum, and may mislead.
"""

import random
import struct

import attrs
import pytest
from hypothesis import assume, given, settings, strategies as st

from storage.config import LogConfig
from storage.log.log import Log
from storage.producers.snapshot import ProducerState
from tests.storage.logs import (
    WALL_MS,
    batch,
    contents,
    lead,
    new_disk,
    offsets,
    open_log,
    small_config,
)

# One segment, whose indexes may or may not be large enough for it.
CONFIGS = [
    small_config(segment_bytes=1 << 20, segment_index_bytes=size, index_interval_bytes=interval)
    for size in (1 << 12, 240)
    for interval in (0, 100, 4096)
]


def append(log: Log, batches: int, seed: int) -> None:
    """By some producers, who now and then begin an epoch, a transaction, or go back in time."""
    chance = random.Random(seed)
    sequences: dict[int, tuple[int, int]] = {}
    leader_epoch = 0
    for _ in range(batches):
        producer = chance.choice([-1, 5, 6, 7])
        epoch, sequence = sequences.get(producer, (0, 0))
        if chance.random() < 0.1:
            epoch, sequence = epoch + 1, 0
        count = chance.randint(1, 4)
        leader_epoch += chance.random() < 0.1
        records = batch(
            count,
            at=log.log_end_offset + chance.randint(0, 2),
            epoch=leader_epoch,
            size=chance.choice([0, 10, 300]),
            timestamp=WALL_MS + chance.randint(-50, 50),
            producer_id=producer,
            producer_epoch=epoch if producer >= 0 else -1,
            base_sequence=sequence if producer >= 0 else -1,
            transactional=producer == 7 and chance.random() < 0.5,
        )
        log.append_as_follower(records)
        sequences[producer] = epoch, sequence + count


def indexed(log: Log) -> tuple[object, ...]:
    active = log.segments.active
    return (
        list(active.offset_index.entries()),
        list(active.time_index.entries()),
        active.max_timestamp,
    )


def producers(log: Log) -> dict[int, ProducerState]:
    return {each.producer_id: attrs.evolve(each) for each in log.producers.producers.values()}


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: str(config.segment_index_bytes))
@given(batches=st.integers(1, 60), seed=st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_a_scan_does_what_the_appends_did(config: LogConfig, batches: int, seed: int) -> None:
    system = new_disk()
    log = open_log(system, config)
    append(log, batches, seed)
    assume(len(log.segments) == 1)
    before = contents(log)
    # As a crash finds it: without the entry that closes a segment.
    log.segments.active.become_inactive(closing=True)
    expected = indexed(log), producers(log), log.leader_epoch_cache.entries
    unstable = log.producers.first_unstable_offset
    system.detach()
    again = open_log(system.reopen(), config)
    assert contents(again) == before
    assert (indexed(again), producers(again), again.leader_epoch_cache.entries) == expected
    assert again.producers.first_unstable_offset == unstable
    assert again.segments.active._bytes_since_index_entry == (
        log.segments.active._bytes_since_index_entry
    )


PATH = f"/d/t-0/{0:020d}.log"
LAST = 2**63 - 1


def opened(*, which: int, head: bytes, clean: bool) -> Log:
    """A log of forty batches of two records, one of which begins with other bytes."""
    system = new_disk()
    log = open_log(system, small_config(segment_bytes=1 << 20))
    begins = []
    for at in range(0, 80, 2):
        begins.append(log.size)
        log.append_as_follower(batch(2, at=at, epoch=3, producer_id=7, base_sequence=at))
    assert len(log.segments) == 1
    assert log.segments[0].offset_index.entry_count, "where a believed batch's offset is looked up"
    log.close()
    system.open(PATH, create=False).write(begins[which], head)
    return open_log(system, clean=clean, recovery_point=80 if clean else 0)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_a_first_batch_longer_than_its_file_is_none(clean: bool) -> None:
    log = opened(which=0, head=struct.pack(">qi", 0, 2**31 - 1), clean=clean)
    assert contents(log) == b""
    assert lead(log, epoch=3) == 0
    assert any("bytes, of which" in each.cause for each in log.recovery.repairs)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("first", [LAST, LAST - 1])
def test_a_batch_after_whose_offsets_there_is_none_is_cut(first: int, clean: bool) -> None:
    """Its last would not fit into a snapshot of producers, nor the next into a record."""
    log = opened(which=-1, head=struct.pack(">q", first), clean=clean)
    assert offsets(contents(log)) == list(range(78))
    assert lead(log, epoch=3) == 78
    assert any("no offset comes after" in each.cause for each in log.recovery.repairs)
