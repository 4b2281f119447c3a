"""`understudy pipeline bundle`: the files that spark-submit needs, in a directory."""

import shutil
from pathlib import Path

import click

from replication.cli.output import show_line
from replication.cli.pipeline import submit
from replication.extras import extra

ENTRY_POINT = "understudy_submit.py"


@click.command(name="bundle")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
def command(directory: Path) -> None:
    """Write the files that spark-submit needs to DIRECTORY.

    They are a zip of understudy's packages for --py-files, and the file to submit. The Python
    of the cluster needs the packages that they import: numpy, pyarrow, attrs, crc32c, cramjam,
    click, msgpack.
    """
    with extra("spark", "understudy pipeline bundle"):
        from pipeline.shipping import write_archive
    directory.mkdir(parents=True, exist_ok=True)
    archive, entry_point = write_archive(directory), directory / ENTRY_POINT
    shutil.copyfile(submit.__file__, entry_point)
    show_line(f"spark-submit --master MASTER --py-files {archive} {entry_point} audit ...")
