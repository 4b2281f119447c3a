"""`understudy produce`: standard input as records, by kafka-console-producer's and kcat's flags.

lines        a line as a record: headers, key, value        sending      until the input ends
command      what may be said
"""
