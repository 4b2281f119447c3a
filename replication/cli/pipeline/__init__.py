"""`understudy pipeline`: jobs on Spark over the files of brokers.

bundle.py     what spark-submit needs: a zip, and submit.py, its entry point
audit.py      whether the replicas hold the same batches
export.py     topics as Parquet or Delta
failover.py   what each outage of a broker did
lag.py        ISR and replication lag over time
jobs.py       where a job's answer goes, and how far it is
"""

import click

from replication.cli.command_groups import LazyGroup

# name -> (module, one line for --help). The module's `command` is the click command.
JOBS = {
    "audit": ("replication.cli.pipeline.audit", "Check that the replicas hold the same batches."),
    "bundle": ("replication.cli.pipeline.bundle", "Write the files that spark-submit needs."),
    "export": (
        "replication.cli.pipeline.export",
        "Export topics as Parquet or Delta, each record once.",
    ),
    "failover": ("replication.cli.pipeline.failover", "Report what each outage of a broker did."),
    "lag": ("replication.cli.pipeline.lag", "Report the ISR and replication lag over time."),
}


@click.group(name="pipeline", cls=LazyGroup, table=JOBS)
def command() -> None:
    """Run jobs on Spark over the files of brokers."""
