"""Apache Kafka's own tools and clients against our brokers, as processes of their own.

    tool  ── Kafka's protocol, in the newest versions that we serve ──>  three brokers of ours

Tools for features that we do not have are at the end, with the errors that they get.
"""

import json
import re
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from replication.cli.isolated import IsolatedCluster
from tests.clients.sample import CODECS
from tests.interop import tools

pytestmark = pytest.mark.interop

# Others leave time for these only where nobody waits for the answer.
slow = pytest.mark.slow

KAFKA = "org.apache.kafka.tools"
PRODUCER_PERFORMANCE = f"{KAFKA}.ProducerPerformance"
TRANSACTIONS = f"{KAFKA}.TransactionsCommand"
REASSIGN = f"{KAFKA}.reassign.ReassignPartitionsCommand"
ELECTION = f"{KAFKA}.LeaderElectionCommand"


def ask(our_brokers: IsolatedCluster, main_class: str, *arguments: str, stdin: str = "") -> str:
    """Return the output of Kafka's tool, run against our brokers."""
    servers = ("--bootstrap-server", our_brokers.bootstrap_servers)
    return tools.run_tool(main_class, *servers, *arguments, stdin=stdin)


def make_topic(our_brokers: IsolatedCluster, name: str, *arguments: str) -> None:
    ask(our_brokers, tools.TOPICS, "--create", "--topic", name, *(arguments or ("--partitions=1",)))


def produce(our_brokers: IsolatedCluster, topic: str, *lines: str) -> None:
    ask(
        our_brokers,
        tools.CONSOLE_PRODUCER,
        "--topic",
        topic,
        stdin="".join(f"{each}\n" for each in lines),
    )


def consume(our_brokers: IsolatedCluster, topic: str, count: int, *arguments: str) -> list[str]:
    reading = ["--topic", topic, "--from-beginning", f"--max-messages={count}", *arguments]
    return ask(our_brokers, tools.CONSOLE_CONSUMER, *reading, "--timeout-ms=60000").splitlines()


def rows(said: str) -> list[list[str]]:
    return [line.split() for line in said.splitlines() if line.strip()]


def events(said: str, name: str) -> list[dict[str, Any]]:
    """Return the events of one name that a verifiable client printed, one JSON object a line."""
    listed = [json.loads(line) for line in said.splitlines()]
    return [each for each in listed if each.get("name") == name]


def test_topics_are_made_described_altered_and_deleted(our_brokers: IsolatedCluster) -> None:
    sizes = ["--partitions=2", "--replication-factor=3", "--config=retention.ms=100000"]
    make_topic(our_brokers, "made", *sizes)
    ask(our_brokers, tools.TOPICS, "--alter", "--topic", "made", "--partitions", "3")
    head, *partitions = ask(our_brokers, tools.TOPICS, "--describe", "--topic", "made").splitlines()
    assert "PartitionCount: 3\tReplicationFactor: 3" in head
    assert "retention.ms=100000" in head
    assert len(partitions) == 3
    ask(our_brokers, tools.TOPICS, "--delete", "--topic", "made")
    assert "made" not in ask(our_brokers, tools.TOPICS, "--list")


def test_console_producer_and_consumer(our_brokers: IsolatedCluster) -> None:
    make_topic(our_brokers, "lines", "--partitions=2")
    given = ["parse.key=true", "parse.headers=true", "key.separator=:"]
    properties = [f"--reader-property={each}" for each in given]
    line = "a:1,b:2\tkey:value\n"
    ask(our_brokers, tools.CONSOLE_PRODUCER, "--topic", "lines", *properties, stdin=line)
    shown = [f"--formatter-property=print.{each}=true" for each in ("key", "headers", "offset")]
    assert consume(our_brokers, "lines", 1, "--group=readers", *shown) == [
        "Offset:0\ta:1,b:2\tkey\tvalue"
    ]


def test_groups_are_described_reset_and_deleted(our_brokers: IsolatedCluster) -> None:
    make_topic(our_brokers, "grouped")
    produce(our_brokers, "grouped", "1", "2", "3")
    consume(our_brokers, "grouped", 2, "--group=listed")
    listed = rows(ask(our_brokers, tools.CONSUMER_GROUPS, "--describe", "--group=listed"))
    assert listed[1][:6] == ["listed", "grouped", "0", "2", "3", "1"]
    moving = ["--group=listed", "--reset-offsets", "--to-earliest", "--topic=grouped", "--execute"]
    assert ["listed", "grouped", "0", "0"] in rows(ask(our_brokers, tools.CONSUMER_GROUPS, *moving))
    assert "successful" in ask(our_brokers, tools.CONSUMER_GROUPS, "--group=listed", "--delete")


@slow
def test_perf_producer_with_each_codec_and_perf_consumer(our_brokers: IsolatedCluster) -> None:
    make_topic(our_brokers, "perf", "--partitions=2", "--replication-factor=3")
    sizes = ["--num-records=1000", "--record-size=100", "--throughput=-1"]
    servers = f"bootstrap.servers={our_brokers.bootstrap_servers}"
    for codec in CODECS:
        properties = ["--producer-props", servers, f"compression.type={codec}"]
        sent = tools.run_tool(PRODUCER_PERFORMANCE, "--topic=perf", *sizes, *properties)
        assert "1000 records sent" in sent
    said = ask(our_brokers, f"{KAFKA}.ConsumerPerformance", "--topic=perf", "--messages=5000")
    assert said.splitlines()[-1].split(", ")[4] == "5000"


@slow
def test_verifiable_producer_and_consumer(our_brokers: IsolatedCluster) -> None:
    make_topic(our_brokers, "verified")
    sending = ["--topic=verified", "--max-messages=50", "--acks=-1"]
    sent = events(
        ask(our_brokers, f"{KAFKA}.VerifiableProducer", *sending), "producer_send_success"
    )
    assert [each["offset"] for each in sent] == list(range(50))
    reading = ["--topic=verified", "--group-id=verifiers", "--max-messages=50", "--verbose"]
    said = ask(our_brokers, f"{KAFKA}.VerifiableConsumer", *reading, "--reset-policy=earliest")
    assert [each["value"] for each in events(said, "record_data")] == [str(n) for n in range(50)]
    assert all(each["success"] for each in events(said, "offsets_committed"))


@slow
def test_transactional_message_copier(our_brokers: IsolatedCluster) -> None:
    """Five transactions, of two records each."""
    make_topic(our_brokers, "copied-from")
    make_topic(our_brokers, "copied-to")
    produce(our_brokers, "copied-from", *map(str, range(10)))
    copying = ["--input-topic=copied-from", "--input-partition=0", "--output-topic=copied-to"]
    ids = ["--transactional-id=copier", "--consumer-group=copiers"]
    sizes = ["--max-messages=10", "--transaction-size=2"]
    brokers = f"--broker-list={our_brokers.bootstrap_servers}"
    said = tools.run_tool(f"{KAFKA}.TransactionalMessageCopier", brokers, *copying, *ids, *sizes)
    assert json.loads(said.splitlines()[-1])["totalProcessed"] == 10
    read = consume(our_brokers, "copied-to", 10, "--isolation-level=read_committed")
    assert sorted(map(int, read)) == list(range(10))
    described = rows(ask(our_brokers, TRANSACTIONS, "describe", "--transactional-id=copier"))
    assert described[1][4] == "CompleteCommit"
    assert "copier" in ask(our_brokers, TRANSACTIONS, "list")


@slow
def test_configs_of_topics_and_brokers(our_brokers: IsolatedCluster) -> None:
    make_topic(our_brokers, "configured")
    topic = ["--entity-type=topics", "--entity-name=configured"]
    ask(our_brokers, tools.CONFIGS, "--alter", *topic, "--add-config=retention.ms=5000")
    assert "retention.ms=5000" in ask(our_brokers, tools.CONFIGS, "--describe", *topic)
    ask(our_brokers, tools.CONFIGS, "--alter", *topic, "--delete-config=retention.ms")
    assert "retention.ms" not in ask(our_brokers, tools.CONFIGS, "--describe", *topic)
    brokers = ["--entity-type=brokers", "--entity-default"]
    ask(our_brokers, tools.CONFIGS, "--alter", *brokers, "--add-config=log.cleaner.threads=2")
    assert "log.cleaner.threads=2" in ask(our_brokers, tools.CONFIGS, "--describe", *brokers)


@slow
def test_partitions_are_reassigned_and_led_by_whom_they_prefer(
    our_brokers: IsolatedCluster, tmp_path: Path
) -> None:
    make_topic(our_brokers, "moved", "--replica-assignment=1:2")
    plan = tmp_path / "plan.json"
    moved = {"topic": "moved", "partition": 0, "replicas": [3, 1]}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    moving = ["--reassignment-json-file", str(plan)]
    ask(our_brokers, REASSIGN, "--execute", *moving, "--throttle=1000000")
    said = ask(our_brokers, REASSIGN, "--verify", *moving)
    for _ in range(10):
        if "is completed" in said:
            break
        said = ask(our_brokers, REASSIGN, "--verify", *moving)
    assert "Reassignment of partition moved-0 is completed" in said
    assert "Clearing topic-level throttles on topic moved" in said
    said = ask(our_brokers, ELECTION, "--election-type=preferred", "--topic=moved", "--partition=0")
    assert "for partitions moved-0" in said
    described = ask(our_brokers, tools.TOPICS, "--describe", "--topic=moved")
    assert "Leader: 3\tReplicas: 3,1" in described


@slow
def test_records_are_deleted_and_offsets_and_sizes_listed(
    our_brokers: IsolatedCluster, tmp_path: Path
) -> None:
    make_topic(our_brokers, "cut", "--replication-factor=3")
    produce(our_brokers, "cut", "1", "2", "3")
    wanted = tmp_path / "wanted.json"
    before = {"topic": "cut", "partition": 0, "offset": 2}
    wanted.write_text(json.dumps({"version": 1, "partitions": [before]}))
    said = ask(our_brokers, f"{KAFKA}.DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert "partition: cut-0\tlow_watermark: 2" in said
    for time, offset in (("earliest", 2), ("latest", 3)):
        said = ask(our_brokers, f"{KAFKA}.GetOffsetShell", "--topic=cut", "--time", time)
        assert said == f"cut:0:{offset}\n"
    said = ask(our_brokers, f"{KAFKA}.LogDirsCommand", "--describe", "--topic-list=cut")
    brokers = json.loads(said.splitlines()[-1])["brokers"]
    sizes = [each["logDirs"][0]["partitions"][0]["size"] for each in brokers]
    assert len(sizes) == 3
    assert min(sizes) > 0


@slow
def test_the_compatibility_test_of_kafkas_clients_passes(our_brokers: IsolatedCluster) -> None:
    make_topic(our_brokers, "compatible", "--config=max.message.bytes=2000000")
    has = ["offsets-for-times", "cluster-id", "create-topics", "describe-configs"]
    supported = [f"--{each}-supported=true" for each in [*has, "idempotent-producer"]]
    rest = ["--describe-acls-supported=true", "--expect-record-too-large-exception=false"]
    ask(
        our_brokers,
        f"{KAFKA}.ClientCompatibilityTest",
        "--topic=compatible",
        "--num-cluster-nodes=3",
        *supported,
        *rest,
    )


@slow
def test_end_to_end_latency_and_the_versions_of_each_broker(our_brokers: IsolatedCluster) -> None:
    make_topic(our_brokers, "latency", "--replication-factor=3")
    said = tools.run_tool(
        f"{KAFKA}.EndToEndLatency", our_brokers.bootstrap_servers, "latency", "50", "all", "100"
    )
    assert "Percentiles" in said
    versions = ask(our_brokers, tools.API_VERSIONS)
    assert "ERROR" not in versions
    assert versions.count("Produce(0): 0 to 13 [usable: 13]") == 3


@slow
def test_replica_verification_finds_no_lag(our_brokers: IsolatedCluster) -> None:
    """The tool uses the newest version of Fetch that it knows, whatever a broker advertises."""
    make_topic(our_brokers, "verified-replicas", "--replication-factor=3")
    produce(our_brokers, "verified-replicas", "1", "2")
    wanted = ["--topics-include=verified-replicas", "--report-interval-ms=500"]
    command = tools.java_command(
        tools.REPLICA_VERIFICATION, "--broker-list", our_brokers.bootstrap_servers, *wanted
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tool:
        late = threading.Timer(tools.TIMEOUT, tool.kill)  # it goes on for ever
        late.start()
        try:
            assert tool.stdout is not None
            said = "max lag is 0 for partition verified-replicas-0 at offset 2 among 1 partitions"
            assert any(said in line for line in tool.stdout)
        finally:
            late.cancel()
            tool.kill()


@slow
def test_the_quorum_is_described(our_brokers: IsolatedCluster) -> None:
    quorum = f"{KAFKA}.MetadataQuorumCommand"
    status = ask(our_brokers, quorum, "describe", "--status")
    assert re.search(r"MaxFollowerLag: +0\n", status)
    assert re.search(r'CurrentObservers: +\[\{"id": 1.*"id": 2.*"id": 3', status)
    _, *rows = ask(our_brokers, quorum, "describe", "--replication").strip().splitlines()
    assert [row.split()[-1] for row in rows] == ["Leader", *["Observer"] * 3]


@slow
def test_features_are_described_and_updated(our_brokers: IsolatedCluster) -> None:
    features = f"{KAFKA}.FeatureCommand"
    levels = re.findall(
        r"Feature: (\S+).*FinalizedVersionLevel: (\d+)", ask(our_brokers, features, "describe")
    )
    assert ("group.version", "1") in levels
    assert ("transaction.version", "2") in levels
    assert "kraft.version" in dict(levels)
    tested = ask(our_brokers, features, "disable", "--feature", "group.version", "--dry-run")
    assert "group.version can be disabled." in tested
    same = ask(our_brokers, features, "upgrade", "--feature", "transaction.version=2")
    assert "transaction.version was upgraded to 2." in same
    raised = ask(our_brokers, features, "upgrade", "--feature", "kraft.version=1")
    assert "kraft.version was upgraded to 1." in raised
    assert re.search(
        r"Feature: kraft.version.*FinalizedVersionLevel: 1", ask(our_brokers, features, "describe")
    )
    servers = ("--bootstrap-server", our_brokers.bootstrap_servers)
    lower = ("downgrade", "--feature", "kraft.version=0")
    done = tools.try_tool(features, *servers, *lower)
    assert "Can't downgrade the version of this feature." in done.output


@slow
@pytest.mark.parametrize(
    ("entity", "quota", "shown"),
    [
        ("clients --entity-name a", "producer_byte_rate=1000", "client-id 'a'"),
        ("users --entity-default", "request_percentage=50", "the default user-principal"),
        ("ips --entity-name 10.0.0.1", "connection_creation_rate=10", "ip '10.0.0.1'"),
    ],
)
def test_client_quotas_are_kept_and_described(
    our_brokers: IsolatedCluster, entity: str, quota: str, shown: str
) -> None:
    about = f"--entity-type {entity}".split()
    ask(our_brokers, tools.CONFIGS, "--alter", *about, "--add-config", quota)
    assert f"{shown} are {quota}.0" in ask(our_brokers, tools.CONFIGS, "--describe", *about)
    ask(
        our_brokers,
        tools.CONFIGS,
        "--alter",
        *about,
        "--delete-config",
        quota.split("=", maxsplit=1)[0],
    )
    assert shown not in ask(our_brokers, tools.CONFIGS, "--describe", *about)


@slow
def test_there_are_no_client_metrics(our_brokers: IsolatedCluster) -> None:
    assert ask(our_brokers, f"{KAFKA}.ClientMetricsCommand", "--list").strip() == ""
