"""Reports from the brokers' event journals: in-sync replicas over time, lag, and failovers.

rows.py        the events of journal files as rows
source.py      these rows as a Spark data source
timeline.py    one partition's ISR over time, and its failovers
lag.py         the job: lag by quantile, time under-replicated
metadata_log.py  the metadata log as such rows: the journal of controllers of any kind
changes.py     one partition's elections and truncations, each with its cause
outages.py     outages with their effects: the verdict, and what a report shows of many
failover.py    the job: detected, fenced, elected, first write, ISR whole again, lost
"""
