"""Completion: the script for each shell, and the names that Tab offers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from replication.cli import group
from replication.cli.completion import COMMAND, SHELLS, VARIABLE
from replication.testing import ThreadedCluster
from tests.cli.commands import Command


def found(*words: str) -> list[str]:
    """Return what click suggests for the last word."""
    *before, incomplete = words
    completions = ShellComplete(group, {}, COMMAND, VARIABLE).get_completions(before, incomplete)
    return [each.value for each in completions]


def test_commands_and_flags() -> None:
    assert found("to") == ["top", "topic"]
    assert found("topic", "de") == ["delete", "describe"]
    assert "--replica-assignment" in found("topic", "create", "--rep")
    assert found("consume", "t", "--isolation-level", "read_c") == ["read_committed"]
    assert found("topic", "list", "--output", "") == ["table", "json"]


def test_topics_and_groups_come_from_the_cluster_of_the_command_line(
    brokers: ThreadedCluster, understudy: Command
) -> None:
    for name in ("tab-a", "tab-b"):
        brokers.create_topic(name)
    whom = ["-b", brokers.bootstrap_servers]
    assert found(*whom, "topic", "describe", "tab-") == ["tab-a", "tab-b"]
    assert found("topic", "delete", *whom, "--topic", "tab-b") == ["tab-b"]
    for command in ("consume", "produce"):
        assert found(command, *whom, "-t", "tab-a") == ["tab-a"]
    moved = ["group", "reset-offsets", "tab-readers", "--topic", "tab-a", "--to-latest"]
    understudy(*moved, "--execute")
    assert found(*whom, "group", "describe", "tab-") == ["tab-readers"]


def test_a_completion_without_a_cluster_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    assert found("-b", "127.0.0.1:1", "topic", "describe", "") == []
    assert capsys.readouterr().err == ""


def test_stories() -> None:
    assert found("scenario", "run", "twenty-elections-a") == ["twenty-elections-and-one-producer"]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_names_the_command(shell: str) -> None:
    done = CliRunner().invoke(group, ["completion", shell])
    assert done.exit_code == 0
    assert f"{VARIABLE}={shell}_complete" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_in_a_real_bash(tmp_path: Path) -> None:
    command = tmp_path / "understudy"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m replication.cli "$@"\n')
    command.chmod(0o755)
    script = """
        source <(understudy completion bash)
        complete -p understudy
        COMP_WORDS=(understudy topic de) COMP_CWORD=2
        _understudy_completion understudy
        echo "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    registered, offered = done.stdout.splitlines()
    assert registered.endswith(" _understudy_completion understudy")
    assert offered == "delete describe"
