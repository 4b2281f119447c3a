"""`understudy pipeline failover`: what each outage of a broker did, from the event journals."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from replication.cli.pipeline.jobs import JobAnswer, SparkProgress, output_option
from replication.extras import extra

if TYPE_CHECKING:
    from pipeline.journals.failover import OutageReport


@click.command(name="failover")
@click.argument("journals", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--master", help="Spark's master URL; all cores of this machine by default.")
@output_option
def command(*, journals: tuple[str, ...], master: str | None, outputs: tuple[str, ...]) -> None:
    """Report each outage of a broker: fencing, election, first write, full ISR, losses.

    JOURNALS are event journals, or directories with journals: a broker's data directory, or
    that of a whole cluster. The controller's journal must be among them.
    """
    with extra("spark", "understudy pipeline failover"):
        from pipeline.journals.failover import failover_report
        from pipeline.journals.source import read_events
        from pipeline.session import get_session
    session, progress = get_session(master=master, quick=True), SparkProgress()
    with progress.watching(session):
        reports = failover_report(read_events(session, journals), on_step=progress.step)
    _answer(reports).deliver(outputs)


def _answer(reports: "Sequence[OutageReport]") -> JobAnswer:
    from pipeline.journals.failover import lines, to_json, write_parquet

    def page() -> str:
        from pipeline.reports.failover import failover_page

        return failover_page(reports)

    return JobAnswer(
        lines=partial(lines, reports),
        facts=partial(to_json, reports),
        page=page,
        write_parquet=partial(write_parquet, reports),
    )
