"""Every command with impossible input: one clear line, exit code 1 or 2, no traceback."""

import socket
from pathlib import Path

import click
import pytest

from replication.cli import main
from replication.cli.connection import ClusterConnection
from replication.cli.output import CommandError
from tests.cli.tree import LEAVES

NOBODY = "127.0.0.1:1"
# The least arguments of each command that asks brokers; no broker is there.
ASKING = {
    "consume": "t",
    "follow": "--topic t --to COPY --until-caught-up -X nothing",
    "group delete": "g --execute",
    "group describe": "g",
    "group list": "",
    "group delete-offsets": "g --topic t",
    "group reset-offsets": "g --all-topics --to-latest",
    "produce": "t",
    "topic alter": "t --partitions 2",
    "topic create": "t",
    "topic delete": "t",
    "topic describe": "t",
    "topic list": "",
    "top": "--once",
    "verify": "",
}
# Arguments of the commands that read files or run something: the file is missing, or bad.
WITHOUT_BROKERS = {
    "audit-headers": "/nowhere --name a --to /nowhere",
    "broker": "--config /nowhere/server.properties",
    "completion": "tcsh",
    "demo": "--input /nowhere",
    "dump-log": "",
    "pipeline audit": "/nowhere",
    "pipeline bundle": "/dev/null/nowhere",
    "pipeline export": "/nowhere --to /nowhere",
    "pipeline failover": "/nowhere",
    "pipeline lag": "/nowhere",
    "promote": "/nowhere",
    "proxy": "--upstream nowhere",
    "scenario list": "--output yaml",
    "scenario museum": "KIP-102",
    "scenario replay": "",
    "scenario run": "there-is-no-such-story",
    "scenario swarm": "--seeds 0",
    "storage format": "--config /nowhere/server.properties --cluster-id c",
    "storage info": "--config /nowhere/server.properties",
    "storage random-uuid": "more",
    "up": "--any-port --base-port 9092",
}


def ending(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """Return the exit code and standard error of a command; nothing else may be raised."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    said = capsys.readouterr()
    assert said.out == ""
    assert "Traceback" not in said.err
    assert isinstance(ended.value.code, int)
    return ended.value.code, said.err.splitlines()


def test_every_command_is_here() -> None:
    assert ASKING.keys() | WITHOUT_BROKERS.keys() >= LEAVES.keys()


@pytest.mark.parametrize("name", LEAVES)
def test_an_unknown_flag_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = ending([*name.split(), "--no-such-flag"], capsys)
    assert code == 2
    assert said[0].startswith("Usage: understudy ")
    assert said[-1].startswith("Error: No such option")


@pytest.mark.parametrize("name", sorted(ASKING.keys() & LEAVES.keys()))
def test_a_cluster_that_does_not_answer_is_named(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    answer = ASKING[name].replace("COPY", str(tmp_path / "copy")).split()
    options = {option for each in LEAVES[name].params for option in each.opts}
    patience = ["--timeout", "60"] if "--timeout" in options else []
    code, said = ending(["-b", NOBODY, *name.split(), *answer, *patience], capsys)
    assert code in {1, 2}
    last = said[-1]
    assert last.startswith(("understudy: ", "Error: "))
    if patience:
        assert code == (2 if name == "verify" else 1)
        assert len(said) == 1
        assert NOBODY in last


@pytest.mark.parametrize("name", sorted(WITHOUT_BROKERS.keys() & LEAVES.keys()))
def test_an_impossible_argument_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = ending([*name.split(), *WITHOUT_BROKERS[name].split()], capsys)
    assert code in {1, 2}
    assert said[-1].startswith(("understudy: ", "Error: "))


def test_an_impossible_session_timeout_is_refused_although_a_broker_was_killed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = tmp_path / "broker-1" / "log"
    log.mkdir(parents=True)
    (log / "meta.properties").touch()
    answer = ["--any-port", "--data-dir", f"{tmp_path}", "-X", "broker.session.timeout.ms=abc"]
    code, said = ending(["up", *answer], capsys)
    assert code == 1
    assert said[0].startswith("understudy: broker.session.timeout.ms=abc: expected a whole number")


def test_every_command_for_a_cluster_takes_the_same_addresses() -> None:
    """They take `-b` and `--timeout`, except two that have a time of their own, and `promote`."""
    for name, command in LEAVES.items():
        options = {option for each in command.params for option in each.opts}
        if "--bootstrap-server" in options:
            assert "-b" in options, name
            assert "--timeout" in options or name in {"follow", "promote", "verify"}, name
        assert isinstance(command, click.Command)


def test_nobody_who_listens_is_said_at_once() -> None:
    """The time limit of the command is longer than that of the test."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        server = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(CommandError, match=f"{server}: connection refused: no broker listens"):
            ClusterConnection(server, timeout_ms=3_600_000).ask(lambda admin: admin.list_topics())


@pytest.mark.parametrize("line", ["top -b", "top orders -b", "verify", "topic list -b"])
def test_a_command_says_so_too(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{bound.getsockname()[1]}"
        given = [server, server] if line == "verify" else [server]
        with pytest.raises(SystemExit) as ended:
            main([*line.split(), *given, "--timeout", "3600000"])
    assert ended.value.code == (2 if line == "verify" else 1)
    said = capsys.readouterr().err
    assert said.endswith(f"{server}: connection refused: no broker listens there\n")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("given", "suggested"),
    [("topc", "topic or top"), ("topic lst", "list"), ("pipeline audt", "audit")],
)
def test_a_mistyped_command_gets_a_suggestion(
    given: str, suggested: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(given.split())
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"; did you mean {suggested}?\n")
