"""Kafka's follower replication: many logs kept alike across brokers.

    follower/  leader/  controller/  metadata/  groups/  transactions/    rules and tasks
    replica_manager/  server/  broker/  cluster/                          a broker, a cluster
    wire/  net/  client/  mirror/  verify/  observe/  cli/                around them

The rules (in `rules/`) use no trio, sockets, clock or chance; the tasks carry them out. Start at
`follower/fetcher.py` for the follower, at `leader/rules/isr.py` for the leader, and at `cluster/` for
brokers that stock clients can use:

    async with replication.open_cluster(brokers=3) as cluster:
        print(cluster.bootstrap_servers)
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replication.cluster.cluster import Cluster, open_cluster

__all__ = ["Cluster", "open_cluster"]

__version__ = "0.1.0"

_UMBRELLA = __name__.removesuffix("replication")  # "" or "understudy."


def own_module(name: str) -> ModuleType:
    """Import one of understudy's modules by its name, such as `pipeline.session`.

    Another package may have that name: `understudy/own_modules.py`.
    """
    return importlib.import_module(_UMBRELLA + name)


def __getattr__(name: str) -> Any:
    """Import `open_cluster` and `Cluster` on first use, because the rules need neither."""
    if name in ("Cluster", "open_cluster"):
        from replication.cluster import cluster  # noqa: PLC0415

        return getattr(cluster, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
