"""A Kafka client for trio, in the parts that readers of Kafka's client know.

    config  errors  arguments   Kafka's keys and errors; checks of what programs pass
    requests  connection        a request, and one connection to a broker
    blocking                    a connection for threads without trio
    network_client              all connections: versions, back-off, time limits
    cluster_view  metadata      brokers, topics and leaders, and the task that refreshes them
    coordinators                the coordinators of groups and transactional ids
    offsets                     committed offsets, in requests and responses
    producer/                   records are batched, sent once, and acked or given up
    admin/                      topics, partitions, configurations, brokers, groups
    consumer/                   records are fetched ahead, handed over in order, and committed

Everything that differs between two runs comes in through `replication.net.seams`, so a client runs
over TCP and in the simulator alike, without asyncio.
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
    """Import a class when it is first used: a consumer needs no producer."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
