"""The parts that both coordinators have: a log that is written in order, and shards.

log       one partition of a coordinator's topic: read at first, then written, batch by batch
shards    the state of each partition that this broker leads, for one leader epoch
rules     the topics, and the partition of a key
"""
