"""What a cluster of this many brokers is given where nobody said; imports nothing."""


def default_replication_factor(brokers: int) -> int:
    """Return the replication factor of topics that do not set one: three, or all brokers."""
    return min(3, brokers)


def default_properties(brokers: int) -> dict[str, str]:
    """Return the properties of a cluster that is made in one go.

    They are as safe as it can be, and as quick to begin as Kafka's own sample server.properties.
    """
    replicas = str(default_replication_factor(brokers))
    return {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": str(min(2, brokers)),
        "group.initial.rebalance.delay.ms": "0",
    }
