"""The group coordinator: the tasks around replication/groups, on every broker.

metadata ─> GroupCoordinator ─ leads __consumer_offsets-7 at epoch 3 ─> Shard(7, 3)
               │ requests, timers                                        │ groups
               │                                                         └ LogWriter ─> log
offsets_topic.py   that topic, made when it is first asked for
loading.py         from the log to the groups, when a reign begins
shard.py           one partition's groups
coordinator.py     who is asked
forgetting.py      offsets and groups that nobody needs any more
"""

from replication.cluster.groups.coordinator import GroupCoordinator

__all__ = ["GroupCoordinator"]
