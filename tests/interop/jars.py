"""Where Apache Kafka is: KAFKA_HOME, or what Maven makes of `pom.xml`, in version KAFKA_VERSION.

And Spark's own Kafka source, which comes from Maven alone (`pom-spark.xml`).

Where Maven has no tools of a version, those of an older one run on its clients: the jars of the
version come first, and the older jars behind them have the classes that only the tools need.

Maven is asked once for each content of such a file: the class path that it names is kept in the
user's cache, and asked for again where a file of it has gone.
"""

import functools
import hashlib
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Final

from pipeline.java import cache_directory, find_java

POM: Final = Path(__file__).with_name("pom.xml")
SPARK_POM: Final = Path(__file__).with_name("pom-spark.xml")
MAVEN_SECONDS: Final = 300
NEWEST: Final = "4.4.0"
TOOLS_OF: Final = {"4.4.0": "4.3.1"}
"""The version of the tools, where it is another than that of the broker."""


class KafkaNotFoundError(Exception):
    """There is no Apache Kafka here; the message, of one line, says how to get one."""


@functools.cache
def class_path(version: str | None = None) -> str:
    """Return Kafka's jars, for `java -cp`; those of `version` come from Maven."""
    if version is not None:
        return _tools_from_maven(version)
    if home := os.environ.get("KAFKA_HOME"):
        libraries = Path(home) / "libs"
        if not any(libraries.glob("kafka_2.13-*.jar")):
            raise KafkaNotFoundError(f"KAFKA_HOME is {home}, and libs/ there has no Kafka")
        return f"{libraries}/*"
    version = os.environ.get("KAFKA_VERSION", NEWEST)
    if version not in TOOLS_OF:
        return tools_class_path()
    newer = from_maven("kafka", POM, f"-Dkafka.version={version}")
    return os.pathsep.join([newer, tools_class_path()])


@functools.cache
def tools_class_path() -> str:
    """Return the jars of the tools, with the clients and the broker of the same version."""
    if "KAFKA_HOME" in os.environ:
        return class_path()
    version = os.environ.get("KAFKA_VERSION", NEWEST)
    return _tools_from_maven(TOOLS_OF.get(version, version))


def _tools_from_maven(version: str) -> str:
    return from_maven("kafka-tools", POM, "-Ptools", f"-Dkafka.version={version}")


@functools.cache
def spark_kafka_jars(spark_version: str, at_hand: Path) -> list[str]:
    """Spark's Kafka source, with what it needs that Spark's own jars, `at_hand`, lack."""
    known = {_artifact(jar.name) for jar in at_hand.glob("*.jar")}
    jars = from_maven("spark-kafka", SPARK_POM, f"-Dspark.version={spark_version}")
    return [jar for jar in jars.split(os.pathsep) if _artifact(Path(jar).name) not in known]


def _artifact(file_name: str) -> str:
    """A jar's name without its version."""
    return re.sub(r"-\d[\w.-]*\.jar$", "", file_name)


@functools.cache
def java() -> str:
    found = find_java()
    if found is None:
        raise KafkaNotFoundError("Apache Kafka needs Java 17: set JAVA_HOME, or put `java` on PATH")
    return found


@functools.cache
def kafka_version() -> str:
    """Return the version of the broker in `class_path`."""
    versions = [re.search(r"^kafka_2\.13-([\d.]+)\.jar$", jar.name) for jar in _jars()]
    return next(found[1] for found in versions if found)


@functools.cache
def has_class(name: str) -> bool:
    """Return whether a jar of Kafka's in `class_path` has a class of this name."""
    entry = f"{name.replace('.', '/')}.class"
    return any(entry in zipfile.ZipFile(jar).namelist() for jar in _jars() if "kafka" in jar.name)


def _jars() -> list[Path]:
    """Return the files of `class_path`, in its order."""
    if class_path().endswith("/*"):
        return sorted(Path(class_path()[:-2]).glob("*.jar"))
    return [Path(jar) for jar in class_path().split(os.pathsep)]


def from_maven(what: str, pom: Path, *definitions: str) -> str:
    digest = hashlib.sha256(b"\0".join([pom.read_bytes(), *map(str.encode, definitions)]))
    kept = cache_directory() / f"{what}-classpath-{digest.hexdigest()[:12]}"
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
            [maven, "-q", "-B", "-f", str(pom), *definitions, *goal],
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
