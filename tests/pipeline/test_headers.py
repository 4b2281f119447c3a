"""A segment's headers as rows, and what is planned to be read: without Spark."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from pipeline.source.plan import TASK_BYTES

pytest.importorskip("pyarrow", reason="the Arrow extra is not installed: understudy[arrow]")

from pipeline.audit.headers import (
    OVERLAP,
    SCHEMA,
    Scanned,
    SegmentHeaders,
    rows_of,
    scan,
    scan_slowly,
)
from pipeline.audit.replicas import (
    FILE_COST_BYTES,
    MOST_TASK_BYTES,
    NoLogDirectoryError,
    directory_names,
    find_replicas,
    large_tasks,
    segments_of,
    tasks,
)
from storage.filesystem import OsFileSystem
from storage.types import TopicPartition
from tests.pipeline.replicas import batch, write_replica, write_segment

DISK = OsFileSystem()


def segments(log_dir: Path) -> list[SegmentHeaders]:
    found = find_replicas(DISK, {log_dir.name: str(log_dir)})
    return [segment for replica in found for segment in segments_of(DISK, replica)]


def rows(log_dir: Path, *, check_crcs: bool = False) -> list[dict[str, object]]:
    found = rows_of(DISK, iter(segments(log_dir)), check_crcs=check_crcs)
    return [row for each in found for row in each.to_pylist()]


def both_ways(log_dir: Path, *, check_crcs: bool) -> Scanned:
    """The quick scan of the one segment there, which the slow one agrees with."""
    (segment,) = segments(log_dir)
    quick = scan(DISK, segment, check_crcs=check_crcs)
    slow = scan_slowly(DISK, segment, check_crcs=check_crcs)
    assert quick.headers.tolist() == slow.headers.tolist()
    assert quick.positions.tolist() == slow.positions.tolist()
    assert (quick.is_sound is None) == (slow.is_sound is None) == (not check_crcs)
    if quick.is_sound is not None and slow.is_sound is not None:
        assert quick.is_sound.tolist() == slow.is_sound.tolist()
    assert quick.damage == slow.damage
    return quick


@pytest.mark.parametrize("check_crcs", [False, True])
def test_one_row_for_each_batch(tmp_path: Path, check_crcs: bool) -> None:
    write_replica(tmp_path / "a", "t-0", batch(0, b"x", b"y"), batch(2, b"z", leader_epoch=3))
    found = rows(tmp_path / "a", check_crcs=check_crcs)
    assert [(row["base_offset"], row["last_offset"], row["leader_epoch"]) for row in found] == [
        (0, 1, 0),
        (2, 2, 3),
    ]
    assert {row["is_sound"] for row in found} == {True if check_crcs else None}
    assert both_ways(tmp_path / "a", check_crcs=check_crcs).damage is None


@pytest.mark.parametrize("check_crcs", [False, True])
@pytest.mark.parametrize(
    "sizes",
    [(3_000_000, 3_000_000, 1), (5_000_000, 9_000_000), (1, 70_000, 5_000, 2_000, 1)],
    ids=["larger than a window", "larger than a chunk", "near and far"],
)
def test_batches_of_any_size_are_stepped_over(
    tmp_path: Path, sizes: tuple[int, ...], check_crcs: bool
) -> None:
    batches = [batch(offset, b"v" * size) for offset, size in enumerate(sizes)]
    write_replica(tmp_path / "a", "t-0", *batches)
    found = both_ways(tmp_path / "a", check_crcs=check_crcs)
    assert found.last_offsets.tolist() == list(range(len(sizes)))


@pytest.mark.parametrize("check_crcs", [False, True])
@pytest.mark.parametrize("cut", [1, 20, 70])
def test_a_torn_tail_is_damage_with_its_place(tmp_path: Path, cut: int, check_crcs: bool) -> None:
    whole, torn = batch(0, b"x"), batch(1, b"y" * 50)
    write_replica(tmp_path / "a", "t-0", whole, torn[:-cut])
    damage = both_ways(tmp_path / "a", check_crcs=check_crcs).damage
    assert damage is not None
    assert (damage.position, damage.offset) == (len(whole), 1)
    assert rows(tmp_path / "a", check_crcs=check_crcs)[-1]["damage"] == damage.reason


@pytest.mark.parametrize("check_crcs", [False, True])
def test_batches_that_stand_in_the_wrong_order_are_damage(tmp_path: Path, check_crcs: bool) -> None:
    write_replica(tmp_path / "a", "t-0", batch(0, b"x"), batch(2, b"z"), batch(1, b"y"))
    damage = both_ways(tmp_path / "a", check_crcs=check_crcs).damage
    assert damage is not None
    assert damage.reason == "a batch of offsets 1 to 1 where 3 comes next"


def test_a_flipped_bit_shows_only_where_every_byte_is_read(tmp_path: Path) -> None:
    rotten = bytearray(batch(1, b"y" * 50))
    rotten[-10] ^= 4
    write_replica(tmp_path / "a", "t-0", batch(0, b"x"), bytes(rotten))
    assert both_ways(tmp_path / "a", check_crcs=False).is_sound is None
    found = both_ways(tmp_path / "a", check_crcs=True).is_sound
    assert found is not None
    assert found.tolist() == [True, False]


def test_a_segment_that_reaches_into_the_next_is_damage(tmp_path: Path) -> None:
    write_segment(tmp_path / "a", "t-0", 0, batch(0, b"x", b"y", b"z"))
    write_segment(tmp_path / "a", "t-0", 2, batch(2, b"z"))
    assert [row["damage"] for row in rows(tmp_path / "a")] == [None, OVERLAP, None]


def test_an_empty_segment_has_no_rows(tmp_path: Path) -> None:
    write_replica(tmp_path / "a", "t-0")
    assert rows(tmp_path / "a") == []
    assert rows(tmp_path / "a", check_crcs=True) == []


def test_the_log_start_is_the_checkpointed_one(tmp_path: Path) -> None:
    write_segment(tmp_path / "a", "t-0", 5, batch(5, b"x"), batch(6, b"y"))
    (tmp_path / "a" / "log-start-offset-checkpoint").write_text("0\n1\nt 0 6\n")
    (replica,) = find_replicas(DISK, {"a": str(tmp_path / "a")})
    assert (replica.log_start_offset, replica.segments) == (6, (5,))


def test_what_is_no_replica_is_passed_over(tmp_path: Path) -> None:
    write_replica(tmp_path / "a", "__cluster_metadata-0", batch(0, b"x"))
    (tmp_path / "a" / "meta.properties").write_text("version=1\n")
    assert rows(tmp_path / "a") == []


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoLogDirectoryError, match="nowhere is not a directory"):
        list(find_replicas(DISK, {"a": str(tmp_path / "nowhere")}))


def test_replicas_are_called_by_the_shortest_names_that_differ() -> None:
    assert directory_names(["/x/b1/log", "/x/b2/log"]) == ["b1/log", "b2/log"]
    assert directory_names(["/x/one", "/y/two"]) == ["one", "two"]


def sized(size: int) -> SegmentHeaders:
    return SegmentHeaders(
        replica="a",
        topic_partition=TopicPartition("t", 0),
        directory="/a/t-0",
        base_offset=0,
        next_base=None,
        size=size,
    )


def test_many_small_segments_are_few_tasks_and_large_ones_have_their_own() -> None:
    small = [len(task) for task in tasks([sized(100)] * 5000)]
    assert sum(small) == 5000
    assert max(small) <= TASK_BYTES // FILE_COST_BYTES
    assert [len(task) for task in tasks([sized(TASK_BYTES)] * 3)] == [1, 1, 1]


def test_a_survey_has_a_few_tasks_for_each_core_and_no_very_large_ones() -> None:
    assert [len(task) for task in large_tasks([sized(TASK_BYTES)] * 80, 4)] == [10] * 8
    assert [len(task) for task in large_tasks([sized(100)] * 50, 4)] == [50]
    whole = [len(task) for task in large_tasks([sized(MOST_TASK_BYTES)] * 80, 4)]
    assert whole == [1] * 80


@pytest.mark.parametrize("check_crcs", [False, True])
def test_the_rows_of_many_segments_are_those_of_each(tmp_path: Path, check_crcs: bool) -> None:
    torn = batch(5, b"w")[:-4]
    for number in (0, 1):
        write_segment(tmp_path / "a", f"t-{number}", 0, batch(0, b"x", b"y"), batch(2, b"z"))
        write_segment(tmp_path / "a", f"t-{number}", 2, batch(3 - number, b"z"), torn)
        write_segment(tmp_path / "a", f"t-{number}", 6)
        write_segment(tmp_path / "a", f"u-{number}", 7, batch(7, b"v"), batch(8, b"v"))
    found = segments(tmp_path / "a")
    apart = rows_of(DISK, iter(found), check_crcs=check_crcs, most_rows=1)
    each = [row for batch_of_one in apart for row in batch_of_one.to_pylist()]
    assert rows(tmp_path / "a", check_crcs=check_crcs) == each
    damages = [row["damage"] is not None for row in each]
    assert (len(damages), sum(damages)) == (14, 4)


def test_the_command_writes_them_beside_a_broker(tmp_path: Path) -> None:
    import pyarrow.parquet

    from replication.cli import group

    batches = [batch(offset, b"v") for offset in range(3)]
    write_replica(tmp_path / "log", "t-0", *batches)
    arguments = ["audit-headers", str(tmp_path / "log"), "--name", "b1"]
    done = CliRunner().invoke(group, [*arguments, "--to", str(tmp_path / "headers")])
    assert (done.exit_code, done.stdout) == (0, f"3 batches of b1 in {tmp_path / 'headers'}\n")
    rows = pyarrow.parquet.read_table(tmp_path / "headers" / "batches").to_pylist()
    assert [(row["topic"], row["replica"], row["base_offset"]) for row in rows] == [
        ("t", "b1", offset) for offset in range(3)
    ]
    assert {row["is_sound"] for row in rows} == {None}
    checked = [*arguments, "--to", str(tmp_path / "checked"), "--check-crcs"]
    assert CliRunner().invoke(group, checked).exit_code == 0
    rows = pyarrow.parquet.read_table(tmp_path / "checked" / "batches").to_pylist()
    assert {row["is_sound"] for row in rows} == {True}
    done = CliRunner().invoke(group, [*arguments[:-1], "../b1", "--to", str(tmp_path / "headers")])
    assert (done.exit_code, "cannot be a file's name" in done.stderr) == (2, True)


def test_a_row_has_about_sixty_bytes_of_numbers() -> None:
    numbers = [field for field in SCHEMA if field.name not in ("replica", "topic", "damage")]
    assert 55 < sum(field.type.bit_width for field in numbers) / 8 < 65
