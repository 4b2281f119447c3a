"""The `understudy` command. A command's module is imported when it runs, not before.

Starting three brokers takes a quarter of a second; importing what only `demo` or
`pipeline` needs would double that.
"""

from collections.abc import Sequence
from typing import Any

import click

from replication.cli.command_groups import LazyGroup
from replication.cli.endings import of_unix
from replication.cli.output import CommandError
from replication.errors import UnderstudyError
from storage.errors import StorageError

# name -> (module, one line for --help). The module's `command` is the click command.
COMMANDS = {
    "audit-headers": ("replication.cli.audit_headers", "A broker's batch headers, as Parquet."),
    "broker": ("replication.cli.broker", "Run one broker or controller from server.properties."),
    "completion": ("replication.cli.completion", "The script for completion in your shell."),
    "consume": (
        "replication.cli.consume.command",
        "Records to standard output, as text, in any form, or as JSON.",
    ),
    "demo": ("replication.cli.demo.command", "Kill a leader under load; account for every record."),
    "dump-log": ("replication.cli.dump_log", "What stands in a log's files, and what is wrong."),
    "follow": (
        "replication.cli.follow.command",
        "An exact copy of topics of any Kafka cluster.",
    ),
    "group": (
        "replication.cli.groups.command",
        "Consumer groups: how far they are, and who reads.",
    ),
    "pipeline": ("replication.cli.pipeline", "Jobs on Spark over what brokers have on disk."),
    "produce": ("replication.cli.produce.command", "Standard input as records."),
    "promote": (
        "replication.cli.follow.promote",
        "A followed copy becomes a cluster of its own.",
    ),
    "scenario": ("replication.cli.scenario", "Failover stories, on virtual time."),
    "topic": ("replication.cli.topics.command", "Topics: make, list, describe, alter, delete."),
    "top": (
        "replication.cli.top.command",
        "Every partition, live: leader, epoch, LEO, HW, lag, ISR and why.",
    ),
    "up": ("replication.cli.up", "Run a cluster until interrupted."),
    "verify": ("replication.cli.verify", "Are copies the same? If not, where they part, and why."),
}


class Understudy(LazyGroup):
    """The commands, each of which ends as a Unix tool does."""

    def invoke(self, ctx: click.Context) -> Any:
        with of_unix():
            try:
                return super().invoke(ctx)
            except BrokenPipeError:
                raise  # nobody reads on, and nobody is told
            except (UnderstudyError, StorageError, OSError) as error:
                raise CommandError(str(error)) from error


@click.group(cls=Understudy, table=COMMANDS)
@click.option(
    "-b",
    "--bootstrap-server",
    "global_servers",
    metavar="HOST:PORT,...",
    envvar="UNDERSTUDY_BOOTSTRAP_SERVER",
    help="Brokers to ask first, for every command that asks some.",
)
@click.version_option(package_name="understudy")
def group(global_servers: str | None) -> None:
    """Kafka's follower replication, to run, stop and explain."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; a failing world ends it with one clear line and exit code 1."""
    group(arguments, prog_name="understudy")
