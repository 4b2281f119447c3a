"""Sums of batches say "alike" where a grouping of all header rows by offset does: without Spark."""

from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("pyarrow", reason="the Arrow extra is not installed: understudy[arrow]")

from pipeline.audit.folding import Fold, fold
from pipeline.audit.headers import rows_of
from pipeline.audit.replicas import ReplicaDirectory, find_replicas, segments_of
from pipeline.audit.results import PartitionAudit
from pipeline.audit.surveying import Survey
from storage.batch.record_batch import LENGTH_OVERHEAD
from storage.checkpoint import LOG_START_OFFSET_CHECKPOINT, OffsetCheckpoint
from storage.filesystem import OsFileSystem
from storage.types import TopicPartition
from tests.pipeline.replicas import batch, logs, write_segment

DISK = OsFileSystem()
T = TopicPartition("t", 0)
FINGERPRINT = ("last_offset", "leader_epoch", "crc", "size")

Layout = dict[int, list[bytes]]


def surveyed(
    replicas: Sequence[ReplicaDirectory], *, check_crcs: bool, most_headers: int = 1000
) -> PartitionAudit | None:
    """Return what the sums say of the one partition there; None where it is to be judged."""
    survey = Survey.of(replicas, None)
    segments = [
        segment
        for replica in replicas
        for segment in segments_of(DISK, replica, survey.starts().get(T, 0))
    ]
    audits, suspicious = survey.ends(
        fold(DISK, segments, check_crcs=check_crcs, most_headers=most_headers)
    )
    assert len(audits) + len(suspicious) == 1
    return audits[0] if audits else None


def grouped(replicas: Sequence[ReplicaDirectory], *, check_crcs: bool) -> PartitionAudit | None:
    """The same by every header row, grouped by its offset."""
    names = tuple(replica.replica for replica in replicas)
    start = max(replica.start_offset for replica in replicas)
    by_offset: dict[int, list[dict[str, int]]] = {}
    is_damaged = False
    for replica in replicas:
        for rows in rows_of(DISK, segments_of(DISK, replica), check_crcs=check_crcs):
            for row in rows.to_pylist():
                if row["damage"] is not None:
                    is_damaged = True
                elif row["last_offset"] >= start:
                    is_damaged |= row["is_sound"] is False
                    by_offset.setdefault(row["base_offset"], []).append(row)
    same = all(
        len(rows) == len(names)
        and len({tuple(row[name] for name in FINGERPRINT) for row in rows}) == 1
        for rows in by_offset.values()
    )
    if is_damaged or not same or (start and not by_offset):
        return None
    ordered = [by_offset[base][0] for base in sorted(by_offset)]
    return PartitionAudit(
        topic=T.topic,
        partition=T.partition,
        replicas=names,
        result="same",
        start_offset=start,
        end_offset=ordered[-1]["last_offset"] + 1 if ordered else start,
        batches=len(ordered),
        records=sum(row["record_count"] for row in ordered),
        size=sum(row["size"] for row in ordered),
        last_epoch=ordered[-1]["leader_epoch"] if ordered else None,
    )


def both(log_dirs: Sequence[Path], *, check_crcs: bool = False) -> PartitionAudit | None:
    replicas = list(find_replicas(DISK, {each.name: str(each) for each in log_dirs}))
    wanted = grouped(replicas, check_crcs=check_crcs)
    for most_headers in (1, 20, 1000):  # however many are folded at once
        found = surveyed(replicas, check_crcs=check_crcs, most_headers=most_headers)
        assert found == wanted
    return wanted


def lay(log_dir: Path, segments: Layout, *, log_start: int = 0) -> Path:
    (log_dir / str(T)).mkdir(parents=True)
    for base, batches in segments.items():
        write_segment(log_dir, str(T), base, *batches)
    if log_start:
        OffsetCheckpoint(DISK, str(log_dir / LOG_START_OFFSET_CHECKPOINT)).write({T: log_start})
    return log_dir


def flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


A, B, C = batch(0, b"x", b"x"), batch(2, b"y" * 40), batch(3, b"z", b"z", b"z")
D = batch(6, b"w")
OLD_B, OLD_C = batch(2, b"y" * 40, leader_epoch=1), batch(3, b"z", b"z", b"z", leader_epoch=1)


@pytest.mark.parametrize(
    ("ours", "theirs", "start", "batches"),
    [
        pytest.param({0: [A, B, C]}, {0: [A, B, C]}, 0, 3, id="the same"),
        pytest.param({0: [A, B], 3: [C]}, {0: [A], 2: [B, C]}, 0, 3, id="segments end elsewhere"),
        pytest.param({0: [A, B, C]}, {2: [B, C]}, 0, 2, id="retention went on"),
        pytest.param({0: [OLD_B, C]}, {0: [A, B, C]}, 3, 1, id="below the start they may differ"),
        pytest.param({0: [A, B, C]}, {0: [A, B, C]}, 4, 1, id="a batch that straddles the start"),
        pytest.param({0: [A, B, OLD_C]}, {0: [A, B, C]}, 5, None, id="and one that differs"),
        pytest.param({0: [A, B, C]}, {3: [C]}, 5, 1, id="of which one has no more"),
        pytest.param({0: []}, {}, 0, 0, id="no batches"),
        pytest.param({0: [A, B]}, {0: [A, B]}, 9, None, id="no batches from the start on"),
        pytest.param({0: [A, B]}, {0: []}, 0, None, id="a copy without batches"),
        pytest.param({0: [A, B, C]}, {0: [A, C]}, 0, None, id="a missing batch"),
        pytest.param({0: [A, C, D]}, {0: [A, C, D]}, 0, 3, id="the same gap"),
        pytest.param({0: [A, B, C]}, {0: [A, B]}, 0, None, id="a missing tail"),
        pytest.param({0: [A, B, C]}, {0: [A, OLD_B, C]}, 0, None, id="another epoch"),
        pytest.param({0: [A, OLD_B, C]}, {0: [A, B, OLD_C]}, 0, None, id="swapped epochs"),
        pytest.param({0: [A, B, C]}, {0: [A, flipped(B, 18), C]}, 0, None, id="another CRC"),
        pytest.param({0: [A, C, B]}, {0: [A, C, B]}, 0, None, id="the same disorder"),
        pytest.param({0: [A, B, B, B]}, {0: [A, B]}, 0, None, id="a batch that is there thrice"),
        pytest.param({0: [A, B, B]}, {0: [A, C, C]}, 0, None, id="two that are there twice"),
        pytest.param({0: [A, B], 2: [B]}, {0: [A, B], 2: [B]}, 0, None, id="segments overlap"),
        pytest.param({0: [A, B], 1: []}, {0: [A, B], 3: []}, 0, None, id="into an empty segment"),
        pytest.param({0: [A[:-1]], 2: [B]}, {2: [B]}, 0, None, id="damage below the start"),
        pytest.param({0: [A, B, C[:-1]]}, {0: [A, B, C[:-1]]}, 0, None, id="the same torn tail"),
    ],
)
def test_replicas_are_alike_as_a_grouping_by_offset_has_it(
    tmp_path: Path, ours: Layout, theirs: Layout, start: int, batches: int | None
) -> None:
    found = both(
        [lay(tmp_path / "a", ours), lay(tmp_path / "b", theirs, log_start=start)], check_crcs=True
    )
    assert (None if found is None else found.batches) == batches
    assert (both([tmp_path / "a", tmp_path / "b"]) is None) == (batches is None)


def test_bit_rot_counts_where_every_crc_is_checked_and_from_the_start_on(tmp_path: Path) -> None:
    a = lay(tmp_path / "a", {0: [flipped(A, -9), B]}, log_start=1)
    b = lay(tmp_path / "b", {0: [A, B, C]}, log_start=2)
    c = lay(tmp_path / "c", {0: [A, flipped(B, -9), C]})
    lay(tmp_path / "d", {0: [A, B, C]})
    rotten, sound = [c, tmp_path / "d"], [b, tmp_path / "d"]
    assert both(rotten, check_crcs=True) is None
    assert both(rotten) is not None
    assert both(sound, check_crcs=True) is not None
    assert both([a, lay(tmp_path / "e", {0: [A, B]}, log_start=2)], check_crcs=True) is not None


def test_a_log_that_ends_in_spare_room_is_not_damaged(tmp_path: Path) -> None:
    a = lay(tmp_path / "a", {0: [A, B, bytes(4096)]})
    b = lay(tmp_path / "b", {0: [A, B]})
    for check_crcs in (False, True):
        found = both([a, b], check_crcs=check_crcs)
        assert found is not None
        assert found.batches == 2


def test_a_partition_without_another_copy_is_not_read(tmp_path: Path) -> None:
    replicas = list(find_replicas(DISK, {"a": str(lay(tmp_path / "a", {0: [A[:-1]]}))}))
    survey = Survey.of(replicas, None)
    assert survey.starts() == {}
    (audit,), suspicious = survey.ends(())
    assert (audit.result, suspicious) == ("alone", [])
    # Where more copies are asked for, that is what is judged.
    audits, (judged,) = Survey.of(replicas, 2).ends(())
    assert (audits, judged.topic_partition) == ([], T)


def base_of(data: bytes) -> int:
    return int.from_bytes(data[:8], "big")


@st.composite
def replicas_of(draw: st.DrawFn, whole: list[bytes]) -> tuple[Layout, int]:
    """A replica with segments, a log start, and perhaps some harm of its own."""
    log = list(whole)
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2])) if log else 0):
        at, other = (draw(st.integers(0, len(log) - 1)) for _ in range(2))
        match draw(st.sampled_from(["lost", "torn", "flipped", "twice", "epochs", "swapped"])):
            case "lost":
                log[at] = b""
            case "torn":
                log[at] = log[at][:-5]
            case "flipped" if log[at]:
                # Not in what only the CRC covers: the grouping took the greatest count then.
                where = draw(st.sampled_from([3, 7, 11, 15, 18, -1]))
                log[at] = flipped(log[at], where)
            case "twice":
                log[at] += log[at]
            case "epochs" if log[at] and log[other]:
                epochs = log[at][12:16], log[other][12:16]
                log[at] = log[at][:12] + epochs[1] + log[at][16:]
                log[other] = log[other][:12] + epochs[0] + log[other][16:]
            case "swapped":
                log[at], log[other] = log[other], log[at]
            case _:
                pass
    cuts = draw(st.sets(st.integers(1, len(log) - 1), max_size=3)) if len(log) > 1 else set()
    segments: Layout = {}
    for number, data in enumerate(log):
        if number == 0 or number in cuts:
            segments[base_of(whole[number])] = []
        segments[max(segments)].append(data)
    deleted = draw(st.sampled_from([0, 0, 1]))
    kept = dict(sorted(segments.items())[deleted:])
    return kept or segments, draw(st.sampled_from([0, 0, 1, 3, 5]))


@settings(deadline=None)
@given(data=st.data(), check_crcs=st.booleans())
def test_any_logs_are_alike_as_a_grouping_by_offset_has_it(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, check_crcs: bool
) -> None:
    whole = data.draw(logs())
    directory = tmp_path_factory.mktemp("logs")
    log_dirs = []
    for name in "abc"[: data.draw(st.integers(2, 3))]:
        segments, log_start = data.draw(replicas_of(whole))
        log_dirs.append(lay(directory / name, segments, log_start=log_start))
    both(log_dirs, check_crcs=check_crcs)


def test_folds_add_up_in_any_order(tmp_path: Path) -> None:
    (replica,) = find_replicas(DISK, {"a": str(lay(tmp_path / "a", {0: [A], 2: [B], 3: [C, D]}))})
    parts = [
        each for _, each in fold(DISK, segments_of(DISK, replica), check_crcs=False, most_headers=1)
    ]
    ((_, whole),) = fold(DISK, segments_of(DISK, replica), check_crcs=False)
    assert len(parts) == 3
    for ordered in (parts, parts[::-1], [parts[1], parts[2], parts[0]]):
        total = Fold()
        for each in ordered:
            total += each
        assert total == whole
    assert max(whole.digest) < 2**64
    assert whole.size == len(A + B + C + D)
    assert len({part.digest for part in parts}) == 3


@pytest.mark.parametrize("at", [3, 7, 9, 14, 15, 18, 20, 26])
def test_whatever_identifies_a_batch_changes_both_sums(tmp_path: Path, at: int) -> None:
    """Offset, size, epoch, CRC and last offset, one bit of each."""
    changed = flipped(B, at)
    if at == 9:
        changed += bytes(2**16)
    assert LENGTH_OVERHEAD + int.from_bytes(changed[8:12], "big") == len(changed)
    digests = []
    for name, data in (("a", B), ("b", changed)):
        lay(tmp_path / name, {0: [data]})
        (replica,) = find_replicas(DISK, {name: str(tmp_path / name)})
        ((_, found),) = fold(DISK, segments_of(DISK, replica), check_crcs=False)
        digests.append(attrs.evolve(found, is_damaged=False).digest)
    assert all(ours != theirs for ours, theirs in zip(*digests, strict=True))
