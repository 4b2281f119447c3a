"""Values in the Confluent wire format as Arrow columns: Avro, Protobuf and JSON Schema.

    schemas.py      schemas by their ids, from a registry or from a directory
    shapes.py       Arrow types, and how the values of a library become values that Arrow takes
    avro.py  protobuf.py  json_schema.py      one format each
    decoding.py     the keys or values of record batches as columns

Rule 1: the reader's schema is fixed when a read is planned. What was written with another schema
is resolved to it as its format does: Avro by its schema resolution, Protobuf by the numbers of
fields, JSON by names.

Rule 2: a value that cannot be read never ends a query. Its bytes are kept, with the reason beside
them.

Rule 3: what has no Arrow type becomes JSON text: a union of several types, a type that holds
itself, and a JSON Schema that leaves the type open.
"""
