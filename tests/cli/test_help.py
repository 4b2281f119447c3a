"""`--help` of every command and group, and the page that is made from it."""

import click
import pytest
from click.testing import CliRunner

from replication.cli import group
from tests.cli.page import PAGE, whole
from tests.cli.tree import COMMANDS

OPTIONS = [
    pytest.param(each, id=f"{words} {each.opts[-1]}")
    for words, command in COMMANDS.items()
    for each in command.params
    if isinstance(each, click.Option)
]


def help_of(words: str) -> str:
    done = CliRunner().invoke(group, [*words.split(), "--help"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("words", COMMANDS)
def test_a_help_page_is_whole(words: str) -> None:
    text = help_of(words)
    assert "\\" not in text.replace(r"%s\n'", ""), "an escape that was not read"
    assert all(line.isprintable() for line in text.splitlines())
    _, _, commands = text.partition("\nCommands:\n")
    assert "..." not in commands, "a sentence that was cut off"


def test_completion_shows_a_line_for_each_shell() -> None:
    lines = [line.split() for line in help_of("completion").splitlines()]
    assert ["bash", "source", "<(understudy", "completion", "bash)", "in", "~/.bashrc"] in lines
    assert ["zsh", "source", "<(understudy", "completion", "zsh)", "in", "~/.zshrc"] in lines
    fish = ["fish", "understudy", "completion", "fish", "|", "source", "in", "config.fish"]
    assert fish in lines


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_has_a_help_text(option: click.Option) -> None:
    assert option.help, "no help"
    assert not option.help.startswith(("The same", "Of "))


def test_the_page_has_every_command_and_flag() -> None:
    answer = PAGE.read_text(encoding="utf-8")
    assert answer == whole(), "python -m tests.cli.page writes it anew"
