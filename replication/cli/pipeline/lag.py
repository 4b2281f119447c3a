"""`understudy pipeline lag`: ISR and replication lag over time, from the event journals."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from replication.cli.pipeline.outputs import OutputType, deliver, need_spark, write_text
from replication.cli.pipeline.progress import Progress

if TYPE_CHECKING:
    from pipeline.journals.lag import LagReport, MinIsr


@click.command(name="lag")
@click.argument("journals", nargs=-1, required=True, type=click.Path(exists=True))
@click.option(
    "--min-isr",
    multiple=True,
    metavar="[TOPIC=]N",
    help="min.insync.replicas, of all topics or of one; no journal tells it.  [default: 1]",
)
@click.option("--master", help="Spark's master URL; all cores of this machine by default.")
@click.option(
    "--output",
    "outputs",
    multiple=True,
    default=["table"],
    type=OutputType([".json", ".parquet", ".html"]),
)
def command(
    *,
    journals: tuple[str, ...],
    min_isr: tuple[str, ...],
    master: str | None,
    outputs: tuple[str, ...],
) -> None:
    """Each partition's ISR over time, and by how much its replicas lagged.

    JOURNALS are event journals, or directories that hold some: a broker's data directory, or
    that of a whole cluster.
    """
    try:
        from pipeline.journals.lag import lag_report
        from pipeline.journals.source import read_events
        from pipeline.session import get_session
    except ImportError as error:
        raise need_spark(error) from error
    least = _min_isr(min_isr)
    session, progress = get_session(master=master, quick=True), Progress()
    with progress.watching(session):
        events = read_events(session, journals)
        report = lag_report(events, min_isr=least, on_step=progress.step)
    deliver(outputs, _makers(report))


def _min_isr(given: tuple[str, ...]) -> "MinIsr":
    from pipeline.journals.lag import MinIsr

    default, topics = 1, {}
    for each in given:
        topic, separator, number = each.rpartition("=")
        if not number.isdigit():
            raise click.BadParameter(f"{each} is neither N nor TOPIC=N", param_hint="--min-isr")
        if separator:
            topics[topic] = int(number)
        else:
            default = int(number)
    return MinIsr(default=default, topics=topics)


def _makers(report: "LagReport") -> dict[str, Callable[[str], None]]:
    from pipeline.journals.lag import lines, to_json, write_parquet

    def as_page() -> str:
        from pipeline.reports.lag import lag_page

        return lag_page(report)

    def as_json() -> str:
        return json.dumps(to_json(report), indent=2)

    return {
        "table": lambda _: click.echo("\n".join(lines(report))),
        "json": lambda _: click.echo(as_json()),
        ".json": write_text(as_json),
        ".parquet": lambda path: write_parquet(report, path),
        ".html": write_text(as_page),
    }
