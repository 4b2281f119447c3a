"""A faster start of Spark's JVM from an archive of the classes that it loads (AppCDS).

    python -m pipeline.class_data        once: some 10 seconds, and 150 MB in ~/.cache/understudy

Sessions that `pipeline.session` starts then map that file instead of loading and verifying
twenty thousand classes. It belongs to one Java and one Spark, which its name is made of; with
another Java or Spark a session starts as before. A cold start reaches its first row 1.34 times
as fast (`spark_starts` in docs/benchmarks.md).

A Java from PyPI lacks the archive of its own classes, on which this one builds; it gets one
first.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyspark

from pipeline.java import cache_directory, set_java_home, version_text
from replication.errors import UnderstudyError

_SESSION: Final = """
from pipeline.session import get_session
session = get_session(master="local[1]", quick=True)
session.range(100).selectExpr("sum(id)", "count(distinct id % 7)").collect()
java = session.sparkContext._gateway.proc
session.stop()
# The JVM ends with its standard input, and writes the archive when it ends.
java.stdin.close()
java.wait()
"""


class ClassDataError(UnderstudyError):
    """An error: the archive could not be made."""


def options(java: str) -> str:
    """Return the options that make `java` use its archive, or nothing if it has none."""
    top, base = _archives(java)
    if not top.exists():
        return ""
    files = f"{base}:{top}" if base.exists() else str(top)
    # Java starts without an archive that does not fit, and prints nothing.
    return f"-XX:SharedArchiveFile={files} -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"


def create() -> Path:
    """Archive the classes that a short session loads; return the file, which appears whole."""
    java = set_java_home()
    top, base = _archives(java)
    if any(each.isspace() for each in str(top)):
        # Java splits its options at spaces, and Spark would only report that Java has ended.
        raise ClassDataError(
            f"no class data can be kept in {top.parent}, which has a space in its name;"
            " set XDG_CACHE_HOME to another directory"
        )
    top.parent.mkdir(parents=True, exist_ok=True)
    if not _run([java, "-Xshare:on", "-version"]) and not base.exists():
        draft = base.with_suffix(f".{os.getpid()}")
        if _run([java, "-Xshare:dump", f"-XX:SharedArchiveFile={draft}"]):
            draft.replace(base)
    draft = top.with_suffix(f".{os.getpid()}")
    # This session lasts for seconds, in which the optimising compiler does not pay.
    flags = f"-XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit={draft}"
    flags += " -Xlog:cds=off -Xlog:cds+dynamic=off"
    if base.exists():
        flags += f" -XX:SharedArchiveFile={base}"
    arguments = f"--driver-java-options '{flags}' pyspark-shell"
    done = subprocess.run(  # noqa: S603 - this very interpreter
        [sys.executable, "-c", _SESSION],
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": arguments},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or not draft.exists():
        draft.unlink(missing_ok=True)
        raise ClassDataError(f"no class data were made; Spark's output:\n{done.stderr[-2000:]}")
    draft.replace(top)
    return top


def _run(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603


def _archives(java: str) -> tuple[Path, Path]:
    """Return the archive of Spark's classes, and the one of Java's own for a Java without one."""
    directory = cache_directory() / "class-data"
    known = f"{os.path.realpath(java)} {version_text(java)}"
    spark = f"{known} {pyspark.__version__} {os.path.realpath(pyspark.__file__)}"
    return directory / f"{_name(spark)}.jsa", directory / f"{_name(known)}-base.jsa"


def _name(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


if __name__ == "__main__":
    sys.stdout.write(f"{create()}\n")
