"""`understudy pipeline`: jobs on Spark over what the brokers have on disk.

bundle.py     what spark-submit needs: a zip, and submit.py, where it begins
audit.py      do the replicas hold the same batches?
export.py     topics as Parquet or Delta
failover.py   what each outage of a broker did
lag.py        ISR and replication lag over time
outputs.py    where a job's answer goes
progress.py   how far Spark is
"""

import click

from replication.cli.command_groups import LazyGroup

# name -> (module, one line for --help). The module's `command` is the click command.
JOBS = {
    "audit": ("replication.cli.pipeline.audit", "Do the replicas hold the same batches?"),
    "bundle": ("replication.cli.pipeline.bundle", "What spark-submit needs of this project."),
    "export": ("replication.cli.pipeline.export", "Topics as Parquet or Delta, each record once."),
    "failover": ("replication.cli.pipeline.failover", "What each outage of a broker did."),
    "lag": ("replication.cli.pipeline.lag", "ISR and replication lag over time."),
}


@click.group(name="pipeline", cls=LazyGroup, table=JOBS)
def command() -> None:
    """Jobs on Spark over what the brokers have on disk."""
