"""What a cluster of this many brokers is given where nobody said; imports nothing."""


def default_replication_factor(brokers: int) -> int:
    """A topic that nobody asked anything of is on as many brokers as makes it safe."""
    return min(3, brokers)
