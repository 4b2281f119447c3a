"""`make bench-kafka`: all measures, or those that are named."""

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import attrs
import click

from tests.bench.kafka import (
    catch_up,
    controllers,
    failover,
    groups,
    idle,
    latency,
    mirror,
    start_up,
    throughput,
    warm_up,
)
from tests.bench.kafka.asking import addresses, create_topic, write
from tests.bench.kafka.comparison import GIB, KAFKA, OURS, QUICK, Comparison, Sizes
from tests.bench.kafka.report import line, table, write_page
from tests.bench.kafka.sides import (
    BROKERS,
    Opener,
    RivalCluster,
    Side,
    open_kafka,
    open_mixed,
    open_ours,
    start_kafka,
    start_ours,
)

Measure = Callable[[Mapping[str, RivalCluster], Sizes], Iterable[Comparison]]

TOGETHER: dict[str, Measure] = {
    "idle": idle.run,  # before anything else has made them grow
    "latency": latency.run,
    "throughput": throughput.run,
    "idle_partitions": idle.run_partitions,
    "catch_up": catch_up.run,
    "mirror": mirror.run,
}
"""On clusters that live through all of them, in this order."""
MEASURES = ["start_up", *TOGETHER, "failover", "controllers", "groups", "mixed"]
CONFIG = {
    # A replica that was taken away is to be gone before it is wanted again.
    "log.segment.delete.delay.ms": "1000",
    "offsets.topic.replication.factor": "3",
}


@click.command()
@click.argument("measures", nargs=-1, type=click.Choice(MEASURES))
@click.option("--quick", is_flag=True, help="Smaller sizes, fewer rounds.")
@click.option("--gib", type=float, help="What a replica, or a mirror, catches up with.")
@click.option("--rounds", type=int, help="That count, of most measures.")
@click.option("--ours", "ours_alone", is_flag=True, help="Without Apache Kafka.")
@click.option("--write", "write_docs", is_flag=True, help="The table and the plot into docs/.")
def main(
    measures: tuple[str, ...],
    *,
    quick: bool,
    gib: float | None,
    rounds: int | None,
    ours_alone: bool,
    write_docs: bool,
) -> None:
    """The same work on our brokers and on Apache Kafka's."""
    sizes = QUICK if quick else Sizes()
    if gib is not None:
        size = int(gib * GIB)
        sizes = attrs.evolve(sizes, catch_up_bytes=size, mirrored_bytes=size)
    if rounds is not None:
        sizes = attrs.evolve(sizes, rounds=rounds, start_up_rounds=rounds, failover_rounds=rounds)
    found: list[Comparison] = []
    began = time.time()
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as scratch:
        keep_bytecode(f"{scratch}/bytecode")
        try:
            for comparison in compare(
                measures or MEASURES, sides(ours_alone=ours_alone), sizes, Path(scratch)
            ):
                print(line(comparison), flush=True)
                found.append(comparison)
        finally:  # what was measured stays so, whatever comes after it
            ran = how_it_ran(began, sizes)
            print(f"\n{ran}\n\n{table(found)}")
    if write_docs:
        write_page(found, ran=ran)


def how_it_ran(began: float, sizes: Sizes) -> str:
    """Return the sizes, the time and the load of the machine, in Markdown."""
    when = time.strftime("%d %B %Y, %H:%M", time.gmtime(began))
    minutes = (time.time() - began) / 60
    listed = ", ".join(
        f"{name.replace('_', ' ')} {value:,}" for name, value in attrs.asdict(sizes).items()
    )
    return (
        f"Begun on {when} UTC, in {minutes:.0f} minutes, on {os.cpu_count()} cores;"
        f" load average {os.getloadavg()[2]:.1f} over the last quarter hour, ours included.\n"
        f"Sizes: {listed}."
    )


def keep_bytecode(directory: str) -> None:
    """Keep compiled code for the processes started from here, as an installed package has it."""
    os.environ["PYTHONPYCACHEPREFIX"] = directory
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def sides(*, ours_alone: bool) -> dict[str, Side]:
    found = {OURS: Side(open_ours, start_ours)}
    return found if ours_alone else found | {KAFKA: Side(open_kafka, start_kafka)}


def compare(
    measures: Sequence[str], rivals: Mapping[str, Side], sizes: Sizes, scratch: Path
) -> Iterator[Comparison]:
    openers = {name: side.open for name, side in rivals.items()}
    if "start_up" in measures:
        yield from start_up.run(rivals, sizes)
    if wanted := [measure for name, measure in TOGETHER.items() if name in measures]:
        if wanted[-1] is not idle.run:
            wanted.insert(wanted[0] is idle.run, warm_up.run)
        yield from on_clusters(wanted, openers, CONFIG, sizes, scratch / "together")
    if "failover" in measures:
        yield from on_clusters(
            [failover.run], openers, failover.CONFIG, sizes, scratch / "failover"
        )
    if "controllers" in measures:
        yield from on_clusters(
            [controllers.run],
            openers,
            controllers.CONFIG,
            sizes,
            scratch / "controllers",
            number_of_controllers=controllers.CONTROLLERS,
        )
    if "groups" in measures:
        yield from on_clusters([groups.run], openers, groups.CONFIG, sizes, scratch / "groups")
    if "mixed" in measures and KAFKA in rivals:
        both = {"mixed": open_mixed}
        yield from on_clusters([catch_up.run_mixed], both, CONFIG, sizes, scratch)


def on_clusters(
    measures: Sequence[Measure],
    openers: Mapping[str, Opener],
    config: Mapping[str, str],
    sizes: Sizes,
    scratch: Path,
    *,
    number_of_controllers: int = 1,
) -> Iterator[Comparison]:
    with ExitStack() as stack:
        clusters = {}
        for name, open_cluster in openers.items():
            directory = scratch / name.replace(" ", "-")
            clusters[name] = stack.enter_context(
                open_cluster(directory, config, number_of_controllers)
            )
            brokers = addresses(clusters[name].bootstrap_servers)
            create_topic(brokers[0], "ready", [list(BROKERS)])
            write(brokers, "ready")
        for measure in measures:
            yield from measure(clusters, sizes)


if __name__ == "__main__":
    main()
