"""What a cluster of this many brokers is given where nobody said; imports nothing."""


def default_replication_factor(brokers: int) -> int:
    """A topic that nobody asked anything of is on as many brokers as makes it safe."""
    return min(3, brokers)


def default_properties(brokers: int) -> dict[str, str]:
    """What a cluster that is made in one go is set to: as safe as it can be, and as quick to
    begin as Kafka's own sample server.properties.
    """
    replicas = str(default_replication_factor(brokers))
    return {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": str(min(2, brokers)),
        "group.initial.rebalance.delay.ms": "0",
    }
