"""`understudy dump-log`: its flags, its outputs, its exit codes."""

import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from replication.cli import group
from storage.batch.records import Record, encode_batch

LOG = "00000000000000000000.log"


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / LOG
    batches = [
        encode_batch([Record(timestamp=1, key=b"k", value=b"v%d" % n)], base_offset=n)
        for n in range(3)
    ]
    path.write_bytes(b"".join(batches))
    return path


def dump_log(*arguments: str) -> Result:
    return CliRunner().invoke(group, ["dump-log", *arguments])


def test_text(segment: Path) -> None:
    result = dump_log("--files", str(segment), "--print-data-log")
    lines = result.stdout.splitlines()
    assert (result.exit_code, result.stderr) == (0, "")
    assert lines[:2] == [f"Dumping {segment}", "Log starting offset: 0"]
    assert next(text for text in lines if "payload: v1" in text).startswith("| offset: 1 ")


def test_a_directory_and_a_list(segment: Path) -> None:
    (segment.parent / "00000000000000000000.index").touch()
    assert dump_log("--files", str(segment.parent)).stdout.count("Dumping") == 2
    assert dump_log("--files", f"{segment},{segment}").stdout.count("Dumping") == 2


def test_damage_is_reported_and_changes_the_exit_code(segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    at = len(data) // 3
    data[at + 16] = 9
    segment.write_bytes(data)
    for output in ("text", "arrow"):
        result = dump_log("--files", str(segment), "--output", output)
        assert result.exit_code == 1
        assert f"{segment}, byte {at}: no batch begins here" in result.stderr
        assert f"goes on at byte {2 * at}" in result.stderr
    result = dump_log("--files", str(segment), "--output", "json")
    damage = [one for one in map(json.loads, result.stdout.splitlines()) if "is_damage" in one]
    assert result.exit_code == 1
    assert [(one["position"], one["resumed_at"]) for one in damage] == [(at, 2 * at)]


def test_a_missing_file_is_damage_and_the_others_are_dumped(segment: Path) -> None:
    result = dump_log("--files", f"{segment.parent}/00000000000000000009.log,{segment}")
    assert result.exit_code == 1
    assert "No such file" in result.stderr
    assert "baseOffset: 2" in result.stdout


def test_arrow(segment: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="the Arrow extra is not installed")
    result = dump_log("--files", str(segment.parent), "--output", "arrow")
    batches = pa.ipc.open_stream(io.BytesIO(result.stdout_bytes)).read_all()
    assert batches.column("base_offset").to_pylist() == [0, 1, 2]
    assert (
        dump_log("--files", str(segment), "--output", "arrow", "--max-bytes", "80").exit_code == 0
    )
    assert set(batches.column("file").to_pylist()) == {str(segment)}
    result = dump_log("--files", str(segment), "--output", "arrow", "--print-data-log")
    records = pa.ipc.open_stream(io.BytesIO(result.stdout_bytes)).read_all()
    assert records.column("value").to_pylist() == [b"v0", b"v1", b"v2"]


def test_a_missing_file_is_damage_whatever_its_name(tmp_path: Path) -> None:
    result = dump_log("--files", f"{tmp_path}/orders-0")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"{tmp_path}/orders-0, byte 0: No such file or directory")


def test_arrow_output_takes_only_segments(segment: Path) -> None:
    pytest.importorskip("pyarrow", reason="the Arrow extra is not installed")
    result = dump_log(
        "--files", f"{segment.parent}/00000000000000000000.index", "--output", "arrow"
    )
    assert result.exit_code == 2
    assert "needs .log files" in result.stderr
