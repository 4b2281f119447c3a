"""`understudy up`: a cluster on this machine, until interrupted.

    NODE-ID  STATUS   KAFKA-ADDRESS
    1        running  127.0.0.1:9092
    2        running  127.0.0.1:9093
    3        running  127.0.0.1:9094

In one process by default, which is the fastest to start; with --isolated each broker and
the controller is a process of its own, which can be killed like one. Both keep their data
in the same places, so a cluster may be started one way today and the other way tomorrow.
"""

import contextlib
import gc
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from replication.cli.connection import key_values, properties_of
from replication.cli.output import JSON, OUTPUT, json_line, show_line, tell
from replication.cli.served import (
    ControlServer,
    HttpPort,
    PageServer,
    control_option,
    metrics_option,
    ui_option,
)

if TYPE_CHECKING:
    from replication.cli.one_process import Show

BASE_PORT = 9092
LOOK_SECONDS = 0.5
DEFAULT_BROKERS = 3
COPY_STATE = "mirror.json"  # what imports its owner takes longer than a cluster to start


@click.command(name="up")
@click.option(
    "-n",
    "--brokers",
    type=click.IntRange(min=1),
    help="How many brokers.  [default: as many as DATA-DIR has, or 3]",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to keep the data; by default a temporary directory, deleted at the end.",
)
@click.option(
    "--base-port",
    type=click.IntRange(1, 65535),
    help=f"Broker 1 listens there, broker 2 one above, ...  [default: {BASE_PORT}]",
)
@click.option("--any-port", is_flag=True, help="Listen on free ports.")
@click.option("--isolated", is_flag=True, help="A process for each broker and the controller.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of configuration keys, as in server.properties; passwords belong there.",
)
@click.option(
    "-X",
    "overrides",
    multiple=True,
    callback=key_values,
    metavar="KEY=VALUE",
    help="Set a configuration key, over those of the file.",
)
@metrics_option(
    "Serve /metrics for Prometheus there; 0 takes any port. With --isolated each process serves"
    " its own: the controller there, broker 1 one above, ..."
)
@OUTPUT
@ui_option("Serve the live page there: a cluster to look at, and to hurt; 0 takes any port.")
@control_option(
    "Serve what steers the cluster there, described at /openapi.json: kill, freeze, cut, let"
    " requests go wrong (docs/control.md); 0 takes any port."
)
def command(
    brokers: int | None,
    data_dir: Path | None,
    base_port: int | None,
    *,
    any_port: bool,
    isolated: bool,
    config_file: Path | None,
    overrides: Mapping[str, str],
    metrics: HttpPort | None,
    ui: HttpPort | None,
    control: HttpPort | None,
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
            brokers, properties = _of_a_copy(data_dir, brokers, properties)
        known = _brokers_with_data(data_dir)
        brokers = brokers or max(known, default=DEFAULT_BROKERS)
        warnings = [
            *_of_brokers_left_out(data_dir, known, brokers),
            *_of_who_was_killed(data_dir, brokers, properties),
        ]
        run = _run_isolated if isolated else _run_here
        run(
            data_dir=data_dir,
            brokers=brokers,
            first_port=first_port,
            properties=properties,
            warnings=warnings,
            metrics=metrics,
            ui=ui,
            control=control,
            show=partial(_show, output=output),
        )


def _of_a_copy(
    data_dir: Path, brokers: int | None, properties: dict[str, str]
) -> tuple[int, dict[str, str]]:
    """What `understudy follow` left there: its one broker serves it."""
    from replication.cli.follow.served import prepare

    read_only, own = prepare(str(data_dir))
    if read_only:
        if brokers not in (None, 1):
            raise click.UsageError("a copy is served by one broker, until it is promoted: -n 1")
        tell("understudy: a copy, served read-only; `understudy promote` ends that")
    return brokers or 1, own | properties


def _brokers_with_data(data_dir: Path) -> list[int]:
    """Return the ids of the brokers that have written to `data_dir`."""
    found = (path.parts[-3] for path in data_dir.glob("broker-*/log/meta.properties"))
    numbers = (name.removeprefix("broker-") for name in found)
    return sorted(int(number) for number in numbers if number.isdecimal())


def _of_brokers_left_out(data_dir: Path, known: list[int], brokers: int) -> Iterator[str]:
    """Name the brokers whose data lies there and that will not run."""
    left_out = [each for each in known if each > brokers]
    if left_out:
        yield (
            f"understudy: {data_dir} has the data of brokers {_numbers(known)}, and"
            f" {_numbers(left_out)} will not run: replicas there stay offline;"
            f" -n {known[-1]} runs all of them"
        )


def _numbers(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids))


def _of_who_was_killed(data_dir: Path, brokers: int, properties: dict[str, str]) -> Iterator[str]:
    """The controller takes a killed broker for alive until its session ends, and has it wait."""
    logs = {each: data_dir / f"broker-{each}" / "log" for each in range(1, brokers + 1)}
    killed = [
        each
        for each, log in logs.items()
        if (log / "meta.properties").exists() and not (log / ".kafka_cleanshutdown").exists()
    ]
    if not killed:
        return
    from replication.config import BrokerConfig

    # The one has to be longer than the other.
    timing = ("broker.session.timeout.ms", "broker.heartbeat.interval.ms")
    said = {key: properties[key] for key in timing if key in properties}
    seconds = BrokerConfig.from_properties({"node.id": "1"} | said).broker_session_timeout_ms / 1000
    yield (
        f"understudy: not shut down cleanly: broker {_numbers(killed)};"
        f" waiting until their sessions have ended, up to {seconds:g} s"
    )


def _warn(warnings: Iterable[str]) -> None:
    """Once the data is ours: a cluster that runs looks like one that was killed."""
    for each in warnings:
        tell(each)


def _show(addresses: list[str], urls: Mapping[str, str], *, output: str) -> None:
    """Plain text: what draws nicer tables takes longer to import than a cluster to start.

    As JSON it is one line, so that who reads it need not wait for the end of the cluster.
    """
    if output == JSON:
        brokers = [
            {"node_id": broker_id, "status": "running", "kafka_address": address}
            for broker_id, address in enumerate(addresses, start=1)
        ]
        servers = ",".join(addresses)
        show_line(json_line({"bootstrap_servers": servers, "brokers": brokers, "urls": dict(urls)}))
        return
    width = len("running")
    show_line(f"NODE-ID  {'STATUS':<{width}}  KAFKA-ADDRESS")
    for broker_id, address in enumerate(addresses, start=1):
        show_line(f"{broker_id:<7}  {'running':<{width}}  {address}")
    for purpose, url in urls.items():
        show_line(f"{purpose}: {url}")


def _run_here(
    *,
    data_dir: Path,
    brokers: int,
    first_port: int,
    properties: dict[str, str],
    warnings: Sequence[str],
    metrics: HttpPort | None,
    ui: HttpPort | None,
    control: HttpPort | None,
    show: "Show",
) -> None:
    # What is imported now lives as long as the process: the collector need not look at it.
    gc.disable()
    from replication.cli.one_process import OneProcess

    gc.freeze()
    gc.enable()
    OneProcess(
        data_dir=data_dir,
        brokers=brokers,
        first_port=first_port,
        properties=properties,
        metrics=metrics,
        ui=ui,
        control=control,
        warn=partial(_warn, warnings),
        show=show,
    ).run()


def _run_isolated(
    *,
    data_dir: Path,
    brokers: int,
    first_port: int,
    properties: dict[str, str],
    warnings: Sequence[str],
    metrics: HttpPort | None,
    ui: HttpPort | None,
    control: HttpPort | None,
    show: "Show",
) -> None:
    from replication.broker.defaults import default_properties
    from replication.cli.isolated import IsolatedCluster

    # Or it is said now what is missing.
    page, served = PageServer(ui), ControlServer(control)
    is_steered = ui is not None or control is not None

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    # Both by name: a shell that starts us in the background has SIGINT ignored.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    ports = [first_port + index for index in range(brokers + 1)] if first_port else []
    config = default_properties(brokers) | properties
    with (
        contextlib.suppress(KeyboardInterrupt),
        IsolatedCluster(
            data_dir,
            brokers,
            ports=ports,
            config=config,
            forked=True,
            metrics=metrics,
            steered=is_steered,
        ) as cluster,
    ):
        _warn(warnings)
        if is_steered:
            from replication.cli.steered_processes import steer

            steer(cluster, page, served, show)
            return
        cluster.wait_until_ready()
        show(cluster.bootstrap_servers.split(","), cluster.metrics_urls)
        while True:
            # Not signal.pause(): a signal that comes just before it would be waited for in vain.
            time.sleep(LOOK_SECONDS)
