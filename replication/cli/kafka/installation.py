"""Where Apache Kafka is for a command of ours: `--kafka-home`, or KAFKA_HOME.

KAFKA_HOME/libs/kafka_2.13-4.4.0.jar       the release, as it is unpacked from its archive
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from pipeline.java import find_java
from replication.errors import UnderstudyError
from storage.attributes import frozen


class KafkaNotFoundError(UnderstudyError):
    """There is no Apache Kafka, or no Java for it; the message says how to get one."""


@frozen
class KafkaRelease:
    """An unpacked release of Apache Kafka, and the Java that runs it."""

    libraries: Path
    java: str
    version: str

    def command(self, main_class: str, *arguments: str, options: Sequence[str]) -> list[str]:
        """Return the command that runs a class of this release and logs to standard output."""
        logging = "-Dorg.apache.logging.log4j.level=WARN"
        return [self.java, *options, logging, "-cp", f"{self.libraries}/*", main_class, *arguments]


def find_kafka(home: Path | None) -> KafkaRelease:
    """Return the release in `home`, by default in KAFKA_HOME; KafkaNotFoundError if there is none."""
    where = home or os.environ.get("KAFKA_HOME")
    if not where:
        raise KafkaNotFoundError(
            "there is no Apache Kafka: unpack a release, and set KAFKA_HOME or --kafka-home to it"
        )
    libraries = Path(where) / "libs"
    names = [re.search(r"^kafka_2\.13-([\d.]+)\.jar$", each.name) for each in libraries.glob("*")]
    versions = [each[1] for each in names if each]
    if not versions:
        raise KafkaNotFoundError(f"{where} has no libs/kafka_2.13-*.jar: it is no Apache Kafka")
    java = find_java()
    if java is None:
        raise KafkaNotFoundError("Apache Kafka needs Java 17: set JAVA_HOME, or put `java` on PATH")
    return KafkaRelease(libraries, java, versions[0])
