"""Reports from the brokers' event journals: in-sync replicas over time, lag, and failovers.

rows.py        the events of journal files as rows
source.py      these rows as a Spark data source
timeline.py    one partition's ISR over time, and its failovers
lag.py         the job: lag by quantile, time under-replicated
failover.py    the job: detected, fenced, elected, first write, ISR whole again, lost
"""
