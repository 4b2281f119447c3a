"""`understudy up`: a cluster on this machine, until interrupted.

    NODE-ID  STATUS   KAFKA-ADDRESS
    1        running  127.0.0.1:9092
    2        running  127.0.0.1:9093
    3        running  127.0.0.1:9094

By default all nodes are in one process, which starts fastest. With --isolated, each broker and each
controller is a process of its own, which can be killed. Both ways keep their data in the same
places, so a cluster may be started either way.
"""

import contextlib
import gc
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from replication.cli.options import (
    AT_LEAST_ONE,
    FILE,
    NEW_DIRECTORY,
    overrides_option,
    properties_of,
    rule_file_option,
    rules_of,
)
from replication.cli.output import JSON, OUTPUT, json_line, show_line, tell
from replication.cli.served import (
    HttpPort,
    PageServer,
    check_http,
    http_option,
)
from storage.attributes import frozen

if TYPE_CHECKING:
    from replication.faults import FaultRule

BASE_PORT = 9092
LOOK_SECONDS = 0.5
DEFAULT_BROKERS = 3
# Importing `replication.mirror` and `replication.raft` for these would delay every start.
COPY_STATE = "mirror.json"
QUORUM_STATE = "__cluster_metadata-0/quorum-state"


@click.command(name="up")
@click.option(
    "-n",
    "--brokers",
    type=AT_LEAST_ONE,
    help="The number of brokers.  [default: as many as DATA-DIR has, or 3]",
)
@click.option(
    "--controllers",
    type=AT_LEAST_ONE,
    help="The number of controllers; three elect another leader when one dies.  [default: as many as"
    " DATA-DIR has, or 1]",
)
@click.option(
    "--combined",
    is_flag=True,
    help="Make the controllers the first of the brokers, each a node with both roles, as DATA-DIR may"
    " have them.",
)
@click.option(
    "--data-dir",
    type=NEW_DIRECTORY,
    help="The directory of the data.  [default: a temporary one, deleted at the end]",
)
@click.option(
    "--base-port",
    type=click.IntRange(1, 65535),
    help=f"The port of broker 1; broker 2 listens one above, ...  [default: {BASE_PORT}]",
)
@click.option("--any-port", is_flag=True, help="Listen on free ports.")
@click.option(
    "--isolated", is_flag=True, help="Run each broker and each controller in a process of its own."
)
@click.option(
    "--config",
    "config_file",
    type=FILE,
    help="A file of configuration keys, as in server.properties; passwords belong there.",
)
@overrides_option("Set a configuration key; it overrides the file.")
@http_option(
    "--metrics",
    about="Serve /metrics for Prometheus at this port; 0 takes any port. With --isolated each process"
    " serves its own: the first controller at this port, the next node one above, ...",
)
@OUTPUT
@http_option(
    "--ui",
    about="Serve the live page at this port, which shows and breaks the cluster; 0 takes any port.",
)
@http_option(
    "--control",
    about="Serve the control API at this port: kill, freeze, cut, inject faults (docs/control.md);"
    " /openapi.json describes it; 0 takes any port.",
)
@rule_file_option
def command(
    brokers: int | None,
    controllers: int | None,
    data_dir: Path | None,
    base_port: int | None,
    *,
    combined: bool,
    any_port: bool,
    isolated: bool,
    config_file: Path | None,
    overrides: Mapping[str, str],
    metrics: HttpPort | None,
    ui: HttpPort | None,
    control: HttpPort | None,
    rule_file: Path | None,
    output: str,
) -> None:
    """Run a cluster until interrupted."""
    if any_port and base_port is not None:
        raise click.UsageError("--any-port and --base-port exclude each other")
    first_port = 0 if any_port else base_port or BASE_PORT
    properties = properties_of(config_file, overrides)
    with contextlib.ExitStack() as stack:
        if data_dir is None:
            data_dir = Path(stack.enter_context(TemporaryDirectory(prefix="understudy-")))
        data_dir = data_dir.resolve()
        if (data_dir / COPY_STATE).exists():
            brokers, properties = _settings_of_copy(data_dir, brokers, properties)
        known = _brokers_with_data(data_dir)
        brokers = brokers or max(known, default=DEFAULT_BROKERS)
        number, combined = _controllers_of(data_dir, controllers, combined=combined)
        plan = ClusterPlan(
            data_dir=data_dir,
            brokers=brokers,
            controllers=number,
            combined=combined,
            first_port=first_port,
            properties=properties,
            warnings=[
                *_warn_of_left_out_brokers(data_dir, known, brokers),
                *_warn_of_killed_brokers(data_dir, brokers, properties),
            ],
            metrics=metrics,
            ui=ui,
            control=control,
            rules=rules_of(rule_file),
            output=output,
        )
        if isolated:
            _run_isolated(plan)
        else:
            _run_here(plan)


@frozen(kw_only=True)
class ClusterPlan:
    """A cluster that `up` is about to run."""

    data_dir: Path
    brokers: int
    controllers: int
    combined: bool
    first_port: int
    """The port of broker 1; 0 for free ports."""
    properties: dict[str, str]
    warnings: Sequence[str]
    metrics: HttpPort | None
    ui: HttpPort | None
    control: HttpPort | None
    rules: "Sequence[FaultRule]"
    """The fault rules in force from the start."""
    output: str

    def warn(self) -> None:
        """Print the warnings, once the data is locked: a running cluster looks like a killed one."""
        for each in self.warnings:
            tell(each)

    def show(self, addresses: list[str], urls: Mapping[str, str]) -> None:
        """Print the addresses as plain text, without rich, which would delay the start; or as JSON.

        JSON is one line, so that a reader need not wait for the end of the cluster.
        """
        if self.output == JSON:
            brokers = [
                {"node_id": broker_id, "status": "running", "kafka_address": address}
                for broker_id, address in enumerate(addresses, start=1)
            ]
            cluster = {"bootstrap_servers": ",".join(addresses), "brokers": brokers}
            show_line(json_line(cluster | {"urls": dict(urls)}))
            return
        show_line("NODE-ID  STATUS   KAFKA-ADDRESS")
        for broker_id, address in enumerate(addresses, start=1):
            show_line(f"{broker_id:<7}  running  {address}")
        for purpose, url in urls.items():
            show_line(f"{purpose}: {url}")


def _settings_of_copy(
    data_dir: Path, brokers: int | None, properties: dict[str, str]
) -> tuple[int, dict[str, str]]:
    """Return the brokers (one) and the properties with which a copy is served."""
    from replication.cli.promote import prepare

    read_only, own = prepare(str(data_dir))
    if read_only:
        if brokers not in (None, 1):
            raise click.UsageError("one broker serves a copy until it is promoted: -n 1")
        tell("understudy: this is a copy, and read-only until `understudy promote`")
    return brokers or 1, own | properties


def _controllers_of(data_dir: Path, asked: int | None, *, combined: bool) -> tuple[int, bool]:
    """Return how many controllers to run, and whether they are brokers too.

    They are those that have data, for they are the voters.
    """
    separate = len([*data_dir.glob("controller*/log/meta.properties")])
    both = len([*data_dir.glob(f"broker-*/log/{QUORUM_STATE}")])
    known = separate or both
    if known and (asked not in (None, known) or (separate and combined)):
        flags = "--combined " * (not separate) + f"--controllers {known}"
        wrong = ", without --combined" * (separate > 0 and combined)
        raise click.UsageError(
            f"{data_dir} has the data of {known} controller{'s' * (known > 1)}: {flags}{wrong}"
        )
    return asked or known or 1, combined or both > 0


def _brokers_with_data(data_dir: Path) -> list[int]:
    """Return the ids of the brokers that have written to `data_dir`."""
    found = (path.parts[-3] for path in data_dir.glob("broker-*/log/meta.properties"))
    numbers = (name.removeprefix("broker-") for name in found)
    return sorted(int(number) for number in numbers if number.isdecimal())


def _warn_of_left_out_brokers(data_dir: Path, known: list[int], brokers: int) -> Iterator[str]:
    """Yield a warning about brokers that have data and will not run."""
    left_out = [each for each in known if each > brokers]
    if left_out:
        yield (
            f"understudy: {data_dir} has the data of brokers {_numbers(known)}, but"
            f" {_numbers(left_out)} will not run, and their replicas stay offline;"
            f" -n {known[-1]} runs all of them"
        )


def _numbers(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids))


def _warn_of_killed_brokers(
    data_dir: Path, brokers: int, properties: dict[str, str]
) -> Iterator[str]:
    """Yield a warning about killed brokers, which must wait until their sessions expire."""
    logs = {each: data_dir / f"broker-{each}" / "log" for each in range(1, brokers + 1)}
    killed = [
        each
        for each, log in logs.items()
        if (log / "meta.properties").exists() and not (log / ".kafka_cleanshutdown").exists()
    ]
    if not killed:
        return
    from replication.config import BrokerConfig

    # BrokerConfig checks that the first is longer than the second.
    timing = ("broker.session.timeout.ms", "broker.heartbeat.interval.ms")
    given = {key: properties[key] for key in timing if key in properties}
    seconds = (
        BrokerConfig.from_properties({"node.id": "1"} | given).broker_session_timeout_ms / 1000
    )
    yield (
        f"understudy: not shut down cleanly: broker {_numbers(killed)};"
        f" waiting until their sessions have expired, up to {seconds:g} s"
    )


def _run_here(plan: ClusterPlan) -> None:
    from replication.cli.one_process import OneProcess

    # Imported objects live as long as the process. With them a full collection stops every node
    # for 150 ms, and without them for 0.2 ms.
    gc.freeze()
    OneProcess(plan).run()


def _run_isolated(plan: ClusterPlan) -> None:
    from replication.broker.defaults import default_properties
    from replication.cli.isolated import IsolatedCluster
    from replication.cli.storage import format_new_directories

    # First: a missing extra is reported before anything starts.
    check_http(plan.ui, plan.control)
    page = PageServer(plan.ui)
    is_steered = plan.ui is not None or plan.control is not None or bool(plan.rules)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    # A shell that starts this in the background has SIGINT ignored.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    first = plan.first_port
    nodes = plan.brokers + plan.controllers
    ports = [first + index for index in range(nodes)] if first else []
    config = default_properties(plan.brokers) | plan.properties
    with (
        contextlib.suppress(KeyboardInterrupt),
        IsolatedCluster(
            plan.data_dir,
            plan.brokers,
            plan.controllers,
            combined=plan.combined,
            ports=ports,
            config=config,
            forked=True,
            prepare=format_new_directories,
            metrics=plan.metrics,
            steered=is_steered,
        ) as cluster,
    ):
        plan.warn()
        if is_steered:
            from replication.cli.steered_processes import steer

            steer(cluster, page, plan.control, plan.show, plan.rules)
            return
        cluster.wait_until_ready()
        plan.show(cluster.bootstrap_servers.split(","), cluster.metrics_urls)
        while True:
            # signal.pause() would miss a signal that comes just before it.
            time.sleep(LOOK_SECONDS)
