"""The group coordinator of a broker: the tasks around the rules in `replication/groups/rules`.

metadata ─> GroupCoordinator ─ leads __consumer_offsets-7 at epoch 3 ─> Shard(7, 3)
               │ requests, timers                                        │ groups
               │                                                         └ LogWriter ─> log

coordinator     answers requests with the groups of the partitions that this broker leads
shard           the groups of one partition
loading         builds the groups from the log when a leader epoch begins
offsets_topic   creates `__consumer_offsets` when it is first needed
commits         offset commits; forgetting expires them
"""
