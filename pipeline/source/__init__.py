"""A Spark data source of Kafka's records, which reads brokers and log directories and writes topics.

    data_source            the class for Spark
    options  given  format_options         the options
    offsets                offsets as Spark writes them
    columns  filters       the columns and the records that are wanted
    reader  plan           from offsets to tasks
    stream  limited_stream the next offsets of a stream, and what counts as a loss
    directories  replica  files               logs in directories
    brokers  cluster                           logs at live brokers
    sink                   rows into topics
    errors

No jar: Spark's Python Data Source API, and Arrow record batches from `storage.batch.columns.columnar`.

Rule: nothing here uses a session. Readers are made in Spark's planner processes, and tasks run
on executors; both have this package and the options, and nothing else.
"""
