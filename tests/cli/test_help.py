"""`--help` of every command and group, as a person reads it."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from replication.cli import group


def pages(command: click.Command = group, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the words of each command that has a help page, those of groups included."""
    yield " ".join(words)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None, name
            yield from pages(found, (*words, name))


def help_of(words: str) -> str:
    done = CliRunner().invoke(group, [*words.split(), "--help"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("words", list(pages()))
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


def options() -> Iterator[tuple[str, click.Option]]:
    for words in pages():
        command: click.Command = group
        for word in words.split():
            assert isinstance(command, click.Group)
            found = command.get_command(click.Context(command), word)
            assert found is not None
            command = found
        for each in command.params:
            if isinstance(each, click.Option):
                yield f"{words} {each.opts[-1]}", each


@pytest.mark.parametrize("option", [pytest.param(each, id=name) for name, each in options()])
def test_every_option_has_a_help_text(option: click.Option) -> None:
    assert option.help, "no help"
    assert not option.help.startswith(("The same", "Of "))
