"""The audit on Spark says what `understudy verify` says, over good and damaged logs."""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from replication.verify import Same, verify_directories
from replication.verify.comparing import Rules
from storage.batch.record_batch import walk
from storage.batch.records import Record, encode_batch
from storage.checkpoint import CLEANER_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, OffsetCheckpoint
from storage.filesystem import OsFileSystem
from storage.types import TopicPartition
from tests.pipeline.failover_run import PARTITIONS, TOPIC, FailoverRun
from tests.pipeline.replicas import batch, write_replica, write_segment

pytestmark = pytest.mark.spark

DISK = OsFileSystem()
RULES = ("copies", "exact", "compacted")


def directories(tmp_path: Path) -> list[str]:
    return [str(tmp_path / name) for name in "abc" if (tmp_path / name).exists()]


def audited(spark: Any, paths: Sequence[str], **options: Any) -> dict[str, Any]:
    """The audit of `paths`, by partition; it is `verify`'s answer."""
    from pipeline.audit.job import audit, of_directories
    from pipeline.audit.results import comparison

    wanted_rules = {name: options.pop(name) for name in RULES if name in options}
    source = of_directories(spark, {path: path for path in paths}, **options)
    found = audit(source, rules=Rules(**wanted_rules))
    theirs = verify_directories(DISK, list(paths), **wanted_rules)
    # What is alike by its headers is not read, so that nobody counts its keys.
    unread = {one.topic_partition for one in found if one.keys is None}
    wanted = [
        attrs.evolve(each, keys=None)
        if isinstance(each, Same) and each.partition in unread
        else each
        for each in theirs.partitions
    ]
    assert list(comparison(found).partitions) == wanted
    return {str(one.topic_partition): one for one in found}


def rot(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


A, B, C = batch(0, b"x"), batch(1, b"y" * 30), batch(2, b"z")
WAYS: dict[str, tuple[list[bytes], list[bytes]]] = {
    "same-0": ([A, B, C], [A, B, C]),
    "empty-0": ([], []),
    "epoch-0": ([A, B, C], [A, batch(1, b"y" * 30, leader_epoch=1), C]),
    "bytes-0": ([A, B], [A, batch(1, b"q" * 30)]),
    "tail-0": ([A, B, C], [A]),
    "lacking-0": ([A, B], []),
    "gap-0": ([A, B, C], [A, C]),
    "shape-0": ([A, batch(1, b"y", b"z")], [A, batch(1, b"y"), C]),
    "forged-0": ([A, B, C], [A, B[:17] + b"1234" + B[21:], C]),
    "swapped-0": ([A, B, C], [A, C, B]),
    "swapped-1": ([A, C, B], [A, C, B]),
    "torn-0": ([A, B, C], [A, B, C[:-4]]),
    "garbage-0": ([A, B, C], [A, b"\x07" * 80, C]),
}


@pytest.mark.deep
def test_every_divergence_is_found_as_verify_finds_it(spark: Any, tmp_path: Path) -> None:
    for partition, (ours, theirs) in WAYS.items():
        write_replica(tmp_path / "a", partition, *ours)
        write_replica(tmp_path / "b", partition, *theirs)
    write_replica(tmp_path / "a", "alone-0", A)
    found = audited(spark, directories(tmp_path))
    kinds = {name: one.difference for name, one in found.items() if not one.same}
    assert kinds == {
        "bytes-0": "bytes",
        "epoch-0": "epoch",
        "forged-0": "corrupt",
        "gap-0": "gap",
        "garbage-0": "corrupt",
        "lacking-0": "missing tail",
        "shape-0": "bytes",
        "swapped-0": "gap",
        "swapped-1": "corrupt",
        "tail-0": "missing tail",
        "torn-0": "corrupt",
    }


@pytest.mark.deep
def test_segments_retention_and_overlaps_are_each_copys_own(spark: Any, tmp_path: Path) -> None:
    batches = [batch(offset, b"v") for offset in range(6)]
    write_replica(tmp_path / "a", "kept-0", *batches)
    write_segment(tmp_path / "b", "kept-0", 3, *batches[3:5])
    write_segment(tmp_path / "b", "kept-0", 5, batches[5])
    write_replica(tmp_path / "c", "kept-0", *batches)
    for name in "abc":
        write_segment(tmp_path / name, "overlap-0", 0, *batches[:4])
        write_segment(tmp_path / name, "overlap-0", 3, *batches[3:])
        write_segment(tmp_path / name, "rolled-0", 0, *batches)
    write_segment(tmp_path / "a", "before-0", 2, batches[2])
    write_segment(tmp_path / "b", "before-0", 5)
    of_one_key = [
        encode_batch([Record(timestamp=1000, key=b"k", value=b"v")], base_offset=offset)
        for offset in range(4)
    ]
    for partition, kept in (("cleaned", of_one_key[2:]), ("overdone", of_one_key[:2])):
        write_replica(tmp_path / "a", f"{partition}-0", *of_one_key)
        write_replica(tmp_path / "b", f"{partition}-0", *kept)
    OffsetCheckpoint(DISK, str(tmp_path / "b" / CLEANER_CHECKPOINT)).write(
        {TopicPartition("cleaned", 0): 3, TopicPartition("overdone", 0): 4}
    )
    found = audited(spark, directories(tmp_path))
    assert (found["kept-0"].same, found["kept-0"].start_offset) == (True, 3)
    assert found["kept-0"].batches == 3
    assert [one.kind for one in found["overlap-0"].findings] == ["corrupt"] * 3
    assert found["before-0"].difference == "missing tail"
    assert (found["cleaned-0"].same, found["cleaned-0"].keys) == (True, 1)
    assert found["overdone-0"].difference == "missing tail"
    # Without what the checkpoint tells, and by keys where nothing tells of a cleaner.
    exact = audited(spark, directories(tmp_path), exact=True)
    assert (exact["cleaned-0"].same, exact["cleaned-0"].difference) == (False, "gap")
    (tmp_path / "b" / CLEANER_CHECKPOINT).unlink()
    found = audited(spark, directories(tmp_path), compacted=True)
    assert (found["cleaned-0"].same, found["cleaned-0"].keys) == (True, 1)
    assert found["overdone-0"].difference == "missing tail"


def test_bit_rot_shows_where_every_byte_is_read(spark: Any, tmp_path: Path) -> None:
    batches = [batch(offset, b"v" * 100) for offset in range(20)]
    for name in "abc":
        write_replica(tmp_path / name, "t-0", *batches)
    segment = tmp_path / "b" / "t-0" / f"{0:020d}.log"
    rot(segment, len(batches[0]) * 7 + 80)
    row = audited(spark, directories(tmp_path), check_crcs=True)["t-0"]
    assert (row.difference, row.offset) == ("corrupt", 7)
    (finding,) = row.findings
    assert (finding.replica, finding.position) == (str(tmp_path / "b"), len(batches[0]) * 7)


@pytest.mark.client
def test_every_damage_to_what_a_failover_left_is_found_at_its_offset(
    spark: Any, failed_over: FailoverRun, tmp_path: Path
) -> None:
    kinds = ("whole", "flipped", "cut", "swapped", "forged", "lacking")
    paths = []
    for name, log_dir in zip("abc", failed_over.log_dirs, strict=True):
        paths.append(str(tmp_path / name))
        for kind in kinds:
            shutil.copytree(f"{log_dir}/{TOPIC}-0", tmp_path / name / f"{kind}-0")
            (tmp_path / name / f"{kind}-0" / "partition.metadata").unlink()
    offsets = {kind: damage(tmp_path / "b" / f"{kind}-0", kind) for kind in kinds[1:]}
    found = audited(spark, paths, check_crcs=True)
    assert found["whole-0"].same
    assert found["whole-0"].records == failed_over.acked // PARTITIONS
    # Two batches that changed places: the second of them stands where the first should.
    differences = ("corrupt", "corrupt", "gap", "corrupt", "gap")
    for kind, difference in zip(kinds[1:], differences, strict=True):
        row = found[f"{kind}-0"]
        assert (row.difference, row.offset) == (difference, offsets[kind]), kind
        assert str(tmp_path / "b") in {finding.replica for finding in row.findings}


def damage(directory: Path, kind: str) -> int:
    """Damage a partition's directory; the first offset that is not as it was."""
    first, middle, *_ = sorted(directory.glob("*.log"))
    data = bytearray(first.read_bytes())
    batches = list(walk(bytes(data)))
    at, header = batches[len(batches) // 2]
    following, next_header = batches[len(batches) // 2 + 1]
    end = following + next_header.size
    match kind:
        case "flipped":
            data[at + header.size - 5] ^= 16
        case "cut":
            del data[at + header.size - 5 :]
        case "swapped":
            data[at:end] = data[following:end] + data[at:following]
        case "forged":
            data[at + 17 : at + 21] = b"fake"
        case _:
            middle.unlink()
            return int(middle.stem)
    first.write_bytes(data)
    return header.base_offset


def test_how_many_copies_there_must_be_is_asked_for(spark: Any, tmp_path: Path) -> None:
    for name in "ab":
        write_replica(tmp_path / name, "t-0", batch(0, b"x"))
    assert audited(spark, directories(tmp_path))["t-0"].same
    row = audited(spark, directories(tmp_path), copies=3)["t-0"]
    assert row.difference == "missing copy"


@pytest.mark.deep
def test_a_fleet_is_audited_from_what_each_broker_wrote(spark: Any, tmp_path: Path) -> None:
    import pyarrow.parquet

    from pipeline.audit.job import audit, of_headers
    from pipeline.audit.parquet import NoHeadersError, write_headers
    from pipeline.audit.results import comparison

    def shown(results: Sequence[object]) -> list[str]:
        return [str(result).replace(f"{tmp_path}/", "") for result in results]

    ways = WAYS | {"kept-0": ([A, B, C], [A, B, C]), "other-0": ([A, B, C], [])}
    for partition, (ours, theirs) in ways.items():
        write_replica(tmp_path / "a", partition, *ours)
        write_replica(tmp_path / "b", partition, *theirs)
    starts = OffsetCheckpoint(DISK, str(tmp_path / "b" / LOG_START_OFFSET_CHECKPOINT))
    starts.write({TopicPartition("kept", 0): 1, TopicPartition("epoch", 0): 2})
    paths = directories(tmp_path)
    headers = tmp_path / "headers"
    for name, path in zip("ab", paths, strict=True):
        write_headers(DISK, path, name=name, to=headers, check_crcs=True)
    found = audit(of_headers(spark, [str(headers)]))
    assert shown(comparison(found).partitions) == shown(verify_directories(DISK, paths).partitions)
    alike = {one.topic: one.batches for one in found if one.same}
    assert alike == {"same": 3, "empty": 0, "kept": 2, "epoch": 1}
    # As an earlier version wrote them.
    for file in (headers / "replicas").glob("*.parquet"):
        table = pyarrow.parquet.read_table(file)
        pyarrow.parquet.write_table(table.drop_columns(["cleaned_before", "reached"]), file)
    assert audit(of_headers(spark, [str(headers)])) == found
    shutil.copytree(headers, tmp_path / "again")
    with pytest.raises(NoHeadersError, match=r"has written its headers of bytes-0 twice"):
        of_headers(spark, [str(headers), str(tmp_path / "again")])


def test_the_command_writes_every_form_and_its_exit_code_tells(spark: Any, tmp_path: Path) -> None:
    import pyarrow.parquet
    from click.testing import CliRunner

    from replication.cli import group

    write_replica(tmp_path / "a", "t-0", batch(0, b"x"))
    write_replica(tmp_path / "b", "t-0", batch(0, b"y"))
    arguments = ["pipeline", "audit", "--log-dirs", *directories(tmp_path)]
    parquet, as_json = tmp_path / "audit.parquet", tmp_path / "audit.json"
    arguments += ["--output", "table", "--output", str(parquet), "--output", str(as_json)]
    result = CliRunner().invoke(group, arguments)
    assert result.exit_code == 1, result.output
    shown = (
        r"t-0: diverges at offset 0 \(bytes: rewrite\): a has 0-0 of epoch 0, CRC .*; b has 0-0 of"
    )
    assert re.search(shown, result.stdout)
    assert "1 partitions, 1 differ" in result.stdout
    answer = json.loads(as_json.read_text())
    assert (answer["same"], answer["partitions"][0]["offset"]) == (False, 0)
    (row,) = pyarrow.parquet.read_table(parquet).to_pylist()
    assert (row["result"], row["pairs"][0]["offset"]) == ("different", 0)


def test_what_cannot_be_compared_is_one_line_and_code_2(spark: Any, tmp_path: Path) -> None:
    from click.testing import CliRunner

    from replication.cli import group

    (tmp_path / "a").mkdir()
    done = CliRunner().invoke(group, ["pipeline", "audit", str(tmp_path / "a")])
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (
        2,
        "understudy: cannot compare: there is no partition to audit",
    )
    done = CliRunner().invoke(group, ["pipeline", "audit", "--headers", str(tmp_path / "a")])
    assert done.exit_code == 2
    assert "has no headers of batches" in done.stderr
    both = ["pipeline", "audit", str(tmp_path / "a"), "--compacted"]
    for further, reason in (
        ("--exact", "contradict each other"),
        ("--headers", "needs the records"),
    ):
        done = CliRunner().invoke(group, [*both, further])
        assert (done.exit_code, reason in done.stderr) == (2, True)
    done = CliRunner().invoke(group, ["pipeline", "audit", "a", "--output", "x.csv"])
    assert done.exit_code == 2
    assert "x.csv is none of: table, json" in done.stderr
