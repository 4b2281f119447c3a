"""The `understudy` command. The module of a command is imported only when it runs.

Starting three brokers takes a quarter of a second; importing what only `demo` or `pipeline` needs
would double that.

A command that is interrupted ends like other Unix tools:

    | head -1                the reader is gone: SIGPIPE, without a message
    Ctrl-C                   SIGINT, without a message
    >/dev/full, >&-          one line, and exit code 1

The signal tells a shell that its loop or pipeline was interrupted; an exit code would hide that.
"""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, NoReturn

import click

from replication import __version__, own_module
from replication.cli.output import CommandError
from replication.errors import UnderstudyError
from storage.errors import StorageError

# name -> (module, its sentence in --help). The module's `command` is the click command.
COMMANDS = {
    "audit-headers": (
        "replication.cli.audit_headers",
        "Write a broker's batch headers as Parquet.",
    ),
    "broker": (
        "replication.cli.broker",
        "Run a broker, a controller, or both, from server.properties.",
    ),
    "completion": (
        "replication.cli.completion",
        "Print the script that completes commands in your shell.",
    ),
    "consume": (
        "replication.cli.consume",
        "Write records to standard output, as text, in any form, or as JSON.",
    ),
    "demo": (
        "replication.cli.demo",
        "Kill a leader under load, and account for every record.",
    ),
    "dump-log": (
        "replication.cli.dump_log",
        "Show the contents and the damage of log files.",
    ),
    "follow": (
        "replication.cli.follow",
        "Keep an exact copy of topics of any Kafka cluster.",
    ),
    "group": (
        "replication.cli.groups",
        "List, describe, reset and delete consumer groups.",
    ),
    "pipeline": (
        "replication.cli.pipeline",
        "Run jobs on Spark over the files of brokers.",
    ),
    "produce": ("replication.cli.produce", "Send standard input as records."),
    "promote": (
        "replication.cli.promote",
        "Turn a followed copy into a cluster of its own.",
    ),
    "proxy": (
        "replication.cli.proxy",
        "Put fault rules in front of any Kafka, until interrupted.",
    ),
    "scenario": ("replication.cli.scenario", "Run failover stories on virtual time."),
    "storage": (
        "replication.cli.storage",
        "Format the directories of a node, or show what they say.",
    ),
    "topic": ("replication.cli.topics", "Create, list, describe, alter and delete topics."),
    "top": (
        "replication.cli.top",
        "Show every partition live: leader, epoch, LEO, HW, lag, ISR and the reasons.",
    ),
    "up": ("replication.cli.up", "Run a cluster until interrupted."),
    "verify": (
        "replication.cli.verify",
        "Compare copies of logs; show where they diverge, and why.",
    ),
}


class CommandGroup(click.Group):
    """A group whose --help shows the whole first sentence of each command, which click shortens."""

    def sentences(self, ctx: click.Context) -> list[tuple[str, str]]:
        """Return the name of each command and its sentence."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        return [(name, each.get_short_help_str(limit=200)) for name, each in found if each]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first argument names; suggest one if none has that name."""
        name = args[0]
        known = ctx.resilient_parsing or name.startswith("-") or self.get_command(ctx, name)
        if not known:
            near = get_close_matches(name, self.list_commands(ctx))
            suggested = f"; did you mean {' or '.join(near)}?" if near else ""
            ctx.fail(f"No such command '{name}'{suggested}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(self.sentences(ctx))


class LazyGroup(CommandGroup):
    """A group that imports only the command that runs.

    `table` has the module and the sentence of each command. The command is the module's `command`,
    or another name in it, as `module:name`.
    """

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self._table:
            return None
        module, _, name = self._table[cmd_name][0].partition(":")
        command = getattr(own_module(module), name or "command")
        assert isinstance(command, click.Command), f"{cmd_name} names a click command"
        return command

    def sentences(self, ctx: click.Context) -> list[tuple[str, str]]:  # noqa: ARG002
        return [(name, text) for name, (_, text) in sorted(self._table.items())]


def end_by_signal(number: int) -> NoReturn:
    """End the process by a signal, as if the signal had no handler."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    raise AssertionError("that signal ends a process")


@contextmanager
def like_unix_tools() -> Iterator[None]:
    """End the process by SIGPIPE when its reader is gone, and by SIGINT on Ctrl-C."""
    try:
        yield
    except BrokenPipeError:
        end_by_signal(signal.SIGPIPE)
    except KeyboardInterrupt:
        end_by_signal(signal.SIGINT)


class Understudy(LazyGroup):
    """The group of all commands, each of which ends as a Unix tool does."""

    def invoke(self, ctx: click.Context) -> Any:
        with like_unix_tools():
            try:
                return super().invoke(ctx)
            except BrokenPipeError:
                raise  # the reader is gone; `like_unix_tools` ends the process
            except (UnderstudyError, StorageError, OSError) as error:
                raise CommandError(str(error)) from error


@click.group(cls=Understudy, table=COMMANDS)
@click.option(
    "-b",
    "--bootstrap-server",
    "global_servers",
    metavar="HOST:PORT,...",
    envvar="UNDERSTUDY_BOOTSTRAP_SERVER",
    help="Brokers to ask first, for every command that talks to a cluster.",
)
@click.version_option(__version__)
def group(global_servers: str | None) -> None:
    """Run, stop and explain Kafka's follower replication."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; an error ends it with one line on standard error and exit code 1."""
    group(arguments, prog_name="understudy")
