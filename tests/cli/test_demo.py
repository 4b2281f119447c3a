"""The main job, with real processes and SIGKILL: no kill of one broker loses an acknowledged record."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.deep import one_in

pytestmark = [pytest.mark.client, pytest.mark.slow]

LINES = 8_000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("input") / "lines.txt"
    path.write_text("".join(f"line {number} of the input\n" for number in range(LINES)))
    return path


def run_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "replication.cli", "demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)


def report_of(*arguments: str) -> dict[str, Any]:
    done = run_demo(*arguments, "--output", "json")
    assert done.returncode == 0, done.stderr[-3000:]
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize("victim", one_in(3, [1, 2, 3]))
def test_nothing_acknowledged_is_lost_when_any_broker_dies(source: Path, victim: int) -> None:
    report = report_of("--input", str(source), "--victim", str(victim), "--no-audit")
    assert report["victim"] == victim
    assert report["in_flight_at_kill"] > 0
    assert report["to_come_at_kill"] > 1 / 3
    assert report["verdict"]["sent"] == LINES
    assert report["verdict"]["acked_and_committed"] == LINES
    assert report["verdict"]["acked_and_lost"] == 0
    assert report["verdict"]["duplicated"] == 0
    assert report["verify"]["same"] is True
    times = {moment["what"]: moment["at_ms"] for moment in report["moments"]}
    order = ["killed", "fenced", "elected", "first write acked", "rejoined the ISR"]
    seen = [times[what] for what in order]
    assert None not in seen, times
    assert seen == sorted(seen)


@pytest.mark.deep
@pytest.mark.spark
def test_the_audit_on_spark_agrees_with_a_demo_without_flags(source: Path) -> None:
    audit = report_of("--input", str(source))["audit"]
    if audit["same"] is None:
        pytest.skip(audit["note"])
    assert audit["same"] is True
    # Those of the demo's topic, and those of the offsets of the consumer that reads it.
    found = re.match(r"(\d+) partitions the same", audit["note"])
    assert found is not None
    assert int(found[1]) > 3


def test_a_missing_input_is_one_clear_line() -> None:
    done = run_demo("--input", "no-such-file")
    assert done.returncode == 2
    assert "no-such-file" in done.stderr


def test_a_victim_that_is_not_there_is_one_clear_line() -> None:
    done = run_demo("--victim", "4")
    assert done.returncode == 2
    assert "1<=x<=3" in done.stderr


def test_an_empty_input_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    done = run_demo("--input", str(tmp_path / "empty"))
    assert done.returncode == 2
    assert "has no lines" in done.stderr
