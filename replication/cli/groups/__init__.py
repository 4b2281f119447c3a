"""`understudy group`: consumer groups of any Kafka cluster, in kafka-consumer-groups.sh's words.

positions    how far a group has read, and who reads
reset        where it would be put, and putting it there
command      what stands on the screen
"""
