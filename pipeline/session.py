"""A Spark session that can run our sources, on this machine unless told otherwise.

Rule 1: a session that is already there is used as it is. What the user or spark-submit
has configured is theirs.

Rule 2: the session we start listens on loopback only and shows no UI: Spark's own
default is every interface, without a password.

Java is looked for in JAVA_HOME and then on PATH; Spark 4 needs 17 or newer.
"""

import os
import shutil
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from replication.errors import UnderstudyError

# A short report waits longer for the optimising compiler than it gains from it.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUIET_LOG = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"

NO_JAVA = "Spark needs Java 17 or newer: install a JRE and put `java` on PATH, or set JAVA_HOME"


class JavaNotFoundError(UnderstudyError):
    """There is no Java for Spark to run on; the message says how to get one."""


def find_java() -> str | None:
    """The `java` that Spark would start, or None."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


def get_session(*, master: str | None = None, app_name: str = "understudy") -> SparkSession:
    """The active session, or a new one on `master` (all cores of this machine by default)."""
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if find_java() is None:
        raise JavaNotFoundError(NO_JAVA)
    # Workers otherwise take `python3` from PATH, which may lack what this one has.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Read by the JVM when it starts; no Spark configuration covers all of its ports.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.appName(app_name)
        .master(master or os.environ.get("SPARK_MASTER", "local[*]"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", f"{QUICK_JVM} {QUIET_LOG}")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    )
    session: SparkSession = builder.getOrCreate()
    return session
