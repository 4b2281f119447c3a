"""`understudy topic`: topics of any Kafka cluster, in kafka-topics.sh's words.

choosing     which topics are meant        describing   Kafka's lines, and JSON
command      what may be said, and what is written
"""
