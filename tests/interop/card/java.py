"""Apache Kafka's Java clients, through Kafka's own tools."""

import json
import subprocess
import tempfile
from pathlib import Path

from replication.cli.kafka.processes import write_properties
from tests.interop import tools
from tests.interop.card.features import CODECS, SECONDS, SENT
from tests.interop.card.secured import STAY_SECONDS, Entrance
from tests.interop.card.waiting import until
from tests.interop.jars import KafkaNotFoundError, kafka_version

KAFKA = "org.apache.kafka.tools"
LINES = [each.decode() for each in SENT]


def version() -> str | None:
    try:
        return f"Apache Kafka's {kafka_version()}"
    except KafkaNotFoundError:
        return None


VERSION = version()


def ask(servers: str, main_class: str, *arguments: str, stdin: str = "") -> str:
    given = ("--bootstrap-server", servers, *arguments)
    return tools.run_tool(main_class, *given, stdin=stdin)


def send(servers: str, topic: str, *arguments: str) -> None:
    lines = "".join(f"{each}\n" for each in LINES)
    ask(servers, tools.CONSOLE_PRODUCER, "--topic", topic, *arguments, stdin=lines)


def take(servers: str, topic: str, count: int, *arguments: str) -> list[str]:
    reading = ["--topic", topic, f"--max-messages={count}", f"--timeout-ms={SECONDS * 1000:.0f}"]
    return ask(servers, tools.CONSOLE_CONSUMER, *reading, *arguments).splitlines()


def read_all(servers: str, topic: str, count: int, *arguments: str) -> list[str]:
    return sorted(take(servers, topic, count, "--from-beginning", *arguments))


def produce_and_consume(servers: str, topic: str) -> None:
    send(servers, topic, "--command-property=acks=all")
    assert read_all(servers, topic, len(LINES)) == LINES


def compression(servers: str, topic: str) -> None:
    for codec in CODECS:
        send(servers, topic, f"--compression-codec={codec}")
    assert read_all(servers, topic, len(LINES) * 4) == sorted(LINES * 4)


def idempotence(servers: str, topic: str) -> None:
    send(servers, topic, "--command-property=enable.idempotence=true")
    assert read_all(servers, topic, len(LINES)) == LINES


def headers_and_nulls(servers: str, topic: str) -> None:
    wanted = ["parse.key=true", "parse.headers=true", "key.separator=:", "null.marker=NULL"]
    given = [f"--reader-property={each}" for each in wanted]
    lines = "a:1\tkey:NULL\nNULL\tNULL:value\n"
    ask(servers, tools.CONSOLE_PRODUCER, "--topic", topic, *given, stdin=lines)
    shown = ["--formatter-property=print.key=true", "--formatter-property=print.headers=true"]
    assert read_all(servers, topic, 2, *shown) == ["NO_HEADERS\tnull\tvalue", "a:1\tkey\tnull"]


def offsets_by_time(servers: str, topic: str) -> None:
    send(servers, topic)
    shown = take(
        servers, topic, 10, "--from-beginning", "--formatter-property=print.timestamp=true"
    )
    newest = max(int(line.split("\t")[0].removeprefix("CreateTime:")) for line in shown)
    late = ["--topic", topic, "--time", str(newest + 1)]
    assert ask(servers, f"{KAFKA}.GetOffsetShell", *late) == ""
    early = ["--topic", topic, "--time", "1"]
    assert ":0\n" in ask(servers, f"{KAFKA}.GetOffsetShell", *early)


def group_goes_on(servers: str, topic: str) -> None:
    send(servers, topic)
    earliest = [f"--group={topic}", "--from-beginning"]
    read = [take(servers, topic, 5, *earliest) for _ in range(2)]
    assert sorted([*read[0], *read[1]]) == LINES


def member(servers: str, topic: str, *arguments: str) -> list[str]:
    given = ["--bootstrap-server", servers, "--topic", topic, "--group-id", topic]
    return tools.java_command(f"{KAFKA}.VerifiableConsumer", *given, *arguments)


def share(servers: str, topic: str, *arguments: str) -> None:
    """Two members; the group's coordinator says who has what."""
    command = member(servers, topic, *arguments)
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(2)]
    try:
        until(lambda: members(servers, topic), lambda rows: [row[-1] for row in rows] == ["1", "1"])
    finally:
        for each in running:
            each.kill()


def members(servers: str, group: str) -> list[list[str]]:
    """Return the rows of the tool's output, in the order of its columns."""
    asked = ["--describe", "--members", "--group", group]
    done = tools.try_tool(tools.CONSUMER_GROUPS, "--bootstrap-server", servers, *asked)
    return [line.split() for line in done.output.splitlines() if line.startswith(group)]


def static_member(servers: str, topic: str) -> None:
    """Killed, and back before anybody missed it, under its name: still one member."""
    command = member(servers, topic, "--group-instance-id=one", "--session-timeout=60000")
    for _ in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            assert any("partitions_assigned" in line for line in running.stdout)
            rows = members(servers, topic)
            running.kill()
        assert len(rows) == 1
        assert "one" in rows[0]


def group_shares(servers: str, topic: str) -> None:
    share(servers, topic)


def cooperative(servers: str, topic: str) -> None:
    share(
        servers,
        topic,
        "--assignment-strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    )


def new_group_protocol(servers: str, topic: str) -> None:
    send(servers, topic)
    new = "--command-property=group.protocol=consumer"
    given = ["--topic", topic, "--from-beginning", "--max-messages=10", "--timeout-ms=10000", new]
    done = tools.try_tool(tools.CONSOLE_CONSUMER, "--bootstrap-server", servers, *given)
    assert sorted(done.output.splitlines()) == LINES, done.errors


def copy(servers: str, topic: str, *arguments: str) -> None:
    """All that partition 0 has, into partitions of another topic, two records a transaction."""
    count = int(
        ask(servers, f"{KAFKA}.GetOffsetShell", "--topic-partitions", f"{topic}:0").split(":")[2]
    )
    assert count > 0
    ask(servers, tools.TOPICS, "--create", "--topic", f"{topic}-copy", "--partitions=1")
    places = [f"--input-topic={topic}", "--input-partition=0", f"--output-topic={topic}-copy"]
    names = [f"--transactional-id={topic}", f"--consumer-group={topic}"]
    sizes = [f"--max-messages={count}", "--transaction-size=2"]
    copier = [f"--broker-list={servers}", *places, *names, *sizes, *arguments]
    tools.run_tool(f"{KAFKA}.TransactionalMessageCopier", *copier)
    committed = "--isolation-level=read_committed"
    copied = read_all(servers, f"{topic}-copy", count, committed)
    assert len(set(copied)) == count


def transactions(servers: str, topic: str) -> None:
    """A copy, in which some transactions are aborted and tried again."""
    send_to_both(servers, topic)
    copy(servers, topic, "--enable-random-aborts")


def offsets_in_transaction(servers: str, topic: str) -> None:
    send_to_both(servers, topic)
    copy(servers, topic)
    said = ask(servers, tools.CONSUMER_GROUPS, "--describe", "--group", topic)
    (row,) = [line.split() for line in said.splitlines() if line.startswith(topic)]
    assert row[3] == row[4]


def send_to_both(servers: str, topic: str) -> None:
    """Send records with keys, so that both partitions have some."""
    given = ["--reader-property=parse.key=true", "--reader-property=key.separator=:"]
    lines = "".join(f"{each}:{each}\n" for each in range(20))
    ask(servers, tools.CONSOLE_PRODUCER, "--topic", topic, *given, stdin=lines)


def topics(servers: str, topic: str) -> None:
    name = f"{topic}-made"
    sizes = ["--partitions=1", "--replication-factor=3"]
    ask(servers, tools.TOPICS, "--create", "--topic", name, *sizes)
    ask(servers, tools.TOPICS, "--alter", "--topic", name, "--partitions=3")
    described = ["--describe", "--topic", name]
    until(lambda: ask(servers, tools.TOPICS, *described), lambda said: "PartitionCount: 3" in said)
    ask(servers, tools.TOPICS, "--delete", "--topic", name)
    until(lambda: ask(servers, tools.TOPICS, "--list").split(), lambda found: name not in found)


def configs(servers: str, topic: str) -> None:
    whose = ["--entity-type=topics", "--entity-name", topic]
    ask(servers, tools.CONFIGS, "--alter", *whose, "--add-config=retention.ms=5000")
    until(
        lambda: ask(servers, tools.CONFIGS, "--describe", *whose),
        lambda said: "retention.ms=5000" in said,
    )


def written(content: dict[str, object]) -> str:
    path = Path(tempfile.mkdtemp(prefix="understudy-card-")) / "given.json"
    path.write_text(json.dumps({"version": 1, **content}))
    return str(path)


def delete_records(servers: str, topic: str) -> None:
    send(servers, topic)
    before = [{"topic": topic, "partition": each, "offset": 0} for each in range(2)]
    given = ["--offset-json-file", written({"partitions": before})]
    said = ask(servers, f"{KAFKA}.DeleteRecordsCommand", *given)
    assert f"partition: {topic}-0\tlow_watermark: 0" in said


def groups(servers: str, topic: str) -> None:
    group_goes_on(servers, topic)
    group = ["--group", topic]
    assert topic in ask(servers, tools.CONSUMER_GROUPS, "--describe", *group)
    moving = ["--reset-offsets", "--to-earliest", "--topic", topic, "--execute"]
    ask(servers, tools.CONSUMER_GROUPS, *group, *moving)
    assert "successful" in ask(servers, tools.CONSUMER_GROUPS, *group, "--delete")


def elections(servers: str, topic: str) -> None:
    given = ["--election-type=preferred", "--topic", topic, "--partition=0"]
    assert f"{topic}-0" in ask(servers, f"{KAFKA}.LeaderElectionCommand", *given)


def reassignments(servers: str, topic: str) -> None:
    moved = {"topic": topic, "partition": 0, "replicas": [2, 3]}
    given = ["--reassignment-json-file", written({"partitions": [moved]})]
    command = f"{KAFKA}.reassign.ReassignPartitionsCommand"
    ask(servers, command, "--execute", *given)
    until(
        lambda: ask(servers, command, "--verify", *given),
        lambda said: f"Reassignment of partition {topic}-0 is completed" in said,
    )


# Ways in.


def properties_of(way: Entrance) -> str:
    directory = Path(tempfile.mkdtemp(prefix="understudy-card-"))
    return str(write_properties(directory / "way.properties", way.as_properties()))


def enter(way: Entrance, topic: str) -> None:
    given = properties_of(way)
    send(way.servers, topic, "--command-config", given)
    read = read_all(way.servers, topic, len(LINES), "--command-config", given, f"--group={topic}")
    assert read == LINES


def turned_away(way: Entrance, topic: str) -> None:
    said = failure(way, tools.TOPICS, "--list", "--command-config", properties_of(way))
    assert "SaslAuthenticationException" in said


def refused(way: Entrance, topic: str) -> None:
    given, on = properties_of(way), ["--topic", topic]
    said = failure(way, tools.CONSOLE_PRODUCER, *on, "--command-config", given, stdin="x\n")
    assert "TopicAuthorizationException" in said
    reading = [*on, "--command-config", given, f"--group={topic}"]
    assert "GroupAuthorizationException" in failure(way, tools.CONSOLE_CONSUMER, *reading)


def failure(way: Entrance, main_class: str, *arguments: str, stdin: str = "") -> str:
    """Return the tool's output; some of these tools end with 0 even when they failed."""
    given = ("--bootstrap-server", way.servers, *arguments)
    done = tools.try_tool(main_class, *given, stdin=stdin, timeout=SECONDS)
    return done.output + done.errors


def stay(way: Entrance, topic: str) -> None:
    given = properties_of(way)
    count, rate = int(STAY_SECONDS * 5), 5
    sizes = [f"--num-records={count}", "--record-size=4", f"--throughput={rate}"]
    servers = f"bootstrap.servers={way.servers}"
    perf = [f"--topic={topic}", *sizes, "--producer-props", servers, "--producer.config", given]
    said = tools.run_tool(f"{KAFKA}.ProducerPerformance", *perf)
    assert f"{count} records sent" in said
