"""The `understudy` command. The module of a command is imported only when it runs.

Starting three brokers takes a quarter of a second; importing what only `demo` or `pipeline` needs
would double that.
"""

from collections.abc import Sequence
from typing import Any

import click

from replication.cli.command_groups import LazyGroup
from replication.cli.endings import of_unix
from replication.cli.output import CommandError
from replication.errors import UnderstudyError
from storage.errors import StorageError

# name -> (module, its sentence in --help). The module's `command` is the click command.
COMMANDS = {
    "audit-headers": (
        "replication.cli.audit_headers",
        "Write a broker's batch headers as Parquet.",
    ),
    "broker": ("replication.cli.broker", "Run one broker or controller from server.properties."),
    "completion": (
        "replication.cli.completion",
        "Print the script that completes commands in your shell.",
    ),
    "consume": (
        "replication.cli.consume.command",
        "Write records to standard output, as text, in any form, or as JSON.",
    ),
    "demo": (
        "replication.cli.demo.command",
        "Kill a leader under load, and account for every record.",
    ),
    "dump-log": ("replication.cli.dump_log", "Show the contents and the damage of log files."),
    "follow": (
        "replication.cli.follow.command",
        "Keep an exact copy of topics of any Kafka cluster.",
    ),
    "group": (
        "replication.cli.groups.command",
        "List, describe, reset and delete consumer groups.",
    ),
    "pipeline": ("replication.cli.pipeline", "Run jobs on Spark over the files of brokers."),
    "produce": ("replication.cli.produce.command", "Send standard input as records."),
    "promote": (
        "replication.cli.follow.promote",
        "Turn a followed copy into a cluster of its own.",
    ),
    "scenario": ("replication.cli.scenario", "Run failover stories on virtual time."),
    "topic": ("replication.cli.topics.command", "Create, list, describe, alter and delete topics."),
    "top": (
        "replication.cli.top.command",
        "Show every partition live: leader, epoch, LEO, HW, lag, ISR and the reasons.",
    ),
    "up": ("replication.cli.up", "Run a cluster until interrupted."),
    "verify": (
        "replication.cli.verify",
        "Compare copies of logs; show where they diverge, and why.",
    ),
}


class Understudy(LazyGroup):
    """The group of all commands, each of which ends as a Unix tool does."""

    def invoke(self, ctx: click.Context) -> Any:
        with of_unix():
            try:
                return super().invoke(ctx)
            except BrokenPipeError:
                raise  # the reader is gone; `of_unix` ends the process
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
@click.version_option(package_name="understudy")
def group(global_servers: str | None) -> None:
    """Run, stop and explain Kafka's follower replication."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; an error ends it with one line on standard error and exit code 1."""
    group(arguments, prog_name="understudy")
