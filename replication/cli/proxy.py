"""`understudy proxy`: fault rules in front of any Kafka, until interrupted.

    NODE-ID  PROXY-ADDRESS    KAFKA-ADDRESS
    1        127.0.0.1:19092  kafka-1:9092
    2        127.0.0.1:19093  kafka-2:9092

Clients that begin at the first address stay on the proxy. What happens to a broker behind it is a
line on standard error, when it is lost and when it is back.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import trio

from replication.cli.interruptions import STOP_SIGNALS
from replication.cli.options import (
    FILE,
    overrides_option,
    properties_of,
    rule_file_option,
    rules_of,
)
from replication.cli.output import JSON, OUTPUT, json_line, show_line, show_table, tell
from replication.cli.running import allow_many_files, reporting_bugs
from replication.cli.served import HttpPort, check_http, fault_sites, http_option, serve
from replication.client.config import ClientConfig
from replication.config.security import Introduction
from replication.events import Event, UpstreamFound, UpstreamLost, ignore
from replication.faults import AddedRule, FaultRule
from replication.faults.node_faults import Faults
from replication.net.clock import LoopClock
from replication.net.raising import raising_only_one
from replication.proxy.proxy import LOOPBACK, UNKNOWN_BROKER, FrontedBroker, Proxy, open_proxy
from storage.attributes import frozen

FIRST_PORT = 19092


@click.command(name="proxy")
@click.option(
    "--upstream", required=True, metavar="HOST:PORT", help="A broker of the Kafka behind the proxy."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=FIRST_PORT,
    show_default=True,
    help="The port for that broker; the other brokers get the next free ones. 0 takes any.",
)
@click.option(
    "--host", default=LOOPBACK, show_default=True, help="The address at which the proxy listens."
)
@click.option(
    "--advertised-host",
    help="The name of this machine for clients on others.  [default: as --host]",
)
@rule_file_option
@http_option(
    "--control",
    about="Serve the control API for fault rules at this port (docs/control.md); 0 takes any port.",
)
@click.option(
    "--upstream-config",
    "config_file",
    type=FILE,
    help="A file of Kafka client properties for connections to brokers: TLS, and a login. Without a"
    " login in it, the clients' own logins pass.",
)
@overrides_option("A property for connections to brokers; it overrides the file.")
@OUTPUT
def command(
    upstream: str,
    port: int,
    host: str,
    advertised_host: str | None,
    rule_file: Path | None,
    *,
    control: HttpPort | None,
    config_file: Path | None,
    overrides: Mapping[str, str],
    output: str,
) -> None:
    """Put fault rules in front of any Kafka, until interrupted.

    Clients that begin at the proxy stay on it: it replaces the addresses of brokers in responses.
    """
    if advertised_host is None and host in ("", "0.0.0.0", "::"):  # noqa: S104 - compared
        raise click.UsageError(f"--host {host} needs --advertised-host, the name for clients")
    check_http(control)
    allow_many_files()
    properties = {"bootstrap.servers": upstream} | properties_of(config_file, overrides)
    run = ProxyRun(
        upstream=upstream,
        port=port,
        host=host,
        advertised_host=advertised_host,
        introduction=ClientConfig.from_properties(properties).introduction,
        rules=rules_of(rule_file),
        control=control,
        output=output,
    )
    trio.run(run.run, clock=LoopClock())


@frozen(eq=False)
class ProxyFaults:
    """The fault rules of a proxy, for the control API."""

    faults: Faults

    async def add_fault(self, rule: FaultRule) -> AddedRule:
        return self.faults.add(rule)

    async def remove_fault(self, rule: AddedRule) -> None:
        self.faults.remove(rule)

    async def clear_faults(self) -> None:
        self.faults.clear()


@frozen(kw_only=True)
class ProxyRun:
    """A proxy that the command is about to run."""

    upstream: str
    port: int
    host: str
    advertised_host: str | None
    introduction: Introduction
    rules: Sequence[FaultRule]
    control: HttpPort | None
    output: str

    async def run(self) -> None:
        on_bug = reporting_bugs(ignore)
        opened = open_proxy(
            self.upstream,
            port=self.port,
            host=self.host,
            advertised_host=self.advertised_host,
            introduction=self.introduction,
            sink=tell_of_brokers,
            on_bug=on_bug,
        )
        with trio.open_signal_receiver(*STOP_SIGNALS) as signals, raising_only_one():
            async with opened as proxy, trio.open_nursery() as nursery:
                for rule in self.rules:
                    proxy.faults.add(rule)
                sites = fault_sites(self.control, ProxyFaults(proxy.faults))
                self._show(proxy, await serve(sites, nursery, on_bug))
                if proxy.fronted[0].broker_id == UNKNOWN_BROKER:
                    tell(
                        f"understudy: no response has named {self.upstream} as a broker yet;"
                        " rules for a broker do not match its connections until then"
                    )
                await anext(signals)
                nursery.cancel_scope.cancel()

    def _show(self, proxy: Proxy, urls: Mapping[str, str]) -> None:
        if self.output == JSON:
            brokers = [
                {
                    "node_id": _node_id(each),
                    "proxy_address": str(proxy.advertised(each)),
                    "kafka_address": str(each.address),
                }
                for each in proxy.fronted
            ]
            servers = {"bootstrap_servers": proxy.bootstrap_servers, "brokers": brokers}
            show_line(json_line(servers | {"urls": dict(urls)}))
            return
        rows = [(_node_id(each), proxy.advertised(each), each.address) for each in proxy.fronted]
        show_table(("NODE-ID", "PROXY-ADDRESS", "KAFKA-ADDRESS"), rows)
        for purpose, url in urls.items():
            show_line(f"{purpose}: {url}")


def _node_id(fronted: FrontedBroker) -> int | None:
    return None if fronted.broker_id == UNKNOWN_BROKER else fronted.broker_id


def tell_of_brokers(event: Event) -> None:
    """Write a line about a broker that is lost, or back."""
    match event:
        case UpstreamLost():
            tell(f"understudy: {_named(event.broker)}{event.address} is gone: {event.cause}")
        case UpstreamFound():
            tell(f"understudy: {_named(event.broker)}{event.address} is back")
        case _:
            pass


def _named(broker: int) -> str:
    return "" if broker == UNKNOWN_BROKER else f"broker {broker} at "
