"""Where Apache Kafka is: KAFKA_HOME, or what Maven makes of `pom.xml`.

Maven is asked once for each content of `pom.xml`: the class path that it names is kept in the
user's cache, and asked for again where a file of it has gone.
"""

import functools
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from pipeline.java import cache_directory, find_java

POM: Final = Path(__file__).with_name("pom.xml")
MAVEN_SECONDS: Final = 300


class KafkaNotFoundError(Exception):
    """There is no Apache Kafka here; the message, of one line, says how to get one."""


@functools.cache
def class_path() -> str:
    """Kafka's jars, for `java -cp`."""
    if home := os.environ.get("KAFKA_HOME"):
        libraries = Path(home) / "libs"
        if not any(libraries.glob("kafka_2.13-*.jar")):
            raise KafkaNotFoundError(f"KAFKA_HOME is {home}, and libs/ there has no Kafka")
        return f"{libraries}/*"
    return _from_maven()


@functools.cache
def java() -> str:
    found = find_java()
    if found is None:
        raise KafkaNotFoundError("Apache Kafka needs Java 17: set JAVA_HOME, or put `java` on PATH")
    return found


@functools.cache
def kafka_version() -> str:
    """Of the broker that `class_path` names."""
    jars = class_path()
    if jars.endswith("/*"):
        jars = ":".join(str(jar) for jar in Path(jars[:-2]).iterdir())
    found = re.search(r"kafka_2\.13-([\d.]+)\.jar", jars)
    assert found, jars
    return found[1]


def _from_maven() -> str:
    digest = hashlib.sha256(POM.read_bytes()).hexdigest()[:12]
    kept = cache_directory() / f"kafka-classpath-{digest}"
    if kept.exists() and all(Path(jar).exists() for jar in kept.read_text().split(os.pathsep)):
        return kept.read_text()
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaNotFoundError(
            "Apache Kafka is not here: set KAFKA_HOME to one, or install Maven (`mvn`)"
        )
    draft = kept.with_name(f"{kept.name}.{os.getpid()}")
    goal = ["dependency:build-classpath", f"-Dmdep.outputFile={draft}"]
    try:
        done = subprocess.run(
            [maven, "-q", "-B", "-f", str(POM), *goal],
            capture_output=True,
            text=True,
            check=False,
            timeout=MAVEN_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise KafkaNotFoundError(
            f"Apache Kafka is not here: Maven did not find it within {MAVEN_SECONDS} s"
        ) from None
    if done.returncode != 0 or not draft.exists():
        lines = [line for line in done.stdout.splitlines() if "ERROR" in line] or ["no word why"]
        raise KafkaNotFoundError(f"Apache Kafka is not here: Maven says {lines[0]}")
    draft.replace(kept)
    return kept.read_text()
