"""Pipes that close, Ctrl-C, and outputs that cannot be written, as of any Unix tool."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from replication.cli import isolated
from replication.testing import ThreadedCluster
from tests.cli.commands import Command
from tests.deep import one_in

pytestmark = pytest.mark.slow

UNDERSTUDY = [sys.executable, "-m", "replication.cli"]
SECONDS = 60.0


@pytest.fixture(autouse=True)
def hears_ctrl_c() -> Iterator[None]:
    """Let what a test starts hear Ctrl-C, which a job in the background of a shell does not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def run(shell: str, servers: str) -> "subprocess.CompletedProcess[bytes]":
    """Run a line of shell, which knows `understudy`, with `pipefail`."""
    python, *module = UNDERSTUDY
    script = f"set -o pipefail\nunderstudy() {{ '{python}' {' '.join(module)} \"$@\"; }}\n{shell}"
    environment = os.environ | {"UNDERSTUDY_BOOTSTRAP_SERVER": servers}
    return subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        check=False,
        timeout=SECONDS,
        env=environment,
    )


def test_through_pipes(brokers: ThreadedCluster) -> None:
    """Every byte comes back; a reader that leaves ends the writer without a message."""
    brokers.create_topic("pipes")
    servers = brokers.bootstrap_servers
    lines = b"".join(bytes([number % 255 or 1]) * 900 + b"\n" for number in range(3000))
    sent = subprocess.run(
        [*UNDERSTUDY, "-b", servers, "produce", "pipes"],
        input=lines.replace(b"\n\n", b"\n"),
        check=True,
        timeout=SECONDS,
        capture_output=True,
    )
    assert sent.stdout == b""
    read = run("understudy consume pipes -o earliest -e", servers)
    assert read.returncode == 0
    assert read.stdout == lines.replace(b"\n\n", b"\n")
    cut = run("understudy consume pipes -o earliest | head -c 10", servers)
    assert cut.stdout == lines[:10]
    assert cut.stderr == b""
    assert cut.returncode == 128 + signal.SIGPIPE


@pytest.mark.parametrize("to", one_in(2, [">/dev/full", ">&-"]))
def test_an_output_that_cannot_be_written_is_one_line(
    brokers: ThreadedCluster, understudy: Command, to: str
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    if not brokers.leader("full"):
        brokers.create_topic("full")
        understudy("produce", "full", stdin=b"x")
    servers = brokers.bootstrap_servers
    for command in ("topic list", "consume full -o earliest -e"):
        answer = run(f"understudy {command} {to}", servers)
        assert answer.returncode == 1, answer
        last = answer.stderr.splitlines()[-1]
        assert last.startswith(b"understudy: "), answer


def test_ctrl_c_commits_what_was_written(brokers: ThreadedCluster, understudy: Command) -> None:
    brokers.create_topic("interrupted")
    understudy("produce", "interrupted", stdin=b"a\nb\nc\n")
    reading = ["consume", "interrupted", "--group", "interrupted", "--from-beginning"]
    with subprocess.Popen(
        [*UNDERSTUDY, "-b", brokers.bootstrap_servers, *reading],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert [process.stdout.readline() for _ in range(3)] == [b"a\n", b"b\n", b"c\n"]
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == b""
        assert process.stderr.read() == b"Processed a total of 3 messages\n"
        assert process.wait(SECONDS) == -signal.SIGINT
    (answer,) = understudy.json("group", "describe", "interrupted")
    assert answer["offsets"][0]["current_offset"] == 3


def test_ctrl_c_sends_whole_lines_and_aborts_a_transaction(
    brokers: ThreadedCluster, understudy: Command
) -> None:
    brokers.create_topic("typed")
    for more in ([], ["--transactional-id", "typed"]):
        with subprocess.Popen(
            [*UNDERSTUDY, "-b", brokers.bootstrap_servers, "produce", "typed", *more],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdin is not None
            assert process.stderr is not None
            process.stdin.write(b"whole\nhalf a")
            process.stdin.flush()
            while len(understudy.lines("consume", "typed", "-o", "earliest", "-e")) <= bool(more):
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            said = process.stderr.read()
            assert process.wait(SECONDS) == -signal.SIGINT
        assert said.startswith(b"1 records in typed")
        assert (b"was aborted" in said) == bool(more)
    committed = ["-o", "earliest", "-e", "--isolation-level", "read_committed"]
    assert understudy.lines("consume", "typed", *committed) == ["whole"]


@pytest.mark.deep
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_ends_a_swarm_without_a_word(jobs: str) -> None:
    """A terminal sends it to every process of the command."""
    ours, its = pty.openpty()
    with subprocess.Popen(
        [*UNDERSTUDY, "scenario", "swarm", "--seeds", "1000", "--jobs", jobs],
        stdout=subprocess.DEVNULL,
        stderr=its,
        start_new_session=True,
    ) as process:
        seen = os.read(ours, 1000)  # the first of its progress
        os.killpg(process.pid, signal.SIGINT)
        try:
            assert process.wait(SECONDS) == -signal.SIGINT
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    os.close(its)
    with suppress(OSError):  # EIO: nobody has the other end any more
        while more := os.read(ours, 1000):
            seen += more
    os.close(ours)
    assert b"Traceback" not in seen


def test_a_long_output_of_former_processes_is_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated, "OUTPUT_BYTES", 4)
    output = tmp_path / "output.log"
    for text, kept in (("one", None), ("four", "four"), ("five.", "five.")):
        output.write_text(text)
        isolated.put_aside_if_long(output)
        aside = tmp_path / "output.log.1"
        assert (aside.read_text() if aside.exists() else None) == kept
        assert output.exists() == (kept is None)
    isolated.put_aside_if_long(output)
