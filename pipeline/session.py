"""A Spark session that can run our sources, by default on this machine.

    spark = get_session()                                   all cores of this machine
    spark = get_session(master="spark://b1:7077")           a cluster; our code goes there

Rule 1: a session that is already there is used as it is. The user's configuration, by
spark-submit, `spark-defaults.conf` or PYSPARK_SUBMIT_ARGS, stays: this module sets only what is
not set.

Rule 2: a local session listens on loopback only and shows no UI: Spark's own default is every
interface, without a password. The executors of a cluster have to
reach the driver, so there Spark's default stays.

`pipeline.java` finds Java.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from pipeline import class_data, register
from pipeline.java import NO_JAVA, JavaNotFoundError, find_java, set_java_home
from pipeline.shipping import ship_code, tell_local_workers

__all__ = ["NO_JAVA", "JavaNotFoundError", "find_java", "get_session"]

LOCAL: Final = "local[*]"

# A short report waits longer for the optimising compiler than it gains from it; bulk work takes
# more than twice as long without it.
QUICK_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUIET_LOG: Final = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"
_JVM_OPTIONS: Final = "spark.driver.extraJavaOptions"

SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Some readers take Spark's default, INT96, as nanoseconds, and others refuse it.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A tenth to a quarter faster between the JVM and Python than loopback TCP.
    SOCKETS: "true",
    "spark.sql.python.filterPushdown.enabled": "true",
}
LOCAL_SETTINGS: Final = {"spark.sql.shuffle.partitions": "4"}
# A planner's worker sends one word more than the JVM waits for. Over loopback TCP this goes
# unnoticed; a Unix domain socket is closed by then, and Spark prints a BrokenPipeError.
QUICK_SETTINGS: Final = {SOCKETS: "false"}

# The application's name in a `SparkConf` that sets none.
_UNNAMED: Final = "pyspark-shell"


def get_session(
    *, master: str | None = None, app_name: str = "understudy", quick: bool = False
) -> SparkSession:
    """Return the active session, or a new one on `master` (by default all cores of this machine).

    With `quick`, for reports of seconds, the JVM starts sooner and stays slow, and Python and the
    JVM talk over loopback TCP.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return _with_our_sources(active)
    given = _configured(master, quick=quick)
    chosen = master or _master_of(given)
    builder = SparkSession.builder.master(chosen)
    if given.get("spark.app.name", _UNNAMED) == _UNNAMED:
        builder = builder.appName(app_name)
    for name, value in _settings(chosen, quick=quick).items():
        if name not in given:
            builder = builder.config(name, value)
    return _with_our_sources(builder.getOrCreate())


def _with_our_sources(session: SparkSession) -> SparkSession:
    # Spark finds the format by itself only where this project is installed.
    ship_code(session)
    register(session)
    return session


def _configured(master: str | None, *, quick: bool) -> Mapping[str, str]:
    """Return the configuration of the JVM, which is started here unless spark-submit has done so."""
    # Workers would take `python3` from PATH, which may lack the packages of this interpreter.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if "PYSPARK_GATEWAY_PORT" not in os.environ and not _jvm_runs():
        _start_jvm(set_java_home(), master or os.environ.get("SPARK_MASTER", LOCAL), quick=quick)
    SparkContext._ensure_initialized()  # noqa: SLF001 - as the builder does
    # The JVM knows of every place that Spark is configured in.
    return dict(SparkConf().getAll())


def _start_jvm(java: str, master: str, *, quick: bool) -> None:
    if master.startswith("local"):
        # Read by the JVM when it starts; no Spark configuration covers all of its ports.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        tell_local_workers()
    flags = (QUICK_JVM if quick else "", QUIET_LOG, class_data.options(java))
    wanted = _settings(master, quick=quick) | {_JVM_OPTIONS: " ".join(filter(None, flags))}
    defaults = _spark_defaults()
    options = SparkConf(loadDefaults=False)
    # PYSPARK_SUBMIT_ARGS come after these on the command line, and override them.
    options.setAll([pair for pair in wanted.items() if pair[0] not in defaults])
    SparkContext._ensure_initialized(conf=options)  # noqa: SLF001 - as above


def _settings(master: str, *, quick: bool) -> dict[str, str]:
    local = LOCAL_SETTINGS if master.startswith("local") else {}
    return {**SETTINGS, **local, **(QUICK_SETTINGS if quick else {})}


def _jvm_runs() -> bool:
    return SparkContext._gateway is not None  # noqa: SLF001 - there is no other way to ask


def _master_of(given: Mapping[str, str]) -> str:
    """Return the user's master; `local[*]` may also be Spark's own default."""
    said = given.get("spark.master", LOCAL)
    return os.environ.get("SPARK_MASTER", LOCAL) if said == LOCAL else said


def _spark_defaults() -> Mapping[str, str]:
    """Return the settings in `spark-defaults.conf`: a line each, `key value` or `key=value`."""
    home = os.environ.get("SPARK_HOME")
    directory = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    path = Path(directory) / "spark-defaults.conf" if directory else None
    if path is None or not path.is_file():
        return {}
    lines = (line.strip().replace("=", " ", 1) for line in path.read_text().splitlines())
    pairs = (line.split(None, 1) for line in lines if line and not line.startswith("#"))
    return {pair[0]: pair[1] if len(pair) > 1 else "" for pair in pairs}
