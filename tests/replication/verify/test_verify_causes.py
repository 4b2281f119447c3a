"""Why copies part: every cause, at its exact first offset, on directories that were harmed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from replication.verify import Cause, Difference, Different, verify_directories
from replication.verify.results import CopyAt, cause_of
from storage.batch.record_batch import walk
from storage.batch.records import Record, encode_batch
from storage.checkpoint import EpochEntry, LeaderEpochCheckpoint, OffsetCheckpoint
from storage.filesystem import OsFileSystem
from storage.types import TopicPartition

DISK = OsFileSystem()
ORDERS = TopicPartition("orders", 0)


def batch(base: int, *, epoch: int = 0, value: bytes = b"v") -> bytes:
    records = [Record(timestamp=1000 + n, key=b"k", value=value) for n in range(5)]
    return encode_batch(records, base_offset=base, leader_epoch=epoch)


BATCHES = [batch(0), batch(5), batch(10, epoch=2), batch(15, epoch=2)]


def lay(directory: Path, batches: list[bytes]) -> Path:
    folder = directory / str(ORDERS)
    folder.mkdir(parents=True)
    (folder / f"{0:020d}.log").write_bytes(b"".join(batches))
    return folder


def only_difference(tmp_path: Path, *, exact: bool = False) -> Different:
    comparison = verify_directories(DISK, [str(tmp_path / "a"), str(tmp_path / "b")], exact=exact)
    (result,) = comparison.partitions
    assert isinstance(result, Different)
    assert comparison.to_dict()["partitions"][0]["cause"] == (
        None if result.cause is None else result.cause.value
    )
    return result


def test_a_copy_that_ends_first_lags(tmp_path: Path) -> None:
    lay(tmp_path / "a", BATCHES)
    lay(tmp_path / "b", BATCHES[:2])
    result = only_difference(tmp_path)
    assert (result.cause, result.offset) == (Cause.LAG, 10)
    held = next(walk(BATCHES[2]))[1]
    assert [(copy.leader_epoch, copy.crc) for copy in result.copies] == [
        (2, held.crc),
        (None, None),
    ]
    assert f"(missing tail: lag): {tmp_path}/a has 10-14 of epoch 2, CRC {held.crc:08x}" in str(
        result
    )


def high_watermark(folder: Path) -> None:
    OffsetCheckpoint(DISK, str(folder.parent / "replication-offset-checkpoint")).write({ORDERS: 20})


def recovery_point(folder: Path) -> None:
    path = str(folder.parent / "recovery-point-offset-checkpoint")
    OffsetCheckpoint(DISK, path).write({ORDERS: 12})


def snapshot(folder: Path) -> None:
    (folder / f"{15:020d}.snapshot").touch()


def epoch(folder: Path) -> None:
    path = str(folder / "leader-epoch-checkpoint")
    LeaderEpochCheckpoint(DISK, path).write([EpochEntry(0, 0), EpochEntry(3, 11)])


@pytest.mark.parametrize("leave", [high_watermark, recovery_point, snapshot, epoch])
def test_a_copy_whose_checkpoints_lie_beyond_its_end_was_truncated(
    tmp_path: Path, leave: Callable[[Path], None]
) -> None:
    lay(tmp_path / "a", BATCHES)
    leave(lay(tmp_path / "b", BATCHES[:2]))
    result = only_difference(tmp_path)
    assert (result.difference, result.cause) == (Difference.MISSING_TAIL, Cause.TRUNCATION)
    assert result.offset == 10
    assert "and once reached 1" in str(result) or "and once reached 20" in str(result)


def test_unreadable_checkpoints_are_ignored(tmp_path: Path) -> None:
    lay(tmp_path / "a", BATCHES)
    folder = lay(tmp_path / "b", BATCHES[:2])
    (folder.parent / "replication-offset-checkpoint").write_text("what?")
    (folder / "leader-epoch-checkpoint").write_text("what?")
    assert only_difference(tmp_path).cause is Cause.LAG


@pytest.mark.parametrize(
    ("theirs", "difference", "cause"),
    [
        pytest.param(batch(10, epoch=3), Difference.EPOCH, Cause.REWRITE, id="produced again"),
        pytest.param(
            batch(10, epoch=3, value=b"w"), Difference.EPOCH, Cause.TRUNCATION, id="diverged"
        ),
        pytest.param(batch(10, epoch=2, value=b"w"), Difference.BYTES, Cause.REWRITE, id="other"),
        pytest.param(BATCHES[2][:-1] + b"?", Difference.CORRUPT, Cause.CORRUPTION, id="a bit"),
        pytest.param(b"", Difference.GAP, Cause.GAP, id="a hole"),
    ],
)
def test_the_batches_at_the_difference_decide_the_cause(
    tmp_path: Path, theirs: bytes, difference: Difference, cause: Cause
) -> None:
    lay(tmp_path / "a", BATCHES)
    lay(tmp_path / "b", [*BATCHES[:2], theirs, BATCHES[3]])
    result = only_difference(tmp_path)
    assert (result.offset, result.difference, result.cause) == (10, difference, cause)


def test_compacted_records_are_a_difference_only_in_exact_comparisons(tmp_path: Path) -> None:
    lay(tmp_path / "a", BATCHES)
    folder = lay(tmp_path / "b", BATCHES[1:])
    (folder / f"{5:020d}.log").touch()
    checkpoint = OffsetCheckpoint(DISK, str(folder.parent / "cleaner-offset-checkpoint"))
    checkpoint.write({ORDERS: 5})
    directories = [str(tmp_path / name) for name in "ab"]
    assert verify_directories(DISK, directories).same
    result = only_difference(tmp_path, exact=True)
    assert (result.offset, result.cause) == (0, Cause.COMPACTION)
    checkpoint.write({ORDERS: 0})
    assert only_difference(tmp_path).cause is Cause.GAP


def test_other_topics_and_missing_copies_have_no_cause() -> None:
    copies = [CopyAt(directory="a"), CopyAt(directory="b")]
    assert cause_of(Difference.TOPIC_ID, 0, copies) is None
    assert cause_of(Difference.MISSING_COPY, 0, copies) is None
