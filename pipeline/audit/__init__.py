"""The audit of replicas by their batch headers: do they hold the same batches?

replicas.py        the replicas and segments that there are; tasks of an even size
headers.py         the headers of a segment, and as rows
folding.py         the sums of a replica's batches
surveying.py       the partitions that are alike by their replicas' sums
batches.py         the rows as a Spark data source
header_stream.py   a copy of a partition, and a cursor over its rows
commits.py         which commits of groups are beyond a truncation
groups.py          the commits, leader epochs and truncations, read by Spark
judging.py         the judgement of one partition by its replicas' rows, and by files in depth
growing.py         the rows as a stream, as logs grow
streaming.py       the audit as a stream
parquet.py         the rows as Parquet files, written without Spark
job.py             the survey of everything, then the judgement of what is not alike
results.py         the result of each partition, as values and as JSON
"""
