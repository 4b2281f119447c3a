"""Spark reads what the cluster has written, through PySpark and no jar.

    session.py    a Spark session with what the sources need, or the user's own
    audit/        do the replicas hold the same batches? from their headers

Jobs are functions over DataFrames: they run under `understudy pipeline`,
under spark-submit, and in a notebook alike.
"""
