"""`understudy pipeline`: jobs on Spark over the files of brokers.

audit.py      whether the replicas hold the same batches
export.py     topics as Parquet, Delta or Iceberg
journals.py   what each outage of a broker did; ISR and replication lag over time
jobs.py       where a job's answer goes, how far it is, and what spark-submit needs
submit.py     the entry point of spark-submit
"""

import click

from replication.cli import LazyGroup

# name -> (module, or module:command, its sentence in --help)
JOBS = {
    "audit": (
        "replication.cli.pipeline.audit",
        "Check that the replicas hold the same batches.",
    ),
    "bundle": ("replication.cli.pipeline.jobs:bundle", "Write the files that spark-submit needs."),
    "export": (
        "replication.cli.pipeline.export",
        "Export topics as Parquet, Delta or Iceberg, each record once.",
    ),
    "failover": (
        "replication.cli.pipeline.journals:failover",
        "Report what each outage of a broker did.",
    ),
    "lag": (
        "replication.cli.pipeline.journals:lag",
        "Report the ISR and replication lag over time.",
    ),
}


@click.group(name="pipeline", cls=LazyGroup, table=JOBS)
def command() -> None:
    """Run jobs on Spark over the files of brokers."""
