"""`understudy produce`: standard input as records, with the flags of Kafka's producer and kcat.

lines        a line as a record: headers, key, value        sending      until the input ends
command      the options
"""
