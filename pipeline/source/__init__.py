"""A Spark data source of Kafka's records: live brokers' and log directories', read and written.

    data_source            the class that Spark is shown
    options  offsets       what it was told, and offsets as Spark writes them
    columns  filters       what of a record is wanted, and which records
    reader  plan           from offsets to tasks
    stream  limited_stream what comes next in a stream, and what may not happen on the way
    directories  replica  segments  files     logs in directories
    brokers  cluster  link                     logs at live brokers
    sink                   rows into topics
    settings  errors

No jar: Spark's Python Data Source API, and Arrow record batches from `storage.batch.columns.columnar`.

Rule: a session is asked nothing and told nothing here. Readers are made in Spark's planner
processes, and tasks run on executors; both have this package and the options, no more.
"""
