"""Many logs kept alike across brokers: Kafka's follower replication.

    rules      fetch_state  truncation  isr  leadership  election  fetch_session/  metadata/
    engine     leader_endpoint  fetcher  fetcher_manager  purgatory  partition  replica_manager/
    around it  wire/  net/  cluster/  verify/  observe/  cli/

The rules know no trio, sockets, clock or chance; the engine is trio tasks over the rules.
Start at `fetcher.py` for the follower, at `isr.py` for the leader, and at `cluster/` for
brokers that stock clients talk to:

    async with replication.open_cluster(brokers=3) as cluster:
        print(cluster.bootstrap_servers)
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replication.cluster.cluster import Cluster, open_cluster

__all__ = ["Cluster", "open_cluster"]


def __getattr__(name: str) -> Any:
    """`open_cluster` and `Cluster`, imported when first asked for: the rules need neither."""
    if name in __all__:
        from replication.cluster import cluster  # noqa: PLC0415

        return getattr(cluster, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
