"""Our code on the machines of a cluster: one zip, sent by Spark itself.

    driver                               executor
    pipeline/ replication/ storage/ ──zip──> on the path of its Python workers

Rule 1: only our own modules travel. What they import (attrs, crc32c, cramjam, numpy, pyarrow,
and trio for the sink) holds compiled code, and has to be in the executors' Python.

Rule 2: a session on this machine needs no zip. Its workers find this code by PYTHONPATH, because
they do not share our `sys.path`.

Rule 3: a driver that runs from a zip was started with it (`spark-submit --py-files`).
"""

import atexit
import functools
import os
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from replication.errors import UnderstudyError

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = ("pipeline", "replication", "storage", "understudy")
ARCHIVE_NAME: Final = "understudy.zip"


class ShadowedPackageError(UnderstudyError):
    """An error: Spark's workers would take a folder of the user's for one of our packages."""


def ship_code(session: SparkSession) -> None:
    """Send our packages to the executors of a cluster; local executors have them."""
    if ROOT.is_file():  # a zip: rule 3
        return
    master = session.conf.get("spark.master", "") or ""
    if not master.startswith("local"):
        session.addArtifacts(str(_archive()), pyfile=True)


@functools.cache
def _archive() -> Path:
    """Return the zip, which Spark hands to executors for as long as this process lives."""
    directory = tempfile.mkdtemp(prefix="understudy-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return write_archive(Path(directory))


def write_archive(directory: Path) -> Path:
    """Write our packages to a zip in `directory` from which Python can import, and return it."""
    target = directory / ARCHIVE_NAME
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            for path in sorted((ROOT / package).rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    archive.write(path, path.relative_to(ROOT))
    return target


def tell_local_workers() -> None:
    """Put this code on PYTHONPATH, which workers on this machine inherit."""
    check_not_shadowed(Path.cwd())
    known = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    if str(ROOT) not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *known])


def check_not_shadowed(working_directory: Path) -> None:
    """Raise ShadowedPackageError if the working directory, where workers look first, has our names.

    Code that was imported by the name `understudy` has others there.
    """
    if working_directory.resolve() == ROOT or __name__.startswith("understudy."):
        return
    for package in PACKAGES:
        found = working_directory / package
        if found.is_dir() or found.with_suffix(".py").exists():
            raise ShadowedPackageError(
                f"{found} would be imported by Spark's workers instead of understudy's"
                f" `{package}`: import this code as `understudy.{__name__.partition('.')[0]}`"
            )
