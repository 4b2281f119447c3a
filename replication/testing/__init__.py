"""A cluster to test against, from plain functions, threads, asyncio or trio alike.

    test, in whatever style          the cluster's own thread
      ThreadedCluster ── portal ──>  trio: open_cluster, over TCP on loopback
      any client      ── TCP ─────>  real brokers

    threaded    ThreadedCluster: start, kill, freeze, cut, wait; its last events; KafkaContainer
    faults      fault rules for requests, from outside
    portal      calls into its thread

    with ThreadedCluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=2)
        ...                                              # any client at cluster.bootstrap_servers
        leader = cluster.kill_leader("orders")
        cluster.until(lambda: cluster.leader("orders", 0) not in (None, leader))

The pytest plugin hands these out as fixtures (`understudy/pytest_plugin.py`).
"""

from replication.testing.threaded import KafkaContainer, ThreadedCluster

__all__ = ["KafkaContainer", "ThreadedCluster"]
