"""The audit of replicas by their batch headers: do they hold the same batches?

replicas.py        which replicas and segments there are; tasks of an even size
headers.py         the headers of a segment, and as rows
folding.py         what the batches of a replica add up to
folded_rows.py     the same sums, made by Spark from rows that are a table
surveying.py       which partitions are alike by their replicas' sums
batches.py         the rows as a Spark data source
header_stream.py   a copy of a partition, and a cursor over its rows
judging.py         what the rows of one partition's replicas say
job.py             the survey of everything, then the judgement of what is not alike
results.py         what is said of each partition, as values and as JSON
"""
