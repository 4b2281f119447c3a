"""Copies that are the same, and every way in which they part."""

import json
import tracemalloc
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from replication.verify import (
    Alone,
    CannotCompareError,
    Comparison,
    Difference,
    Different,
    Same,
    verify_directories,
)
from replication.verify.comparing import compare_bytes
from replication.verify.lock_step import LockStep
from storage.batch.batch_stream import BatchStream
from storage.batch.record_batch import walk
from storage.batch.records import Record, encode_batch
from storage.checkpoint import OffsetCheckpoint, write_clean_shutdown, write_partition_metadata
from storage.filesystem import OsFile, OsFileSystem
from storage.types import TopicPartition

DISK = OsFileSystem()
ORDERS = TopicPartition("orders", 0)


def batch(base: int, last: int, *, epoch: int = 0, value: bytes = b"value") -> bytes:
    records = [Record(timestamp=1000 + n, value=value) for n in range(base, last + 1)]
    return encode_batch(records, base_offset=base, leader_epoch=epoch)


def lay(
    directory: Path, segments: Mapping[int, Sequence[bytes]], partition: TopicPartition = ORDERS
) -> str:
    """Write a copy: its segments by base offset."""
    folder = directory / str(partition)
    folder.mkdir(parents=True)
    for base, batches in segments.items():
        (folder / f"{base:020d}.log").write_bytes(b"".join(batches))
    return str(directory)


def compare(*directories: str) -> Comparison:
    return verify_directories(DISK, list(directories))


def only_difference(comparison: Comparison) -> Different:
    (result,) = comparison.partitions
    assert isinstance(result, Different)
    assert not comparison.same
    json.dumps(comparison.to_dict())
    assert str(result.offset) in str(result)
    return result


BATCHES = [batch(0, 4), batch(5, 9), batch(10, 12, epoch=1), batch(13, 29, epoch=3)]


def test_segment_boundaries_are_each_copys_own_affair(tmp_path: Path) -> None:
    a = lay(tmp_path / "a", {0: BATCHES})
    b = lay(tmp_path / "b", {0: BATCHES[:1], 5: BATCHES[1:3], 13: BATCHES[3:]})
    c = lay(tmp_path / "c", {0: BATCHES[:3], 13: BATCHES[3:], 30: []})

    comparison = compare(a, b, c)

    (result,) = comparison.partitions
    assert isinstance(result, Same)
    assert comparison.same
    assert result.directories == (a, b, c)
    assert (result.compared.start_offset, result.compared.end_offset) == (0, 30)
    assert (result.compared.batches, result.compared.records) == (4, 30)
    assert result.compared.size == sum(map(len, BATCHES))
    assert result.compared.last_epoch == 3
    assert "same in 3 copies" in str(result)
    assert json.loads(json.dumps(comparison.to_dict()))["partitions"][0]["end_offset"] == 30


def test_copies_are_compared_from_the_highest_log_start(tmp_path: Path) -> None:
    a = lay(tmp_path / "a", {0: [batch(0, 4, value=b"other"), BATCHES[1]], 10: BATCHES[2:]})
    b = lay(tmp_path / "b", {5: BATCHES[1:]})
    (result,) = compare(a, b).partitions
    assert isinstance(result, Same)
    assert (result.compared.start_offset, result.compared.batches) == (5, 3)


def test_a_checkpointed_log_start_counts_and_its_batch_is_compared_whole(tmp_path: Path) -> None:
    a = lay(tmp_path / "a", {0: [batch(0, 4, value=b"other"), *BATCHES[1:]]})
    b = lay(tmp_path / "b", {0: BATCHES})
    checkpoint = OffsetCheckpoint(DISK, str(tmp_path / "b" / "log-start-offset-checkpoint"))
    checkpoint.write({ORDERS: 7})
    (result,) = compare(a, b).partitions
    assert isinstance(result, Same)
    assert (result.compared.start_offset, result.compared.batches) == (7, 3)

    checkpoint.write({ORDERS: 3})
    assert only_difference(compare(a, b)).offset == 3


def test_a_missing_tail(tmp_path: Path) -> None:
    a = lay(tmp_path / "a", {0: BATCHES})
    b = lay(tmp_path / "b", {0: BATCHES[:2]})
    result = only_difference(compare(a, b))
    assert (result.difference, result.offset) == (Difference.MISSING_TAIL, 10)
    assert [copy.leader_epoch for copy in result.copies] == [1, None]
    assert (result.compared.end_offset, result.compared.last_epoch) == (10, 0)


def test_a_copy_that_ends_before_the_others_begin(tmp_path: Path) -> None:
    a = lay(tmp_path / "a", {0: BATCHES[:2]})
    b = lay(tmp_path / "b", {20: []})
    result = only_difference(compare(a, b))
    assert (result.difference, result.offset) == (Difference.MISSING_TAIL, 10)


def test_a_gap(tmp_path: Path) -> None:
    a = lay(tmp_path / "a", {0: BATCHES})
    b = lay(tmp_path / "b", {0: [BATCHES[0], BATCHES[2], BATCHES[3]]})
    result = only_difference(compare(a, b))
    assert (result.difference, result.offset) == (Difference.GAP, 5)
    assert [copy.base_offset for copy in result.copies] == [5, 10]


def test_another_epoch_at_the_same_offset(tmp_path: Path) -> None:
    a = lay(tmp_path / "a", {0: BATCHES})
    b = lay(tmp_path / "b", {0: [*BATCHES[:2], batch(10, 12, epoch=2)]})
    result = only_difference(compare(a, b))
    assert (result.difference, result.offset) == (Difference.EPOCH, 10)
    assert [copy.leader_epoch for copy in result.copies] == [1, 2]
    assert "10-12 of epoch 2" in str(result)


def test_other_bytes_at_the_same_offset_and_epoch(tmp_path: Path) -> None:
    a = lay(tmp_path / "a", {0: BATCHES})
    b = lay(tmp_path / "b", {0: [BATCHES[0], batch(5, 9, value=b"valuf"), *BATCHES[2:]]})
    result = only_difference(compare(a, b))
    assert (result.difference, result.offset) == (Difference.BYTES, 5)


def test_the_same_records_in_other_batches_are_other_bytes(tmp_path: Path) -> None:
    a = lay(tmp_path / "a", {0: [batch(0, 4)]})
    b = lay(tmp_path / "b", {0: [batch(0, 2), batch(3, 4)]})
    assert only_difference(compare(a, b)).difference is Difference.BYTES


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        pytest.param(lambda data: data[:-1] + b"?", "CRC-32C", id="a flipped byte"),
        pytest.param(lambda data: data[:-1], "are left", id="a batch cut off"),
        pytest.param(lambda data: data[:30], "after the last batch", id="a header cut off"),
        pytest.param(lambda data: data[:16] + b"\1" + data[17:], "magic 1", id="another magic"),
        pytest.param(
            lambda data: data[:8] + b"\x7f\xff\xff\xff" + data[12:], "are left", id="two gigabytes"
        ),
        pytest.param(lambda data: bytes(8) + data[8:], "comes next", id="offsets go back"),
    ],
)
def test_damage_is_found_in_the_copy_that_has_it(
    tmp_path: Path, damage: Callable[[bytes], bytes], problem: str
) -> None:
    a = lay(tmp_path / "a", {0: BATCHES[:2]})
    b = lay(tmp_path / "b", {0: [BATCHES[0], damage(BATCHES[1])]})
    result = only_difference(compare(a, b))
    assert (result.difference, result.offset) == (Difference.CORRUPT, 5)
    sound, damaged = result.copies
    assert sound.damage is None
    assert problem in str(damaged.damage)
    assert (damaged.file, damaged.position) == ("0" * 20 + ".log", len(BATCHES[0]))


def test_damage_that_all_copies_share_is_damage(tmp_path: Path) -> None:
    broken = BATCHES[1][:-1] + b"?"
    a = lay(tmp_path / "a", {0: [BATCHES[0], broken]})
    b = lay(tmp_path / "b", {0: [BATCHES[0], broken]})
    result = only_difference(compare(a, b))
    assert result.difference is Difference.CORRUPT
    assert all(copy.damage for copy in result.copies)


def test_two_topics_of_one_name_are_different(tmp_path: Path) -> None:
    a = lay(tmp_path / "a", {0: BATCHES})
    b = lay(tmp_path / "b", {0: BATCHES})
    write_partition_metadata(DISK, str(tmp_path / "a" / "orders-0"), b"a" * 16)
    assert compare(a, b).same
    write_partition_metadata(DISK, str(tmp_path / "b" / "orders-0"), b"b" * 16)
    result = only_difference(compare(a, b))
    assert result.difference is Difference.TOPIC_ID
    assert result.copies[0].topic_id == "YWFhYWFhYWFhYWFhYWFhYQ"


def test_a_copy_too_few_is_a_difference_only_where_the_number_is_known(tmp_path: Path) -> None:
    a = lay(tmp_path / "a", {0: BATCHES})
    (tmp_path / "b").mkdir()
    comparison = compare(a, str(tmp_path / "b"))
    assert isinstance(comparison.partitions[0], Alone)
    assert comparison.same

    directories = [a, str(tmp_path / "b")]
    result = only_difference(verify_directories(DISK, directories, copies=2))
    assert result.difference is Difference.MISSING_COPY


def test_the_metadata_log_and_logs_being_deleted_are_left_out(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    for directory, last in ((a, 4), (b, 3)):
        lay(directory, {0: [batch(0, 4)]})
        lay(directory, {0: [batch(0, last)]}, TopicPartition("__understudy_metadata", 0))
        gone = directory / ("orders-1." + "0" * 32 + "-delete")
        gone.mkdir()
    seen: list[str] = []
    comparison = verify_directories(
        DISK, [str(a), str(b)], on_partition=lambda result: seen.append(str(result.partition))
    )
    assert [str(result.partition) for result in comparison.partitions] == ["orders-0"]
    assert seen == ["orders-0"]


def test_partitions_come_in_order_and_topics_may_hold_dashes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for partition in (10, 9):
            lay(tmp_path / name, {0: BATCHES}, TopicPartition("my-topic-1", partition))
    comparison = compare(str(tmp_path / "a"), str(tmp_path / "b"))
    assert [str(r.partition) for r in comparison.partitions] == ["my-topic-1-9", "my-topic-1-10"]


def test_nothing_to_compare_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(CannotCompareError, match="not a directory"):
        compare(str(tmp_path / "nowhere"))
    with pytest.raises(CannotCompareError, match="no partition"):
        compare(str(tmp_path))


def test_empty_logs_are_the_same(tmp_path: Path) -> None:
    a, b = lay(tmp_path / "a", {0: []}), lay(tmp_path / "b", {0: []})
    assert compare(a, b).same


def test_the_spare_room_of_a_copy_that_is_being_written_is_none_of_its_bytes(
    tmp_path: Path,
) -> None:
    a = lay(tmp_path / "a", {0: BATCHES})
    b = lay(tmp_path / "b", {0: BATCHES[:2], 10: [*BATCHES[2:], bytes(100_000)]})
    assert compare(a, b).same
    write_clean_shutdown(DISK, b, 1)
    assert only_difference(compare(a, b)).difference is Difference.CORRUPT


class CountingFile(OsFile):
    def read(self, position: int, size: int) -> bytes:
        data = super().read(position, size)
        counted[self.path] = counted.get(self.path, 0) + len(data)
        return data


counted: dict[str, int] = {}


class CountingFileSystem(OsFileSystem):
    def open_for_reading(self, path: str) -> OsFile:
        file = super().open_for_reading(path)
        return CountingFile(file.path, file.descriptor() or -1)


def test_each_byte_is_read_once_and_a_log_never_fills_memory(tmp_path: Path) -> None:
    big = [batch(n, n, value=bytes([n]) * (5 << 20)) for n in range(6)]
    a, b = lay(tmp_path / "a", {0: big}), lay(tmp_path / "b", {0: big[:3], 3: big[3:]})
    size = sum(map(len, big))
    del big
    counted.clear()
    tracemalloc.start()
    try:
        comparison = verify_directories(CountingFileSystem(), [a, b])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert comparison.same
    logs = [count for path, count in counted.items() if path.endswith(".log")]
    assert sum(logs) == 2 * size
    assert peak < 12 << 20, "a few chunks, of 30 MiB"


def test_each_byte_of_compacted_copies_is_read_once_too(tmp_path: Path) -> None:
    def keyed(offsets: Iterable[int]) -> list[bytes]:
        return [
            encode_batch([Record(timestamp=1, key=b"%d" % (n % 3), value=b"v")], base_offset=n)
            for n in offsets
        ]

    # The first lacks what has later ones; from offset 20 on the second lacks a key's last record.
    whole, thin = keyed(range(30)), keyed([*range(6, 30)])
    lost = keyed([*range(6, 28), 29])
    for name, (one, other), same in (("a", (whole, thin), True), ("b", (whole, lost), False)):
        pair = [lay(tmp_path / name / "x", {0: one}), lay(tmp_path / name / "y", {0: other})]
        counted.clear()
        assert verify_directories(CountingFileSystem(), pair, compacted=True).same == same
        logs = [count for path, count in counted.items() if path.endswith(".log")]
        assert sum(logs) == sum(map(len, [*one, *other]))


spans = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), max_size=12)


def naive_parting(streams: Sequence[Sequence[bytes]]) -> int | None:
    """The first batch that not all have: its lowest offset, over whole lists in memory."""
    longest = max(map(len, streams))
    for n in range(longest):
        held = [stream[n] for stream in streams if n < len(stream)]
        if len(held) < len(streams) or len(set(held)) > 1:
            return min(header.base_offset for data in held for _, header in walk(data))
    return None


@given(
    spans=spans,
    chunk_size=st.integers(1, 300),
    cuts=st.lists(st.integers(0, 12), max_size=3),
    changed=st.none() | st.tuples(st.integers(0, 11), st.sampled_from(["epoch", "bytes", "end"])),
)
def test_a_naive_twin_agrees_on_where_they_part(
    tmp_path_factory: pytest.TempPathFactory,
    spans: list[tuple[int, int]],
    chunk_size: int,
    cuts: list[int],
    changed: tuple[int, str] | None,
) -> None:
    ours, offset, epoch = [], 0, 0
    for count, step in spans:
        epoch += step
        ours.append(batch(offset, offset + count - 1, epoch=epoch))
        offset += count
    theirs = list(ours)
    if changed is not None and changed[0] < len(theirs):
        at, how = changed
        header = next(walk(theirs[at]))[1]
        base, last = header.base_offset, header.last_offset
        if how == "epoch":
            theirs[at] = batch(base, last, epoch=header.leader_epoch + 1)
        elif how == "bytes":
            theirs[at] = batch(base, last, epoch=header.leader_epoch, value=b"other")
        else:
            del theirs[at:]
    edges = sorted({0, *(cut for cut in cuts if cut < len(theirs))})
    segments = {}
    for start, end in zip(edges, [*edges[1:], len(theirs)], strict=True):
        part = theirs[start:end]
        segments[next(walk(part[0]))[1].base_offset if part else 0] = part
    directory = tmp_path_factory.mktemp("logs")
    a = lay(directory / "a", {0: ours})
    b = lay(directory / "b", segments)

    streams = [BatchStream(DISK, f"{copy}/orders-0", chunk_size=chunk_size) for copy in (a, b)]
    divergence = LockStep((a, b), streams, 0, partial(compare_bytes, streams)).run()
    for stream in streams:
        stream.close()
    assert (divergence.offset if divergence else None) == naive_parting([ours, theirs])
    assert compare(a, b).same == (divergence is None)
