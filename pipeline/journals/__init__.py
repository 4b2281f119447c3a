"""What the brokers' event journals tell: in-sync replicas over time, lag, and failovers.

rows.py        the events of journal files as rows
source.py      them as a Spark data source
timeline.py    one partition's ISR over time; what a failover did to it
lag.py         the job: lag by quantile, time under-replicated
failover.py    the job: detected, fenced, elected, first write, ISR whole again, lost
"""
