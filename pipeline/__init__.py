"""Spark reads what the cluster has written, through PySpark and no jar.

    session.py    a Spark session with what the sources need, or the user's own
    batches.py    a data source: one row for each record batch in log directories
    audit.py      do the replicas hold the same batches? a job over those rows

Jobs are functions from DataFrame to DataFrame: they run under `understudy pipeline`,
under spark-submit, and in a notebook alike.
"""
