"""`understudy pipeline failover` and `lag`: what the event journals of a cluster tell."""

from typing import TYPE_CHECKING

import click

from replication.cli.pipeline.jobs import INTERNAL, MASTER, SparkProgress, deliver, output_option
from replication.extras import extra
from storage.filesystem import OsFileSystem

if TYPE_CHECKING:
    from pipeline.journals.lag import MinIsr

JOURNALS = click.argument("journals", nargs=-1, required=True, type=click.Path(exists=True))


@click.command(name="failover")
@JOURNALS
@INTERNAL
@MASTER
@output_option
def failover(
    *, journals: tuple[str, ...], internal: bool, master: str | None, outputs: tuple[str, ...]
) -> None:
    """Report each outage of a broker: fencing, election, first write, full ISR, losses.

    JOURNALS are event journals, or directories with journals: a broker's data directory, or
    that of a whole cluster. The controller's journal must be among them, or in its place a
    directory __cluster_metadata-0, which nodes of Apache Kafka have, too. A page (FILE.html)
    also explains every election and truncation. Where the directories have copies of the metadata
    log, the report shows who leads and votes in the quorum, who observes, and what each lacks.
    """
    with extra("spark", "understudy pipeline failover"):
        from pipeline.journals.failover import failover_report
        from pipeline.journals.quorum import quorum_at
        from pipeline.journals.source import read_events
        from pipeline.session import get_session
    session, progress = get_session(master=master, quick=True), SparkProgress()
    with progress.watching(session):
        events, quorum = read_events(session, journals), quorum_at(OsFileSystem(), journals)
        reports = failover_report(events, quorum=quorum, on_step=progress.step)
    deliver("failover", reports, outputs, internal=internal)


@click.command(name="lag")
@JOURNALS
@click.option(
    "--min-isr",
    multiple=True,
    metavar="[TOPIC=]N",
    help="min.insync.replicas of all topics, or of one; journals do not contain it.  [default: 1]",
)
@INTERNAL
@MASTER
@output_option
def lag(
    *,
    journals: tuple[str, ...],
    min_isr: tuple[str, ...],
    internal: bool,
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
    deliver("lag", report, outputs, internal=internal)


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
