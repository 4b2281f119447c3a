"""Topics as Parquet files, a Delta table or an Iceberg table, by topic and date, each record once.

deserialisers.py   keys and values as more than bytes
writing.py         in a worker: a task's records as Parquet files
source.py          those tasks as a Spark data source
target.py          where a run begins, and what makes it count
parquet.py         a directory of Parquet files
delta.py           a Delta table
iceberg.py         an Iceberg table
job.py             one run
"""
