"""`understudy pipeline lag`: ISR and replication lag over time, from the event journals."""

from functools import partial
from typing import TYPE_CHECKING

import click

from replication.cli.pipeline.jobs import JobAnswer, SparkProgress, output_option
from replication.extras import extra

if TYPE_CHECKING:
    from pipeline.journals.lag import LagReport, MinIsr


@click.command(name="lag")
@click.argument("journals", nargs=-1, required=True, type=click.Path(exists=True))
@click.option(
    "--min-isr",
    multiple=True,
    metavar="[TOPIC=]N",
    help="min.insync.replicas of all topics or of one, which no journal contains.  [default: 1]",
)
@click.option("--master", help="Spark's master URL; all cores of this machine by default.")
@output_option
def command(
    *,
    journals: tuple[str, ...],
    min_isr: tuple[str, ...],
    master: str | None,
    outputs: tuple[str, ...],
) -> None:
    """Report each partition's ISR over time, and the lag of its replicas.

    JOURNALS are event journals, or directories with journals: a broker's data directory, or
    that of a whole cluster.
    """
    with extra("spark", "understudy pipeline lag"):
        from pipeline.journals.lag import lag_report
        from pipeline.journals.source import read_events
        from pipeline.session import get_session
    least = _min_isr(min_isr)
    session, progress = get_session(master=master, quick=True), SparkProgress()
    with progress.watching(session):
        events = read_events(session, journals)
        report = lag_report(events, min_isr=least, on_step=progress.step)
    _answer(report).deliver(outputs)


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


def _answer(report: "LagReport") -> JobAnswer:
    from pipeline.journals.lag import lines, to_json, write_parquet

    def page() -> str:
        from pipeline.reports.lag import lag_page

        return lag_page(report)

    return JobAnswer(
        lines=partial(lines, report),
        facts=partial(to_json, report),
        page=page,
        write_parquet=partial(write_parquet, report),
    )
