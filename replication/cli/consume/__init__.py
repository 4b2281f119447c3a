"""`understudy consume`: records of any Kafka cluster, with the flags of Kafka's consumer and kcat.

places       partitions and offsets          formats         a record as bytes or as JSON
filters      the choice of records           deserialisers   keys and values as more than bytes
reading      until the end                   command         the options
"""
