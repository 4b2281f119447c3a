"""`understudy verify A B ...`: compare copies of logs; show where and why they diverge.

    understudy verify broker-1/log broker-2/log          log directories at rest
    understudy verify old:9092 new:9092                  two clusters
    understudy verify source:9092 copy/broker-1/log      one of each
    understudy verify --bootstrap-server b1:9092         the replicas of one cluster

Flags that kafka-replica-verification has are named as there. Exit codes:

    0   the same    1   they differ    2   all or some could not be compared
"""

import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import click
import trio

from replication.cli.choosing import pattern
from replication.cli.connection import ClusterConnection, global_servers
from replication.cli.options import (
    AT_LEAST_ONE,
    AT_LEAST_ZERO,
    client_arguments,
    client_config_option,
    overrides_option,
    properties_of,
)
from replication.cli.output import JSON, CommandError, output_option, show_json, show_line, tell
from replication.cli.progress import Bar, progress
from replication.config import HostPort
from replication.errors import UnderstudyError
from replication.net import production_seams
from replication.verify import CannotCompareError, Compared, Comparison, Outcome
from replication.verify.clusters import FetchOptions
from replication.verify.comparing import Rules
from replication.verify.sources import (
    PartitionRanges,
    PartitionSelection,
    ResultListener,
    VerificationPlan,
    nothing_compared,
)
from replication.wire.list_offsets import EARLIEST
from storage.errors import StorageError
from storage.types import TopicPartition

COULD_NOT_COMPARE = 2
BAR_INTERVAL_MS = 200


def numbers(_: click.Context, option: click.Parameter, value: str | None) -> PartitionRanges | None:
    """Return the partitions that an option names: `0,3-5` is 0, 3, 4 and 5."""
    try:
        return None if value is None else PartitionRanges.parse(value)
    except ValueError:
        raise click.BadParameter(
            f"{value}: expected numbers and ranges, such as 0,3-5", param=option
        ) from None


@click.command(name="verify")
@click.argument("sources", nargs=-1, metavar="[DIRECTORY | HOST:PORT,...]...")
@click.option(
    "-b",
    "--bootstrap-server",
    "--broker-list",
    "servers",
    multiple=True,
    metavar="HOST:PORT,...",
    help="A cluster. If it is the only source, its replicas are compared with each other.",
)
@click.option(
    "--topics-include",
    callback=pattern,
    default=".*",
    help="Compare only topics whose whole name matches.",
)
@click.option(
    "--partitions",
    callback=numbers,
    help="Compare only these partitions of each topic, such as 0,3-5.",
)
@click.option(
    "--time",
    "timestamp",
    type=click.IntRange(min=EARLIEST),
    default=EARLIEST,
    help="Begin at this time in milliseconds since 1970; -1 is the end, -2 the start.  [default: -2]",
)
@click.option(
    "--fetch-size",
    type=AT_LEAST_ONE,
    default=1 << 20,
    help="The size of one fetch in bytes.  [default: 1 MiB]",
)
@click.option(
    "--max-wait-ms",
    type=AT_LEAST_ZERO,
    default=1000,
    help="The time in milliseconds that a broker may wait for data.  [default: 1000]",
)
@click.option(
    "--report-interval-ms",
    type=AT_LEAST_ONE,
    help="Print the progress at this interval in milliseconds.",
)
@click.option(
    "--timeout", "answer_ms", type=AT_LEAST_ONE, default=60_000, show_default=True,
    help="Milliseconds to wait for an answer."
)  # fmt: skip
@click.option(
    "--copies", type=AT_LEAST_ONE, help="The number of copies that each partition must have."
)
@click.option("--exact", is_flag=True, help="Compare compacted partitions byte by byte too.")
@click.option(
    "--compacted", is_flag=True, help="Compare the last record of each key in every partition."
)
@client_config_option()
@overrides_option("A property of the Kafka client; it overrides the file.")
@output_option(also=["text"])
def command(
    *,
    sources: tuple[str, ...],
    servers: tuple[str, ...],
    topics_include: str | None,
    partitions: PartitionRanges | None,
    timestamp: int,
    fetch_size: int,
    max_wait_ms: int,
    report_interval_ms: int | None,
    answer_ms: int,
    copies: int | None,
    exact: bool,
    compacted: bool,
    config_file: Path | None,
    overrides: dict[str, str],
    output: str,
) -> None:
    """Compare copies of logs: log directories at rest, live clusters, or one of each.

    Each partition is the same, or it is shown with the first offset where the copies diverge,
    both leader epochs, both CRCs and the cause. In a compacted partition, the last record of
    each key is compared. The exit code is 0 if all are the same, 1 if some differ, 2 if some
    could not be compared.
    """
    directories, clusters = directories_and_clusters(sources)
    clusters += servers
    if not directories and not clusters and (globally := global_servers()) is not None:
        clusters = (globally,)
    if len(directories) + len(clusters) < 2 and not clusters:
        raise click.UsageError("give two log directories or clusters, or one cluster")
    if exact and compacted:
        raise click.UsageError("--exact and --compacted contradict each other")
    is_json = output == JSON
    with progress("comparing") as bar:
        listener = ResultListener(
            on_partition=show if not is_json else _nothing,
            on_progress=partial(show_progress, bar, as_line=report_interval_ms is not None),
            interval_ms=report_interval_ms or BAR_INTERVAL_MS,
        )
        verification = VerificationPlan(
            directories=directories,
            bootstrap_servers=clusters,
            selection=PartitionSelection(
                topics=topics_include or ".*", partitions=partitions, timestamp=timestamp
            ),
            rules=Rules(copies=copies, exact=exact, compacted=compacted),
            fetching=FetchOptions(fetch_size=fetch_size, max_wait_ms=max_wait_ms),
            client_config={
                "default_api_timeout_ms": answer_ms,
                **client_arguments(properties_of(config_file, overrides)),
            },
            listener=listener,
        )
        comparison = run(verification)
    if is_json:
        show_json(comparison.to_dict())
    sys.exit(exit_code_of(comparison))


def directories_and_clusters(
    sources: Sequence[str],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Separate directories from bootstrap servers; any other source is a missing directory."""
    directories = tuple(each for each in sources if Path(each).is_dir() or not _is_servers(each))
    return directories, tuple(each for each in sources if each not in directories)


def _is_servers(text: str) -> bool:
    try:
        return bool([HostPort.parse(each.strip()) for each in text.split(",")])
    except ValueError:
        return False


def run(verification: VerificationPlan) -> Comparison:
    """Return the comparison; if there can be none, exit with one line and code 2."""
    try:
        comparison = trio.run(_compared, verification)
        if nothing_compared(comparison):
            raise CannotCompareError("no partition is in two of the sources")
    except (UnderstudyError, StorageError, OSError, CommandError) as error:
        tell(f"understudy: cannot compare: {error}")
        sys.exit(COULD_NOT_COMPARE)
    return comparison


async def _compared(verification: VerificationPlan) -> Comparison:
    """Return the comparison; CommandError if nobody listens where a cluster should be."""
    compare: Callable[[], Awaitable[Comparison]] = partial(verification.run, production_seams())
    for servers in verification.bootstrap_servers:
        compare = partial(ClusterConnection(servers).unless_refused, compare)
    return await compare()


def exit_code_of(comparison: Comparison) -> int:
    """Return the exit code; 2 takes precedence over 1, as in diff."""
    if missing := len(comparison.not_compared):
        tell(f"understudy: {missing} of {len(comparison.partitions)} could not be compared")
        return COULD_NOT_COMPARE
    return 0 if comparison.same else 1


def show(result: Outcome) -> None:
    show_line(str(result))


def show_progress(
    bar: Bar, partition: TopicPartition, compared: Compared, *, as_line: bool
) -> None:
    text = f"{partition}: the same up to offset {compared.end_offset} so far"
    bar.say(text)
    if as_line:
        tell(text)


def _nothing(_: Outcome) -> None:
    """Show nothing: JSON is one document at the end."""
