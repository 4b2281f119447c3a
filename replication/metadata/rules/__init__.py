"""The metadata of the cluster: records in a log, and the image that they add up to.

    controller     appends records to __cluster_metadata-0, syncs them, applies them
    brokers        fetch that log and apply the same records in the same order

Rule 1: a record holds a change, never its cause; an image is a value and never changes.

Rule 2: two nodes that have applied the log up to one offset hold equal images.

Rule 3: a record that this version does not know stops the reader, with its name. Skipping it
would break rule 2 in silence.

    records.py   the records' batches; they are Kafka's (wire/metadata_records.py)
    levels.py    which version of a record each level of metadata.version writes
    image.py     the image, batches applied to it, and the difference of two images
    security_image.py    its credentials and ACLs
    snapshot.py  an image as bytes, for a log that no longer begins at 0
"""
