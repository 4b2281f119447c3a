"""The shape of testcontainers' KafkaContainer, so that moving over is one line of imports.

from replication.testing import KafkaContainer
with KafkaContainer() as kafka:
    servers = kafka.get_bootstrap_server()
"""

from typing import Self

from replication.testing.threaded import ThreadedCluster


class KafkaContainer(ThreadedCluster):
    """One broker, as its container has. Images, ports and ZooKeeper are no concern of ours."""

    def __init__(self, image: str = "", port: int = 0) -> None:  # noqa: ARG002 - its signature
        super().__init__(brokers=1)

    def with_kraft(self) -> Self:
        """There is nothing else."""
        return self

    def with_env(self, key: str, value: str) -> Self:
        """`KAFKA_MIN_INSYNC_REPLICAS` is `min.insync.replicas`; others than KAFKA_ are ignored."""
        name = key.removeprefix("KAFKA_")
        if name != key:
            self.config = {**self.config, name.lower().replace("_", "."): value}
        return self
