"""`understudy group`: consumer groups of any Kafka cluster, as in kafka-consumer-groups.sh.

choosing     which groups are meant
positions    how far a group has read, and which members read
describing   tables and JSON of groups
reset        the new offsets of a group, and setting them
resetting    the command that does it
command      the other commands
"""
