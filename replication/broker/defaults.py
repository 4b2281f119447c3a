"""The defaults of a cluster with a given number of brokers. This module imports nothing."""


def default_replication_factor(brokers: int) -> int:
    """Return the replication factor of topics that do not set one: three, or all brokers."""
    return min(3, brokers)


def default_properties(brokers: int) -> dict[str, str]:
    """Return the properties of a cluster whose nodes are created together.

    They replicate as widely as the brokers allow, and start groups without delay, as Kafka's sample
    server.properties does.
    """
    replicas = str(default_replication_factor(brokers))
    return {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": str(min(2, brokers)),
        "group.initial.rebalance.delay.ms": "0",
    }
