"""Apache Kafka for the tests: `replication.cli.kafka.processes`, with the jars of `jars` and Kafka's tools.

with Kafka(data_dir=tmp_path, brokers=3) as kafka:
    kafka.run_tool(tools.TOPICS, "--list")              # --bootstrap-server is put in
"""

from collections.abc import Sequence

import attrs

from replication.broker.nodes import HOST
from replication.cli.kafka.processes import (
    CLUSTER_ID,
    CONTROLLER_ALONE,
    SMALL,
    JavaCommand,
    KafkaFailedError,
    KafkaProcesses,
)
from tests.interop import tools

__all__ = ["CLUSTER_ID", "CONTROLLER_ALONE", "HOST", "SMALL", "Kafka", "KafkaFailedError"]


def command_of(version: str | None) -> JavaCommand:
    """Return the command of a version of Kafka; None is that of all these tests."""

    def command(main_class: str, *arguments: str, options: Sequence[str]) -> list[str]:
        return tools.java_command(
            main_class, *arguments, options=options, log_level="INFO", version=version
        )

    return command


@attrs.define(eq=False, kw_only=True)
class Kafka(KafkaProcesses):
    """A cluster of the version that the tests use, or of `version`."""

    version: str | None = None
    command: JavaCommand = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.command = command_of(self.version)

    def run_tool(
        self, main_class: str, *arguments: str, stdin: str = "", timeout: float = tools.TIMEOUT
    ) -> str:
        """Kafka's tool against this cluster, `--bootstrap-server` put in front."""
        given = ("--bootstrap-server", self.bootstrap_servers, *arguments)
        return tools.run_tool(main_class, *given, stdin=stdin, timeout=timeout)

    def create_topic(
        self, name: str, *, partitions: int = 1, replicas: int = 1, **configs: str
    ) -> None:
        """`configs` with underscores for dots."""
        given = [f"--config={key.replace('_', '.')}={value}" for key, value in configs.items()]
        sizes = [f"--partitions={partitions}", f"--replication-factor={replicas}"]
        self.run_tool(tools.TOPICS, "--create", "--topic", name, *sizes, *given)
