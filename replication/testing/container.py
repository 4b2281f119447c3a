"""The interface of testcontainers' KafkaContainer, so that a change of one import is enough.

from replication.testing import KafkaContainer
with KafkaContainer() as kafka:
    servers = kafka.get_bootstrap_server()
"""

from typing import Self

from replication.testing.threaded import ThreadedCluster


class KafkaContainer(ThreadedCluster):
    """A cluster of one broker, as in its container. Image and port have no effect."""

    def __init__(self, image: str = "", port: int = 0) -> None:  # noqa: ARG002 - its signature
        super().__init__(brokers=1)

    def with_kraft(self) -> Self:
        """Do nothing: every cluster is of KRaft's kind."""
        return self

    def with_env(self, key: str, value: str) -> Self:
        """Set a key by its variable: `KAFKA_MIN_INSYNC_REPLICAS` is `min.insync.replicas`; other
        names than KAFKA_ are ignored.
        """
        name = key.removeprefix("KAFKA_")
        if name != key:
            self.config = {**self.config, name.lower().replace("_", "."): value}
        return self
