"""A trio-native Kafka client, after the parts that readers of Kafka's know.

    config  errors              Kafka's keys and Kafka's errors
    backoff                     how long to wait before the next attempt
    connection  requests        one connection, and what is asked over it
    network_client  nodes       all connections: versions, back-off, time limits
    cluster_view  metadata      who leads what, and keeping that fresh
    coordinators  retries       who looks after a group or a transactional id; asking again
    offsets  log                what is committed; what the human log is told
    producer/                   records are batched, sent once, and acked or given up
    admin/                      topics, partitions, configurations, brokers, groups
    consumer/                   records are fetched ahead, handed over in order, and committed

Everything that differs between two runs comes in through `replication.net.seams`, so a
client runs over TCP and in the simulator alike. asyncio is nowhere.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replication.client.admin import Admin
    from replication.client.config import ClientConfig
    from replication.client.consumer import Consumer
    from replication.client.producer import Producer

__all__ = ["Admin", "ClientConfig", "Consumer", "Producer"]

_MODULES = {
    "Admin": "admin",
    "ClientConfig": "config",
    "Consumer": "consumer",
    "Producer": "producer",
}


def __getattr__(name: str) -> Any:
    """Imported when first asked for: a consumer needs no producer."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
