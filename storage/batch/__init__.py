"""Record batches: the format of Kafka's log (magic 2), read and written as bytes.

    record_batch   the 61 bytes of a batch's header, its CRC-32C, and the walk from batch to batch
    records        the records in a batch; plain_records is the short path of most
    sound_records  whether records are sound, for a leader that does not take them apart
    varint, compression   the codings that a batch is made of
    batch_stream   batches read from a file, one after the other
    columns/       the same records as Arrow columns

Source: the file format page of Apache Kafka, and DefaultRecordBatch.
"""
