"""The judgement from header rows is that of `understudy verify` from the files: without Spark."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from pipeline.audit.judging import check_on, compare_on

pytest.importorskip("pyarrow", reason="the Arrow extra is not installed: understudy[arrow]")

import pyarrow as pa

from pipeline.audit.header_stream import ReplicaHeaders
from pipeline.audit.headers import SCHEMA, rows_of
from pipeline.audit.judging import Judgement, judge, merged, without
from pipeline.audit.replicas import ReplicaDirectory, find_replicas, segments_of, with_pasts
from pipeline.audit.results import comparison, from_judgement
from replication.verify import Cause, Different, Same, verify_directories
from replication.verify.comparing import Rules
from storage.checkpoint import (
    CLEANER_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    OffsetCheckpoint,
    write_partition_metadata,
)
from storage.filesystem import OsFileSystem
from storage.types import TopicPartition
from tests.pipeline.replicas import batch, logs, write_segment
from tests.replication.verify.test_verify_compacted import Pairs, compact, history, steps
from tests.storage.logs import WALL_MS

DISK = OsFileSystem()
T = TopicPartition("t", 0)

Layout = dict[int, Sequence[bytes]]


def copy_of(replica: ReplicaDirectory, *, check_crcs: bool) -> ReplicaHeaders:
    found = list(rows_of(DISK, segments_of(DISK, replica), check_crcs=check_crcs))
    return ReplicaHeaders.of(replica, pa.Table.from_batches(found, schema=SCHEMA))


def judged(*directories: str, check_crcs: bool = True, **rules: Any) -> Judgement:
    """The judgement of the one partition there, which `verify` shares."""
    found = [
        copy_of(replica, check_crcs=check_crcs)
        for replica in with_pasts(DISK, find_replicas(DISK, {name: name for name in directories}))
    ]
    judgement = judge(
        T,
        found,
        rules=Rules(**rules),
        check_batch=check_on(DISK),
        compare_records=compare_on(DISK),
    )
    ours = comparison([from_judgement(judgement)])
    theirs = verify_directories(DISK, sorted(directories), **rules)
    assert ours.partitions == theirs.partitions
    return judgement


def lay(directory: Path, segments: Layout) -> str:
    (directory / str(T)).mkdir(parents=True)
    for base, batches in segments.items():
        write_segment(directory, str(T), base, *batches)
    return str(directory)


def pair(tmp_path: Path, ours: Layout, theirs: Layout) -> Judgement:
    return judged(lay(tmp_path / "a", ours), lay(tmp_path / "b", theirs))


A, B, C = batch(0, b"x"), batch(1, b"y" * 40), batch(2, b"z")
OLD_B = batch(1, b"y" * 40, leader_epoch=7)


def flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


DIFFER_AT_1 = ["a: differs [1, 2)", "b: differs [1, 2)"]


def corrupt(position: int, offset: int, reason: str, *, segment: int = 0) -> str:
    return f"b: corrupt in {segment:020d}.log at byte {position}, offset {offset}: {reason}"


@pytest.mark.parametrize(
    ("ours", "theirs", "findings"),
    [
        pytest.param({0: [A, B, C]}, {0: [A, B, C]}, [], id="the same"),
        pytest.param({0: [A, B]}, {0: [A], 1: [B]}, [], id="segments end elsewhere"),
        pytest.param({0: [A, B, C]}, {0: [A]}, ["b: missing tail [1, 3)"], id="cut tail"),
        pytest.param({0: [A, B, C]}, {0: [A, C]}, ["b: gap [1, 2)"], id="a batch is missing"),
        pytest.param(
            {0: [A], 1: [B], 2: [C]}, {0: [A], 2: [C]}, ["b: gap [1, 2)"], id="a missing segment"
        ),
        pytest.param({0: [A, B, C]}, {0: [A, OLD_B, C]}, DIFFER_AT_1, id="another epoch"),
        pytest.param(
            {0: [A, B, C]},
            {0: [A, flipped(B, -9), C]},
            [corrupt(len(A), 1, "its CRC-32C does not match")],
            id="a flipped bit",
        ),
        pytest.param(
            {0: [A, B, C]},
            {0: [A, flipped(B, 17), C]},
            [*DIFFER_AT_1, corrupt(len(A), 1, "its CRC-32C does not match")],
            id="a forged checksum",
        ),
        pytest.param(
            {0: [A, B, C]},
            {0: [A, C, B]},
            [
                "b: gap [1, 2)",
                corrupt(len(A + C), 3, "a batch of offsets 1 to 1 where 3 comes next"),
            ],
            id="swapped batches",
        ),
        pytest.param(
            {0: [A, B, C]},
            {0: [A, B, C[:-3]]},
            [
                "b: missing tail [2, 3)",
                corrupt(len(A + B), 2, f"a batch of {len(C)} bytes where {len(C) - 3} are left"),
            ],
            id="a torn tail",
        ),
        pytest.param(
            {0: [A, B]},
            {0: [A, B], 1: [B]},
            [corrupt(0, 2, "a batch of offsets 1 to 1 where 2 comes next", segment=1)],
            id="segments that overlap",
        ),
        pytest.param({1: [B, C]}, {0: [A, B, C]}, [], id="retention went on"),
        pytest.param({0: [A]}, {1: [B]}, ["a: missing tail [1, 2)"], id="ends before a start"),
        pytest.param({}, {0: [A]}, ["a: missing tail [0, 1)"], id="nothing at all"),
    ],
)
def test_every_damage_is_found_at_its_place(
    tmp_path: Path, ours: Layout, theirs: Layout, findings: list[str]
) -> None:
    found = pair(tmp_path, ours, theirs).findings
    assert [str(each).replace(f"{tmp_path}/", "") for each in found] == findings


def test_a_forged_checksum_is_found_by_reading_only_that_batch_again(tmp_path: Path) -> None:
    a = lay(tmp_path / "a", {0: [A, B, C]})
    b = lay(tmp_path / "b", {0: [A, flipped(B, 17), C]})
    judged(a, b, check_crcs=False)


def test_each_pair_has_the_offset_at_which_it_diverges(tmp_path: Path) -> None:
    a = lay(tmp_path / "a", {0: [A, B, C]})
    b = lay(tmp_path / "b", {0: [A, B]})
    c = lay(tmp_path / "c", {0: [A, OLD_B, C]})
    pairs = judged(a, b, c).pairs
    assert [(each.offset, each.first_epoch, each.second_epoch) for each in pairs] == [
        (2, 0, None),
        (1, 0, 7),
        (1, 0, 7),
    ]


def test_checkpoints_topic_ids_and_missing_copies_count_as_for_verify(tmp_path: Path) -> None:
    a = lay(tmp_path / "a", {0: [A, B, C]})
    b = lay(tmp_path / "b", {0: [A, B, C]})
    OffsetCheckpoint(DISK, f"{b}/log-start-offset-checkpoint").write({T: 2})
    judged(a, b)
    judged(a, b, copies=3)
    judged(a)
    write_partition_metadata(DISK, f"{a}/{T}", b"1" * 16)
    write_partition_metadata(DISK, f"{b}/{T}", b"2" * 16)
    judged(a, b)


@st.composite
def damaged(draw: st.DrawFn, whole: list[bytes]) -> list[bytes]:
    """The same log with something done to it."""
    log = list(whole)
    for _ in range(draw(st.integers(0, 2))):
        if not log:
            break
        at = draw(st.integers(0, len(log) - 1))
        harm: Callable[[bytes], bytes] = draw(
            st.sampled_from(
                [
                    lambda data: b"",
                    lambda data: data[: len(data) // 2],
                    lambda data: flipped(data, -1),
                    lambda data: flipped(data, 3),
                    lambda data: flipped(data, 11),
                    lambda data: flipped(data, 18),
                    lambda data: data + data,
                ]
            )
        )
        log[at] = harm(log[at]) if log[at] else b""
    return log


@given(data=st.data())
def test_the_judgement_is_that_of_verify(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = data.draw(logs())
    directory = tmp_path_factory.mktemp("logs")
    names = []
    for name in "abc"[: data.draw(st.integers(2, 3))]:
        log = data.draw(damaged(whole))
        base = 0 if not whole else int.from_bytes(whole[0][:8], "big")
        names.append(lay(directory / name, {base: log}))
    judged(*names)


spans = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 6)), max_size=6).map(
    lambda found: [(first, first + length) for first, length in found]
)


@given(spans, spans)
def test_spans_are_sets_of_offsets(
    all_of_them: list[tuple[int, int]], taken: list[tuple[int, int]]
) -> None:
    def naive(found: Sequence[tuple[int, int]]) -> set[int]:
        return {offset for first, end in found for offset in range(first, end)}

    left = list(without(merged(all_of_them), merged(taken)))
    assert naive(left) == naive(all_of_them) - naive(taken)
    assert left == merged(left)
    assert naive(merged(all_of_them)) == naive(all_of_them)


def test_a_long_log_that_is_alike_is_passed_in_one_go(tmp_path: Path) -> None:
    chance = random.Random(1)
    batches = [batch(offset, chance.randbytes(20)) for offset in range(300)]
    late = batch(299, b"another")
    a = lay(tmp_path / "a", {0: batches[:100], 100: batches[100:150], 150: batches[150:]})
    b = lay(tmp_path / "b", {0: batches[:120], 120: [*batches[120:-1], late]})
    found = judged(a, b)
    assert [str(each).rpartition(": ")[2] for each in found.findings] == ["differs [299, 300)"] * 2


def checkpoint(log_dir: Path, name: str, offset: int) -> None:
    OffsetCheckpoint(DISK, str(log_dir / name)).write({T: offset})


def test_a_replica_that_once_reached_further_was_cut(tmp_path: Path) -> None:
    ours, theirs = lay(tmp_path / "a", {0: [A, B, C]}), lay(tmp_path / "b", {0: [A, B]})
    checkpoint(tmp_path / "b", RECOVERY_POINT_CHECKPOINT, 3)
    result = judged(ours, theirs).result
    assert isinstance(result, Different)
    assert (result.cause, result.copies[1].reached) == (Cause.TRUNCATION, 3)


@settings(max_examples=15, deadline=None)
@given(steps=steps, lost=st.none() | st.integers(0, 40))
def test_what_a_cleaner_took_is_judged_as_by_verify(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Pairs]], lost: int | None
) -> None:
    """Records, tombstones and transactions, committed and aborted; perhaps a batch that is gone."""
    whole = history(steps)
    once, end = compact(whole, WALL_MS)
    again, _ = compact(whole, WALL_MS, rounds=2)
    if lost is not None and again:
        del again[lost % len(again)]
    directory = tmp_path_factory.mktemp("logs")
    names = []
    for name, batches, cleaned_before in (("a", whole, 0), ("b", once, end), ("c", again, end)):
        names.append(lay(directory / name, {0: batches}))
        checkpoint(directory / name, CLEANER_CHECKPOINT, cleaned_before)
    found = judged(*names)
    if lost is None:
        assert isinstance(found.result, Same)
    judged(*names, exact=True)
    by_keys = judged(*names, compacted=True)
    assert isinstance(by_keys.result, Same) == isinstance(found.result, Same)
    below = [each for each in found.findings if each.kind in ("gap", "differs")]
    assert all(each.first_offset >= end for each in below), "a cleaner may have done that"
