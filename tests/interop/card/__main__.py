"""The conformance card: stock clients against features, from runs against three of our brokers.

    python -m tests.interop.card [--client NAME]... [--only NAME]... [--clients-only]
                                 [--output FILE] [--proxy]

Each probe is a process of its own with a time limit; what fails is listed under the table, with the
last line that it said. Applications (`applications/`) run after the clients; `--only` runs some of
them and no client. What is not run keeps the rows that the card has.
"""

import importlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import click
import trio

from replication.cli.isolated import IsolatedCluster
from replication.client import Admin
from replication.client.admin import NewTopic
from replication.security.rules.acls import Operation, PatternType, Permission, ResourceType
from replication.wire.describe_acls import DescribeAclsRequest
from tests import conformance
from tests.clients.proxied import proxy_process
from tests.interop import tools
from tests.interop.card.applications import table
from tests.interop.card.applications.application import APPLICATIONS
from tests.interop.card.features import CLIENTS, FEATURES
from tests.interop.card.secured import WAYS, SecuredCluster, rights_of
from tests.interop.own_clients import asked_until

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "conformance-card.md"
LIMIT_SECONDS: Final = 120.0
START_SECONDS: Final = 120.0
WORKS, FAILS, NOT_OFFERED = "yes", "**no**", "-"

ROWS: Final = FEATURES | {name: f"security: {way.title}" for name, way in WAYS.items()}
MEANING: Final = (
    f"`{WORKS}`: it was done, and what came of it was looked at."
    f" `{FAILS}`: it was tried and failed; the reasons are below."
    f" `{NOT_OFFERED}`: the client does not offer it, or not in the way that is asked for here."
)

CONFIG: Final = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "100",
    "group.coordinator.rebalance.protocols": "classic,consumer",
}


@attrs.frozen
class Outcome:
    mark: str
    reason: str = ""


@attrs.frozen
class Column:
    """A client that is there, its version, and what became of each probe."""

    name: str
    version: str
    outcomes: dict[str, Outcome] = attrs.field(factory=dict)

    def note(self, feature: str, outcome: Outcome) -> None:
        self.outcomes[feature] = outcome
        click.echo(f"{self.name:14}{feature:24}{outcome.mark:10}{outcome.reason}")


def sessions_opened(cluster: IsolatedCluster) -> int:
    """Return how many fetch sessions of clients our brokers have opened so far."""
    return count_in_logs(cluster, r"fetch_session_opened .*privileged=False")


def count_in_logs(cluster: IsolatedCluster, pattern: str) -> int:
    """Return how often the pattern is in the brokers' logs."""
    logs = [(cluster.directory(each) / "output.log").read_text() for each in cluster.node_ids]
    return sum(len(re.findall(pattern, each)) for each in logs)


def try_feature(
    cluster: IsolatedCluster, column: Column, feature: str, servers: str | None = None
) -> Outcome:
    """Run a probe at the brokers, or at `servers`, a proxy in front of them."""
    servers = servers or cluster.bootstrap_servers
    offered = vars(importlib.import_module(CLIENTS[column.name]))
    topic = topic_of(column.name, feature)
    if feature == "fetch_sessions":
        before = sessions_opened(cluster)
        outcome = run(servers, column.name, "produce_and_consume", topic)
        opened = sessions_opened(cluster) > before
        return outcome if outcome.mark == FAILS or opened else Outcome(NOT_OFFERED)
    if feature not in offered:
        return Outcome(NOT_OFFERED)
    return run(servers, column.name, feature, topic)


def try_way(secured: SecuredCluster, column: Column, name: str) -> Outcome:
    """A client that was closed on when its login ended does not log in again."""
    way = WAYS[name]
    if way.probe not in vars(importlib.import_module(CLIENTS[column.name])):
        return Outcome(NOT_OFFERED)
    before = logins_ended(secured.cluster)
    outcome = run(secured.entrance(way).to_json(), column.name, name, topic_of(column.name, name))
    if way.probe == "stay" and outcome.mark == WORKS and logins_ended(secured.cluster) > before:
        return Outcome(NOT_OFFERED)
    return outcome


def logins_ended(cluster: IsolatedCluster) -> int:
    """Connections so far that were used past the end of their login."""
    return count_in_logs(cluster, r"connection_refused .*the login has expired")


def run(servers: str, client: str, feature: str, topic: str) -> Outcome:
    command = [sys.executable, "-m", "tests.interop.card.probe", client, feature, servers, topic]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS
        )
    except subprocess.TimeoutExpired:
        return Outcome(FAILS, f"not done within {LIMIT_SECONDS:.0f} s")
    if done.returncode == 0:
        return Outcome(WORKS)
    return Outcome(FAILS, reason_in(done.stderr, done.returncode))


def reason_in(errors: str, exit_code: int) -> str:
    """The most telling line: the last that names an error."""
    lines = [line.strip(" |") for line in errors.splitlines() if line.strip(" |+-")]
    telling = [line for line in lines if re.search(r"^[\w.]*(Error|Exception)\b", line)]
    found = (telling or lines or [f"exit code {exit_code}"])[-1]
    return found[:200].replace("|", "/")


def topic_of(client: str, feature: str) -> str:
    return f"{client}-{feature.replace('_', '-')}"


async def make_topics(servers: str, names: list[str]) -> None:
    async with Admin(servers) as admin:
        await make(admin, names)


async def make(admin: Admin, names: list[str], *, replication_factor: int = 3) -> None:
    async def leaders() -> list[int]:
        described = await admin.describe_topics(names)
        return [each.leader for topic in described.values() for each in topic.partitions]

    new = [
        NewTopic(name=each, partitions=2, replication_factor=replication_factor) for each in names
    ]
    await admin.create_topics(new)
    await asked_until(leaders, lambda found: min(found) > 0)


async def make_ways(secured: SecuredCluster, clients: list[str]) -> None:
    """A topic for each client and way in, and who may use it."""
    topics = {topic_of(client, name): way for client in clients for name, way in WAYS.items()}
    rights = [right for name, way in topics.items() for right in rights_of(way, name)]
    async with secured.admin() as admin:
        await make(admin, [*topics])
        await admin.create_acls(rights)
        for broker_id in await admin.calls.broker_ids():
            await asked_until(partial(acls_at, admin, broker_id), lambda acls: acls == len(rights))


async def acls_at(admin: Admin, broker_id: int) -> int:
    """Return how many ACLs the broker knows: it hears of them from the controller, later."""
    request = DescribeAclsRequest(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )
    response = await admin.calls.broker(broker_id, request)
    return sum(len(each.acls) for each in response.resources)


def not_served(servers: str) -> list[str]:
    """APIs that Kafka's newest clients know and our brokers do not, as Kafka's tool names them."""
    said = tools.run_tool(tools.API_VERSIONS, "--bootstrap-server", servers)
    return sorted(set(re.findall(r"(\w+)\(\d+\): UNSUPPORTED", said)))


def page(
    columns: list[Column],
    missing: list[str],
    *,
    day: str,
    applications: Mapping[table.Key, str] | None = None,
) -> str:
    """The table, the failures, the applications, and what is not served at all."""
    lines = [
        "# Conformance card",
        "",
        "Which clients do what against three brokers of understudy: made by `make card`, from runs.",
        f"The last was on {day}.",
        "",
        MEANING,
        "The probes are in `tests/interop/card`, one function for each feature of each client.",
        "",
        "| | " + " | ".join(each.name for each in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
        "| version | " + " | ".join(each.version for each in columns) + " |",
    ]
    for feature, title in ROWS.items():
        if not all(feature in column.outcomes for column in columns):
            continue
        marks = [column.outcomes[feature].mark for column in columns]
        lines.append(f"| {title} | " + " | ".join(marks) + " |")
    failures = [
        f"| {column.name} | {ROWS[feature]} | `{outcome.reason.replace('`', '')}`"
        f" | {known_of(column.name).get(feature, '')} |"
        for column in columns
        for feature, outcome in column.outcomes.items()
        if outcome.mark == FAILS
    ]
    lines += ["", "## What fails", ""]
    lines += ["| client | feature | last words | why |", "|---|---|---|---|", *failures]
    lines += table.section(applications or {})
    if missing:
        lines += ["", "## What our brokers do not serve", ""]
        lines += [
            "kafka-broker-api-versions lists them; clients see in ApiVersions that they are not served.",
            "",
        ]
        lines += [", ".join(f"`{each}`" for each in missing) + "."]
    return "\n".join([*lines, *behaviours_shown(), ""])


def known_of(client: str) -> dict[str, str]:
    """Return the known failures that a client's module lists."""
    module = importlib.import_module(CLIENTS[client]) if client in CLIENTS else None
    found: dict[str, str] = getattr(module, "KNOWN", {})
    return found


def behaviours_shown() -> list[str]:
    """Return the lines with the counts of `make conformance`."""
    groups = conformance.counted(conformance.read_list())
    held, not_yet, out_of_scope = (sum(row[each] for _, row in groups) for each in range(3))
    counts = (
        f"Of the behaviours in `tests/conformance.txt`, {held} are held by tests of ours,"
        f" {not_yet} are not yet, {out_of_scope} are out of scope; `make conformance` counts anew."
    )
    return ["", "## What Kafka's own tests assert", "", counts]


def try_ways(columns: list[Column]) -> None:
    """At brokers of their own, which do not let everybody in."""
    with tempfile.TemporaryDirectory(prefix="understudy-card-") as directory:
        secured = SecuredCluster.planned(Path(directory), CONFIG)
        with secured.cluster:
            secured.cluster.wait_until_ready()
            trio.run(make_ways, secured, [each.name for each in columns])
            for column in columns:
                for name in WAYS:
                    column.note(name, try_way(secured, column, name))


@click.command()
@click.option("--client", "clients", multiple=True, type=click.Choice([*CLIENTS]))
@click.option("--output", type=click.Path(path_type=Path), default=PAGE, show_default=True)
@click.option(
    "--proxy", is_flag=True, help="Through `understudy proxy`; without the ways to log in."
)
@click.option("--only", multiple=True, type=click.Choice([*APPLICATIONS]), help="An application.")
@click.option("--clients-only", is_flag=True, help="Run no application.")
def main(
    clients: tuple[str, ...],
    output: Path,
    only: tuple[str, ...],
    *,
    proxy: bool,
    clients_only: bool,
) -> None:
    before = output.read_text() if output.exists() else ""
    rows = table.rows_in(before)
    columns, missing = ([], []) if only else try_clients(clients, proxy=proxy)
    if not (clients or clients_only or proxy):
        rows |= table.run_applications(only or APPLICATIONS)
    if only:
        output.write_text(table.with_section(before, rows))
        return
    today = datetime.now(tz=UTC).date().isoformat()
    output.write_text(page(columns, missing, day=today, applications=rows))


def try_clients(clients: tuple[str, ...], *, proxy: bool) -> tuple[list[Column], list[str]]:
    """Return a column for each client that is here, and the APIs that are not served."""
    columns: list[Column] = []
    for name in clients or CLIENTS:
        version = importlib.import_module(CLIENTS[name]).VERSION
        if version is None:
            click.echo(f"{name} is not here: its column is left out", err=True)
        else:
            columns.append(Column(name, version))
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="understudy-card-"))
        cluster = stack.enter_context(IsolatedCluster(Path(directory), brokers=3, config=CONFIG))
        cluster.wait_until_ready(START_SECONDS)
        servers = cluster.bootstrap_servers
        if proxy:
            servers = stack.enter_context(proxy_process(servers)).bootstrap_servers
        topics = [topic_of(column.name, each) for column in columns for each in FEATURES]
        trio.run(make_topics, cluster.bootstrap_servers, topics)
        for column in columns:
            for feature in FEATURES:
                column.note(feature, try_feature(cluster, column, feature, servers))
        java = any(column.name == "java" for column in columns)
        missing = not_served(servers) if java else []
    if not proxy:
        try_ways(columns)
    return columns, missing


if __name__ == "__main__":
    main()
