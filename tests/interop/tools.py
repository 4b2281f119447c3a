"""Apache Kafka's command line tools, by main class, against whatever cluster.

    run_tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", servers, "--list")

A tool is a Java virtual machine of its own, which takes a second or two; each has a time limit.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from replication.cli.kafka.processes import QUICK_START, java_environment
from tests.interop.jars import class_path, has_class, java, kafka_version, tools_class_path

LOG_CONFIG: Final = Path(__file__).with_name("log4j2.properties")
TIMEOUT: Final = 90.0

TOPICS: Final = "org.apache.kafka.tools.TopicCommand"
CONFIGS: Final = "org.apache.kafka.tools.ConfigCommand"
CONSUMER_GROUPS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE_PRODUCER: Final = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
DUMP_LOG: Final = "org.apache.kafka.tools.DumpLogSegments"
API_VERSIONS: Final = "org.apache.kafka.tools.BrokerApiVersionsCommand"
REPLICA_VERIFICATION: Final = "org.apache.kafka.tools.ReplicaVerificationTool"
METADATA_SHELL: Final = "org.apache.kafka.shell.MetadataShell"
# They call what is internal to clients and broker, and run on those of their own version.
OF_ONE_VERSION: Final = {DUMP_LOG, API_VERSIONS, REPLICA_VERIFICATION}
FORMER_NAMES: Final = {
    CONFIGS: "kafka.admin.ConfigCommand",
    DUMP_LOG: "kafka.tools.DumpLogSegments",
}
# By the name of each flag since KIP-1147 (4.2): older versions have the other one only.
FORMER_FLAGS: Final = {
    CONSOLE_PRODUCER: {
        "--command-property": "--producer-property",
        "--command-config": "--producer.config",
        "--reader-property": "--property",
    },
    CONSOLE_CONSUMER: {
        "--command-property": "--consumer-property",
        "--command-config": "--consumer.config",
        "--formatter-property": "--property",
    },
}


@attrs.frozen
class ToolResult:
    """The output of a tool, and its exit code."""

    exit_code: int
    output: str
    errors: str


class ToolFailedError(Exception):
    """A tool ended with another exit code than 0; the message has all that it said."""


def java_command(
    main_class: str,
    *arguments: str,
    options: Sequence[str] = QUICK_START,
    log_level: str = "WARN",
    version: str | None = None,
) -> list[str]:
    """Return the command that runs a class of Kafka's and logs to standard error.

    A `version` is that of a broker, or of the storage tool.
    """
    logging = [f"-Dlog4j2.configurationFile={LOG_CONFIG}", f"-Dlog.level={log_level}"]
    path = tools_class_path() if main_class in OF_ONE_VERSION else class_path(version)
    called = (main_class, *arguments)
    if tuple(map(int, kafka_version().split("."))) < (4, 2):
        called = in_former_words(*called)
    elif main_class in FORMER_NAMES and not has_class(main_class):
        called = (FORMER_NAMES[main_class], *arguments)
    return [java(), *options, *logging, "-cp", path, *called]


def in_former_words(main_class: str, *arguments: str) -> tuple[str, ...]:
    """Return a call as versions before 4.2 understand it."""
    flags = FORMER_FLAGS.get(main_class, {})
    split = (each.partition("=") for each in arguments)
    renamed = (flags.get(flag, flag) + sign + value for flag, sign, value in split)
    return (FORMER_NAMES.get(main_class, main_class), *renamed)


def try_tool(
    main_class: str, *arguments: str, stdin: str = "", timeout: float = TIMEOUT
) -> ToolResult:
    """Run it to its end, whatever that is; subprocess.TimeoutExpired where there is none."""
    done = subprocess.run(
        java_command(main_class, *arguments),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        env=java_environment(),
    )
    return ToolResult(done.returncode, done.stdout, done.stderr)


def run_tool(main_class: str, *arguments: str, stdin: str = "", timeout: float = TIMEOUT) -> str:
    """Return its standard output; raise ToolFailedError when its exit code is not 0."""
    done = try_tool(main_class, *arguments, stdin=stdin, timeout=timeout)
    if done.exit_code != 0:
        said = f"{main_class} {' '.join(arguments)}: exit code {done.exit_code}"
        raise ToolFailedError(f"{said}\n{done.output}\n{done.errors}")
    return done.output
