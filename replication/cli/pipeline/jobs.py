"""The parts that all jobs on Spark share: output, progress, and `bundle`.

An answer goes to standard output, or into files by the endings of their names. The progress goes to
standard error, as a bar on a terminal: Spark runs a job inside one call that blocks, so another
thread asks its status tracker.
"""

import contextlib
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import click

from replication import own_module
from replication.cli.options import NEW_DIRECTORY
from replication.cli.output import JSON, TABLE, json_text, show_json, show_line, tell
from replication.cli.pipeline import submit
from replication.cli.progress import Bar, progress
from replication.extras import extra
from storage.attributes import define

LOOK_SECONDS = 0.3
ENTRY_POINT = "understudy_submit.py"
# job -> the module that has its answer as lines, as JSON and as Parquet
FORMS = {
    "audit": "pipeline.audit.results",
    "failover": "pipeline.journals.failover",
    "lag": "pipeline.journals.lag",
}
SHOWN = (TABLE, JSON)
ENDINGS = (".json", ".parquet", ".html")
METAVAR = f"[{'|'.join((*SHOWN, *(f'FILE{ending}' for ending in ENDINGS)))}]"


def checked(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values of `--output`: each is `table`, `json`, or a file with a known ending."""
    for text in given:
        if text not in SHOWN and not text.endswith(ENDINGS):
            known = ", ".join((*SHOWN, *(f"a file *{ending}" for ending in ENDINGS)))
            raise click.BadParameter(f"{text} is none of: {known}", ctx, param)
    if any(text.endswith(".html") for text in given):
        # A missing package is reported before the job runs.
        with extra("spark", "a report as HTML"):
            import plotly.io  # noqa: F401
    return given


output_option = click.option(
    "--output",
    "outputs",
    multiple=True,
    default=["table"],
    metavar=METAVAR,
    callback=checked,
    help="Print the result, or write it to a file; may be repeated.  [default: table]",
)


INTERNAL = click.option(
    "--internal", is_flag=True, help="Also show Kafka's own topics, in tables and pages."
)
MASTER = click.option("--master", help="Spark's master URL; all cores of this machine by default.")


def deliver(
    job: str,
    found: Any,
    outputs: Sequence[str],
    *,
    internal: bool = False,
    quiet: bool = False,
) -> None:
    """Write what a job has found in each of these forms: `table`, `json`, or a file by its ending.

    The verdict comes first: in a table, and on standard error before the names of files. A quiet
    call says neither there.
    """
    forms = own_module(FORMS[job])
    if TABLE not in outputs and not quiet:
        tell(str(forms.verdict(found)))
    for output in outputs:
        match output if output in SHOWN else Path(output).suffix:
            case "table":
                show_line("\n".join(forms.lines(found, internal=internal)))
            case "json":
                show_json(forms.to_json(found))
            case ".json":
                Path(output).write_text(f"{json_text(forms.to_json(found))}\n")
            case ".html":
                pages = own_module(f"pipeline.reports.{job}")
                Path(output).write_text(getattr(pages, f"{job}_page")(found, internal=internal))
            case _:
                forms.write_parquet(found, output)
        if output not in SHOWN and not quiet:
            tell(f"written: {output}")


@click.command(name="bundle")
@click.argument("directory", type=NEW_DIRECTORY)
def bundle(directory: Path) -> None:
    """Write to DIRECTORY the files that spark-submit needs.

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


@define
class SparkProgress:
    """The progress of a job: its steps, and the tasks of Spark on a terminal."""

    _bar: Bar | None = attrs.field(init=False, default=None)
    _ended: threading.Event = attrs.field(factory=threading.Event, init=False)

    def step(self, what: str) -> None:
        """Show that the job begins its next step."""
        if self._bar is not None:
            self._bar.say(what)

    @contextlib.contextmanager
    def watching(self, session: Any) -> Iterator[None]:
        """Show the tasks of `session` while the block runs."""
        with progress("starting") as self._bar:
            thread = None
            if self._bar.is_seen:
                thread = threading.Thread(
                    target=self._watch, args=[self._bar, session], daemon=True
                )
                thread.start()
            try:
                yield
            finally:
                self._ended.set()
                if thread is not None:
                    thread.join()

    def _watch(self, bar: Bar, session: Any) -> None:
        tracker = session.sparkContext.statusTracker()
        while not self._ended.wait(LOOK_SECONDS):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            known = [stage for stage in stages if stage is not None]
            total = sum(stage.numTasks for stage in known)
            if total:
                bar.update(sum(stage.numCompletedTasks for stage in known), total)
