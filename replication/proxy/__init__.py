"""A proxy between clients and any Kafka, which applies fault rules to what passes.

    client ── listener of broker 1 ── Relay ── broker 1          one Relay for each connection
    client ── listener of broker 2 ── Relay ── broker 2

    rules/      addresses: which responses name brokers;  sessions: the partitions of fetch sessions
    relay       one connection of a client, and the one behind it
    links       cuts between clients and brokers, for whole connections
    proxy       listeners, the brokers behind them, and open_proxy

    async with open_proxy("kafka.example:9092") as proxy:
        rule = proxy.faults.add(FaultRule(api="PRODUCE", topic="orders", error="NOT_ENOUGH_REPLICAS"))
        ...                                      # clients at proxy.bootstrap_servers
        await proxy.faults.wait_for_hits(rule)

Rules are those of `replication.faults`, and the same code carries them out.
"""

from replication.proxy.links import ClientLinks, CutLink
from replication.proxy.proxy import Proxy, open_proxy

__all__ = ["ClientLinks", "CutLink", "Proxy", "open_proxy"]
