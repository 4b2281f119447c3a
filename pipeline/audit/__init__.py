"""Do the replicas of every partition hold the same batches, as their headers tell?

replicas.py        which replicas and segments there are; tasks of an even size
headers.py         the headers of a segment as rows
batches.py         both as Spark data sources
header_stream.py   a copy's batches, from such rows
judging.py         what the rows of one partition's replicas say
job.py             the survey of everything, then the judgement of what is not alike
results.py         what is said of each partition, as values and as JSON
"""
