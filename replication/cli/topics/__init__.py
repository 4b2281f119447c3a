"""`understudy topic`: topics of any Kafka cluster, with the flags of kafka-topics.sh.

choosing     which topics are meant        describing   Kafka's lines, and JSON
command      the commands
"""
