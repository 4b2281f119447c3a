"""`understudy pipeline`: jobs on Spark over what the brokers have on disk.

bundle.py     what spark-submit needs: a zip, and submit.py, where it begins
audit.py      do the replicas hold the same batches?
export.py     topics as Parquet or Delta
failover.py   what each outage of a broker did
lag.py        ISR and replication lag over time
outputs.py    where a job's answer goes
progress.py   how far Spark is
"""

import importlib

import click

# name -> (module, one line for --help). The module's `command` is the click command.
JOBS = {
    "audit": ("replication.cli.pipeline.audit", "Do the replicas hold the same batches?"),
    "bundle": ("replication.cli.pipeline.bundle", "What spark-submit needs of this project."),
    "export": ("replication.cli.pipeline.export", "Topics as Parquet or Delta, each record once."),
    "failover": ("replication.cli.pipeline.failover", "What each outage of a broker did."),
    "lag": ("replication.cli.pipeline.lag", "ISR and replication lag over time."),
}


class Jobs(click.Group):
    """Finds jobs in `JOBS`, and imports only the one that is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in JOBS:
            return None
        command = importlib.import_module(JOBS[cmd_name][0]).command
        assert isinstance(command, click.Command), f"{cmd_name} names a click command"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in sorted(JOBS.items())])


@click.group(name="pipeline", cls=Jobs)
def command() -> None:
    """Jobs on Spark over what the brokers have on disk."""
