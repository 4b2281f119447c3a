"""The group coordinator of a broker: the tasks around the rules in `replication/groups/rules`.

metadata ─> GroupCoordinator ─ leads __consumer_offsets-7 at epoch 3 ─> GroupShard
               │ requests, timers                                        │ groups
               │                                                         └ CoordinatorLog

coordinator     answers requests with the groups of the partitions that this broker leads
shard           the groups of one partition, and their deadlines
commits         offset commits, in and out of transactions
forgetting      expiry and deletion of offsets and groups
administration  describing, listing and deleting groups
"""
