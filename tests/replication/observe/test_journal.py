"""A journal that was once written stays readable; what is unknown or torn is counted."""

import errno
import random

import attrs
import msgpack
import pytest

from replication.events import BrokerFenced, Event, LeaderElected
from replication.net.clock import TrioClock
from replication.observe.journal import (
    FILE_HEADER,
    FULL_FILES,
    JournalEntry,
    JournalWriter,
    encode_entry,
    frame,
    journal_files,
    read_journal,
)
from storage.testing import Fault, FaultyFileSystem
from storage.types import TopicPartition
from tests.replication.observe import golden

FENCED = BrokerFenced(broker=2, broker_epoch=17, cause="session expired", since_heartbeat_ms=9012)
ELECTED = LeaderElected(
    partition=TopicPartition("orders", 3), leader=2, leader_epoch=5, isr=(2, 3), cause="clean"
)


@pytest.mark.parametrize("version", golden.versions())
def test_every_version_that_was_ever_written_is_read(version: int) -> None:
    journal = read_journal(golden.packed(version).read_bytes())
    assert (journal.skipped, journal.torn_bytes) == ({}, 0)
    descriptions = golden.descriptions(version)
    assert len(journal.entries) == len(descriptions)
    for entry, described in zip(journal.entries, descriptions, strict=True):
        assert (entry.event.name, entry.at_ms, entry.broker) == (
            described["name"],
            described["at_ms"],
            described["broker"],
        )
        # A field added since has its default.
        assert described["fields"].items() <= golden.plain(entry.event).items()


def test_every_event_has_a_golden_record() -> None:
    assert not golden.missing(), "run: python -m tests.replication.observe.golden"


@pytest.mark.parametrize("version", golden.versions())
def test_present_versions_are_written_as_the_golden_record(version: int) -> None:
    packed = golden.packed(version).read_bytes()
    present = [each for each in read_journal(packed).entries if each.event.version == version]
    assert present
    for entry in present:
        assert encode_entry(entry.event, at_ms=entry.at_ms, broker=entry.broker) in packed


def record(name: str = "broker_fenced", version: int = 1, **fields: object) -> bytes:
    packed: bytes = msgpack.packb([name, version, 1, 2, fields])
    return packed


@pytest.mark.parametrize(
    ("unknown", "counted"),
    [
        pytest.param(record("invented"), "invented v1", id="a name of a newer program"),
        pytest.param(record(version=9, broker=1), "broker_fenced v9", id="a newer version"),
        pytest.param(
            record(broker=1, broker_epoch=1, cause="", mood=3), "broker_fenced v1", id="a new field"
        ),
        pytest.param(record(broker=1), "broker_fenced v1", id="a missing field"),
    ],
)
def test_unknown_records_are_skipped_and_counted(unknown: bytes, counted: str) -> None:
    known = encode_entry(FENCED, at_ms=5, broker=1)
    journal = read_journal(unknown + known + unknown)
    assert journal.entries == (JournalEntry(5, 1, FENCED),)
    assert journal.skipped == {counted: 2}


def test_every_torn_tail_is_cut_off_before_more_is_written() -> None:
    first = encode_entry(FENCED, at_ms=1, broker=1)
    second = encode_entry(ELECTED, at_ms=2, broker=1)
    for cut in range(len(frame(second))):
        file_system = FaultyFileSystem(random.Random(1))
        torn = FILE_HEADER + frame(first) + frame(second)[:cut]
        file_system.open("/journal", create=True).write(0, torn)
        writer = JournalWriter.open(file_system, "/journal")
        writer.write(ELECTED, at_ms=3, broker=1)
        journal = read_journal(held(file_system))
        assert [entry.at_ms for entry in journal.entries] == [1, 3]
        assert journal.torn_bytes == 0


def test_a_journal_without_frames_is_kept_and_read_on() -> None:
    file_system = FaultyFileSystem(random.Random(1))
    unframed = encode_entry(FENCED, at_ms=1, broker=1)
    file_system.open("/journal", create=True).write(0, unframed + unframed[:9])
    JournalWriter.open(file_system, "/journal").write(ELECTED, at_ms=2, broker=1)
    assert journal_files(file_system, "/journal") == ["/journal.00000001", "/journal"]
    kept = file_system.open_for_reading("/journal.00000001")
    assert kept.read(0, kept.size()) == unframed
    assert [entry.at_ms for entry in read_journal(held(file_system)).entries] == [2]


def test_a_full_file_is_put_aside_under_the_next_number() -> None:
    file_system = FaultyFileSystem(random.Random(1))
    for first in (0, 10):  # as by one incarnation after the other
        writer = JournalWriter.open(file_system, "/journal", file_bytes=400)
        for at_ms in range(first, first + 10):
            writer.write(FENCED, at_ms=at_ms, broker=1)
        writer.close()
    found = []
    for path in journal_files(file_system, "/journal"):
        file = file_system.open_for_reading(path)
        assert file.size() <= 400
        journal = read_journal(file.read(0, file.size()))
        assert journal.torn_bytes == 0
        found += [entry.at_ms for entry in journal.entries]
    assert found == list(range(20))
    assert len(journal_files(file_system, "/journal")) > 3


def test_of_the_full_files_the_last_are_kept() -> None:
    file_system = FaultyFileSystem(random.Random(1))
    writer = JournalWriter.open(file_system, "/journal", file_bytes=100)
    for at_ms in range(FULL_FILES + 5):  # each fills a file
        writer.write(FENCED, at_ms=at_ms, broker=1)
        there = journal_files(file_system, "/journal")
        assert len(there) == min(at_ms, FULL_FILES) + 1
        assert there[0] == (
            f"/journal.{max(1, at_ms + 1 - FULL_FILES):08d}" if at_ms else "/journal"
        )


def test_a_flipped_bit_ends_the_file_there() -> None:
    file_system = FaultyFileSystem(random.Random(1))
    writer = JournalWriter.open(file_system, "/journal")
    for at_ms in range(3):
        writer.write(FENCED, at_ms=at_ms, broker=1)
    data = bytearray(held(file_system))
    data[len(data) // 2] ^= 1
    journal = read_journal(data)
    assert [entry.at_ms for entry in journal.entries] == [0]
    assert journal.torn_bytes == len(frame(encode_entry(FENCED, at_ms=1, broker=1))) * 2


def held(file_system: FaultyFileSystem) -> bytes:
    file = file_system.open_for_reading("/journal")
    return file.read(0, file.size())


@pytest.mark.parametrize("garbage", [b"\xc1garbage", b"\xdd\x7f\xff\xff\xff", b"\xa3abc"])
def test_garbage_ends_a_journal_and_is_counted_in_bytes(garbage: bytes) -> None:
    good = encode_entry(FENCED, at_ms=1, broker=1)
    journal = read_journal(good + garbage)
    assert len(journal.entries) == 1
    assert journal.torn_bytes == len(garbage)
    assert read_journal(b"").entries == ()


def test_a_disk_that_refuses_costs_the_journal_and_not_the_broker() -> None:
    file_system = FaultyFileSystem(random.Random(1))
    refusals: list[Exception] = []
    writer = JournalWriter.open(file_system, "/journal", on_refusal=refusals.append)
    writer.write(FENCED, at_ms=1, broker=1)
    file_system.inject(Fault(operation="write", error=errno.ENOSPC))
    writer.write(FENCED, at_ms=2, broker=1)
    writer.write(FENCED, at_ms=3, broker=1)
    assert writer.lost == 2
    assert len(refusals) == 1, "reported once"
    assert [entry.at_ms for entry in read_journal(held(file_system)).entries] == [1]


async def test_a_sink_stamps_the_brokers_wall_clock() -> None:
    file_system = FaultyFileSystem(random.Random(1))
    writer = JournalWriter.open(file_system, "/journal")
    clock = TrioClock()
    before = clock.wall_ms()
    sink = writer.sink(broker=3, clock=clock)
    sink(FENCED)
    (entry,) = read_journal(held(file_system)).entries
    assert before <= entry.at_ms <= clock.wall_ms()
    assert (entry.broker, entry.event) == (3, FENCED)
    writer.close()


def test_a_field_may_be_added_with_a_default() -> None:
    @attrs.frozen(kw_only=True)
    class Fenced(Event):
        name = "broker_fenced"
        version = 2
        broker: int

    newer = encode_entry(Fenced(broker=1), at_ms=1, broker=1)
    assert read_journal(newer).skipped == {"broker_fenced v2": 1}
    older = record(broker=2, broker_epoch=17, cause="x")
    (entry,) = read_journal(older).entries
    assert entry.event == BrokerFenced(broker=2, broker_epoch=17, cause="x")
