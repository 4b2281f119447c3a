"""Answers for people and for programs are written in one place."""

import io
import json
import sys
from pathlib import Path

import pytest

from replication.cli import progress as progress_module
from replication.cli.output import json_line, show_json, show_table
from replication.cli.progress import progress
from tests.cli.tree import LEAVES

CLI = Path(progress_module.__file__).parent
# What runs until it is stopped, writes a script or a log, or says what kafka-storage.sh says.
WITHOUT_OUTPUT = {
    *("broker", "completion", "pipeline bundle"),
    *("storage format", "storage info", "storage random-uuid"),
}


def test_one_place_writes() -> None:
    elsewhere = [
        str(path.relative_to(CLI))
        for path in CLI.rglob("*.py")
        if path.name != "output.py" and any(w in path.read_text() for w in ("click.echo", "print("))
    ]
    # They draw on a console of their own, for people alone.
    drawing = {"demo.py", "demo_run.py", "follow.py"}
    assert set(elsewhere) - drawing == set()


def test_every_command_that_answers_has_json() -> None:
    for name, command in LEAVES.items():
        options = {option for each in command.params for option in each.opts}
        assert ("--output" in options) == (name not in WITHOUT_OUTPUT), name


def test_a_table_in_a_pipe_is_as_wide_as_what_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("NAME", "LAG"), [("a-long-name", 5), ("b", None)])
    assert capsys.readouterr().out == "NAME         LAG\na-long-name  5\nb            -\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_table_on_a_terminal_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    show_table(("NAME", "LAG"), [("[bold]x", 5), ("b", 12)])
    drawn = terminal.getvalue()
    assert "[bold]x" in drawn  # a name is no markup
    assert "\x1b[1m" in drawn


def test_json_keeps_every_letter(capsys: pytest.CaptureFixture[str]) -> None:
    show_json([{"topic": "größe"}])
    assert json.loads(capsys.readouterr().out) == [{"topic": "größe"}]
    assert json_line({"a": "ö"}) == '{"a":"ö"}'


def test_a_bar_is_shown_on_a_terminal_after_a_second_and_in_no_pipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setenv("TERM", "xterm")
    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        now[0] = 0.0
        with progress("records", now=lambda: now[0]) as bar:
            bar.update(1, 10)
            assert stream.getvalue() == ""
            now[0] = 2.0
            bar.update(5, 10)
            bar.say("of [t-0]")
        assert ("5/10" in stream.getvalue()) == shown


def test_there_is_no_bar_beside_an_answer_on_the_same_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(sys, "stdout", Terminal())
    with progress("bytes", beside_output=True) as bar:
        assert not bar.is_seen
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with progress("bytes", beside_output=True) as bar:
        assert bar.is_seen
