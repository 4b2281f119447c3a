"""`understudy demo`: kill a leader under load, and account for every record."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from replication.cli.options import FILE, NEW_DIRECTORY
from replication.cli.output import JSON, OUTPUT, show_json
from replication.extras import MissingExtraError, extra

if TYPE_CHECKING:
    from replication.cli.demo_run import DemoProgress

BROKERS = 3
SAME, DIFFERENT = 0, 1  # exit codes of the audit


@click.command(name="demo")
@click.option(
    "--input",
    "source",
    type=FILE,
    help="The file whose lines to produce.  [default: Python's standard library]",
)
@click.option(
    "--victim", type=click.IntRange(1, BROKERS), help="The broker to kill.  [default: a leader]"
)
@click.option(
    "--data-dir",
    type=NEW_DIRECTORY,
    help="Where to keep the data.  [default: a temporary directory]",
)
@click.option(
    "--audit/--no-audit",
    default=True,
    help="Also compare the replicas on Spark, if there is Java.",
)
@OUTPUT
def command(
    source: Path | None, victim: int | None, data_dir: Path | None, *, audit: bool, output: str
) -> None:
    """Kill a leader under load, and account for every record.

    Three brokers run as processes of their own. A stock client produces every line of the
    Python standard library (or of --input) with acks=all. Meanwhile a leader is killed with
    SIGKILL and started again later. The exit code is 0 only if no acknowledged record is lost
    and the replicas are equal, byte for byte.
    """
    with extra("demo", "understudy demo"):
        from replication.cli.demo_run import CONFIG, Demo, DemoProgress
    from rich.console import Console

    from replication.cli.demo_run import Report
    from replication.cli.demo_workload import input_lines
    from replication.cli.isolated import IsolatedCluster
    from replication.verify import verify_directories
    from storage.filesystem import OsFileSystem

    lines = input_lines(source)
    if not lines:
        raise click.BadParameter(f"{source} has no lines", param_hint="--input")
    console = Console(stderr=output == JSON)
    with tempfile.TemporaryDirectory(prefix="understudy-demo-") as scratch:
        cluster = IsolatedCluster(data_dir or Path(scratch), BROKERS, config=CONFIG)
        shown = DemoProgress.on(console, lines=len(lines))
        with shown.bars:
            outcome = Demo(cluster, lines, victim, shown).run()
            shown.step("verifying the three data directories")
            directories = [str(path) for path in outcome.log_dirs]
            comparison = verify_directories(OsFileSystem(), directories, copies=len(directories))
            same, note = _audit(directories, shown) if audit else (None, "skipped (--no-audit)")
        report = Report(outcome, comparison, same, note)
        if output == JSON:
            show_json(report.to_dict())
        else:
            report.show(console)
    sys.exit(0 if report.ok else 1)


def _audit(directories: list[str], shown: "DemoProgress") -> tuple[bool | None, str]:
    """Return whether Spark finds the replicas equal, or None without Spark; and a line about it.

    It runs in a process of its own, so that the output of the JVM is not part of the report.
    """
    try:
        with extra("spark", "the audit"):
            from pipeline.session import NO_JAVA, find_java
    except MissingExtraError as error:
        return None, f"skipped: {error}"
    if find_java() is None:
        return None, f"skipped: {NO_JAVA}"
    shown.step("auditing on Spark")
    command = [sys.executable, "-m", "understudy", "pipeline", "audit", *directories]
    command += ["--copies", str(len(directories)), "--output", "json"]
    done = subprocess.run(  # noqa: S603 - our own command
        command, capture_output=True, text=True, check=False
    )
    if done.returncode not in (SAME, DIFFERENT) or not done.stdout:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return False, f"failed: {reason}"
    rows = json.loads(done.stdout)["partitions"]
    differing = [row for row in rows if row["result"] != "same"]
    if differing:
        return False, f"{len(differing)} of {len(rows)} partitions differ"
    batches = sum(row["batches"] for row in rows)
    return True, f"{len(rows)} partitions the same in {batches:,} batches"
