"""Apache Kafka's command line tools, by main class, against whatever cluster.

    run_tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", servers, "--list")

A tool is a Java virtual machine of its own, which takes a second or two; each has a time limit.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from tests.interop.jars import class_path, java

LOG_CONFIG: Final = Path(__file__).with_name("log4j2.properties")
# Small, and quick to start rather than quick in the long run.
QUICK_START: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m")
TIMEOUT: Final = 90.0

TOPICS: Final = "org.apache.kafka.tools.TopicCommand"
CONFIGS: Final = "kafka.admin.ConfigCommand"
CONSUMER_GROUPS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE_PRODUCER: Final = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
DUMP_LOG: Final = "kafka.tools.DumpLogSegments"
STORAGE: Final = "kafka.tools.StorageTool"


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
) -> list[str]:
    """How to run a class of Kafka's; what it logs goes to standard error."""
    logging = [f"-Dlog4j2.configurationFile={LOG_CONFIG}", f"-Dlog.level={log_level}"]
    return [java(), *options, *logging, "-cp", class_path(), main_class, *arguments]


def java_environment() -> dict[str, str]:
    """Return our environment without the variable that Java reports on standard error."""
    return {key: value for key, value in os.environ.items() if key != "JAVA_TOOL_OPTIONS"}


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


def write_properties(path: Path, properties: Mapping[str, str]) -> Path:
    """A file for `--command-config` and its like."""
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path
