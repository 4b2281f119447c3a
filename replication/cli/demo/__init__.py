"""`understudy demo`: kill a leader under load, and account for every record.

ledger.py     what became of each record
workload.py   a stock client that produces the records and reads them back
timeline.py   the failover as the nodes saw it
run.py        the order of events, and the progress
report.py     the result
"""
