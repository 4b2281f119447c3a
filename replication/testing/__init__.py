"""A cluster to test against, from plain functions, threads, asyncio or trio alike.

    test, in whatever style          the cluster's own thread
      ThreadedCluster ── portal ──>  trio: open_cluster, over TCP on loopback
      any client      ── TCP ─────>  real brokers

    threaded    ThreadedCluster: start, kill, freeze, cut, wait     portal   calls into its thread
    faults      fault rules for requests, from outside              trace    its last events
    container   the interface of testcontainers' KafkaContainer

    with ThreadedCluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=2)
        ...                                              # any client at cluster.bootstrap_servers
        leader = cluster.leader("orders", 0)
        cluster.kill_broker(leader)
        cluster.until(lambda: cluster.leader("orders", 0) not in (None, leader))

The pytest plugin hands these out as fixtures (`replication/pytest_plugin.py`).
"""

from replication.testing.container import KafkaContainer
from replication.testing.threaded import ThreadedCluster

__all__ = ["KafkaContainer", "ThreadedCluster"]
