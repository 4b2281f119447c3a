"""`understudy consume`: records of any Kafka cluster, by kafka-console-consumer's and kcat's flags.

places       what is read, from where        formats      a record as bytes or as JSON
filters      which records are wanted        reading      until when
command      what may be said
"""
