"""Consumer groups of the new protocol (KIP-848): Java's clients and tools, at both brokers.

Each test runs at Apache Kafka's broker and at ours, and asserts the same of both.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs
import pytest

from replication.cli.kafka.processes import java_environment
from tests.interop import tools
from tests.interop.card.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.slow]

MEMBER: Final = str(Path(__file__).with_name("Member.java"))
VERIFIABLE_CONSUMER: Final = "org.apache.kafka.tools.VerifiableConsumer"
GROUPS_COMMAND: Final = "org.apache.kafka.tools.GroupsCommand"
NEW: Final = "--command-property=group.protocol=consumer"
PARTITIONS: Final = 4


@attrs.frozen
class Broker:
    """One side's brokers, as tools reach them."""

    servers: str

    def ask(self, main_class: str, *arguments: str, stdin: str = "") -> str:
        return tools.run_tool(
            main_class, "--bootstrap-server", self.servers, *arguments, stdin=stdin
        )

    def refused(self, main_class: str, *arguments: str) -> str:
        """Return all that a tool says; some end with 0 although they failed."""
        done = tools.try_tool(main_class, "--bootstrap-server", self.servers, *arguments)
        return done.output + done.errors

    def fill(self, topic: str) -> list[str]:
        """Create a topic, with a record in each partition; return their values."""
        self.ask(tools.TOPICS, "--create", "--topic", topic, f"--partitions={PARTITIONS}")
        values = [str(number) for number in range(40)]
        keyed = ["--reader-property=parse.key=true", "--reader-property=key.separator=:"]
        lines = "".join(f"{each}:{each}\n" for each in values)
        self.ask(tools.CONSOLE_PRODUCER, "--topic", topic, *keyed, stdin=lines)
        return sorted(values)

    def read(self, topic: str, count: int, *arguments: str) -> list[str]:
        reading = ["--topic", topic, "--from-beginning", f"--max-messages={count}"]
        said = self.ask(tools.CONSOLE_CONSUMER, *reading, "--timeout-ms=60000", NEW, *arguments)
        return sorted(said.splitlines())

    def group(self, group: str, *arguments: str) -> list[list[str]]:
        """Return the words of each line about the group."""
        said = self.refused(tools.CONSUMER_GROUPS, "--group", group, *arguments)
        return [line.split() for line in said.splitlines() if line.startswith(group)]

    def members(self, group: str) -> list[list[str]]:
        return self.group(group, "--describe", "--members", "--verbose")

    @contextmanager
    def verifiable(self, topic: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A member of the group that has the topic's name; it closes its consumer at the end."""
        given = ["--bootstrap-server", self.servers, "--topic", topic, "--group-id", topic]
        command = tools.java_command(
            VERIFIABLE_CONSUMER, *given, "--group-protocol=consumer", *arguments
        )
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=java_environment()
        ) as running:
            try:
                yield running
            finally:
                running.terminate()

    @contextmanager
    def subscribed(self, pattern: str, *properties: str) -> Iterator[subprocess.Popen[str]]:
        """Member.java; a line to its standard input has it leave."""
        given = [f"bootstrap.servers={self.servers}", *properties]
        command = tools.java_command(MEMBER, pattern, *given)
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=java_environment(),
        ) as running:
            try:
                yield running
            finally:
                running.kill()


@pytest.fixture(params=["kafka", "our_brokers"])
def broker(request: pytest.FixtureRequest) -> Broker:
    return Broker(request.getfixturevalue(request.param).bootstrap_servers)


def wait_for(running: subprocess.Popen[str], what: str) -> str:
    """Return the next line with these words."""
    assert running.stdout is not None
    return next(line for line in running.stdout if what in line)


def is_balanced(rows: list[list[str]]) -> bool:
    """Return whether two members have two partitions each, as their target says."""
    return [row[4] for row in rows] == ["2", "2"] and all(row[5:7] == row[7:9] for row in rows)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_console_consumer_reads_everything(broker: Broker, assignor: str) -> None:
    topic = f"console-{assignor}"
    values = broker.fill(topic)
    assigned = f"--command-property=group.remote.assignor={assignor}"
    assert broker.read(topic, len(values), f"--group={topic}", assigned) == values


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_share_and_are_described(broker: Broker, assignor: str) -> None:
    group = f"shared-{assignor}"
    broker.fill(group)
    asked = f"--group-remote-assignor={assignor}"
    with broker.verifiable(group, asked), broker.verifiable(group, asked):
        rows = until(lambda: broker.members(group), is_balanced)
        assert len({row[6] for row in rows}) == 2
        if assignor == "range":
            assert {row[6] for row in rows} == {f"{group}:0,1", f"{group}:2,3"}
        (state,) = broker.group(group, "--describe", "--state", "--verbose")
        assert [state[3], state[4], state[-1]] == [assignor, "Stable", "2"]
        assert state[5] == state[6] == rows[0][5]
        listed = broker.ask(tools.CONSUMER_GROUPS, "--list", "--type", "consumer")
        assert group in listed.split()
        assert group not in broker.ask(tools.CONSUMER_GROUPS, "--list", "--type=classic").split()
        assert [
            line.split()[-1]
            for line in broker.ask(tools.CONSUMER_GROUPS, "--list", "--state").splitlines()
            if line.startswith(f"{group} ")
        ] == ["Stable"]
        assert [group, "Consumer", "consumer"] in [
            line.split() for line in broker.ask(GROUPS_COMMAND, "--list").splitlines()
        ]
        assert "GroupNotEmptyException" in broker.refused(
            tools.CONSUMER_GROUPS, "--delete", "--group", group
        )
        assert "inactive" in broker.refused(
            tools.CONSUMER_GROUPS, "--group", group, "--reset-offsets", "--to-earliest",
            "--all-topics", "--execute",
        )  # fmt: skip


def test_offsets_of_an_empty_group_are_moved_and_deleted(broker: Broker) -> None:
    group = "moved-new"
    count = len(broker.fill(group))
    broker.read(group, count, f"--group={group}")
    rows = broker.group(group, "--describe", "--offsets")
    assert [row[1:3] for row in rows] == [[group, str(each)] for each in range(PARTITIONS)]
    assert sum(int(row[4]) for row in rows) == count
    moving = ["--reset-offsets", "--to-offset=1", f"--topic={group}:0", "--execute"]
    assert [group, group, "0", "1"] in broker.group(group, *moving)
    broker.ask(tools.CONSUMER_GROUPS, "--group", group, "--delete-offsets", "--topic", f"{group}:1")
    rows = broker.group(group, "--describe", "--offsets", "--verbose")
    assert ("1", "1") not in {(row[2], row[3]) for row in rows}
    assert "successful" in broker.ask(tools.CONSUMER_GROUPS, "--delete", "--group", group)
    assert group not in broker.ask(tools.CONSUMER_GROUPS, "--list").split()


def test_a_static_member_comes_back_under_its_name(broker: Broker) -> None:
    group = "static-new"
    broker.fill(group)
    for _ in range(2):
        with broker.verifiable(group, "--group-instance-id=one") as running:
            assert f'"topic":"{group}"' in wait_for(running, "partitions_assigned")
            rows = until(
                lambda: broker.members(group), lambda found: [row[5] for row in found] == ["4"]
            )
        assert rows[0][2] == "one"
        (state,) = broker.group(group, "--describe", "--state")
        assert state[-1] == "1", "its place is kept for it"


def test_a_pattern_of_the_brokers_finds_new_topics(broker: Broker) -> None:
    broker.fill("seen-1")
    properties = ["group.id=seeing", "client.rack=r1", "metadata.max.age.ms=1000"]
    with broker.subscribed("seen-[0-9]+", *properties) as running:
        assert wait_for(running, "assigned [seen-1-0").count("seen-1-") == PARTITIONS
        assert wait_for(running, "read").startswith("read seen-1-")
        (row,) = broker.members("seeing")
        assert row[6] == "seen-1:0,1,2,3"
        assert running.stdin is not None
        running.stdin.write("\n")
        running.stdin.flush()
        assert "seen-1" in wait_for(running, "revoked")
        assert running.wait(tools.TIMEOUT) == 0
    assert broker.members("seeing") == []
    assert broker.group("seeing", "--describe", "--state")[0][-1] == "0"


def test_a_pattern_that_is_none_is_refused(broker: Broker) -> None:
    with broker.subscribed("seen-[", "group.id=wrong") as running:
        assert running.wait(tools.TIMEOUT) != 0
