"""`understudy topic`: the flags and lines of kafka-topics, and the topics afterwards."""

import pytest

from replication.cli.choosing import Only, WantedTopics, pattern
from replication.cli.topics import DescribedTopic, as_json, lines
from replication.client.admin.values import (
    ConfigValue,
    PartitionDescription,
    Reassignment,
    TopicDescription,
)
from replication.config import ConfigSource
from replication.testing import ThreadedCluster
from storage.types import LeaderEpoch
from tests.cli.commands import Command
from tests.clients.sample import until


def test_one_partition_is_not_several(understudy: Command) -> None:
    _, line = understudy.lines("topic", "create", "single", "--partitions", "1")
    assert line.startswith("single: 1 partition, replication factor ")
    understudy.lines("topic", "delete", "single", "--execute")


def test_a_topic_is_made_described_altered_and_deleted(understudy: Command) -> None:
    made = ["topic", "create", "--topic", "story", "--replica-assignment", "1:2,2:1"]
    assert understudy.lines(*made, "--config", "retention.ms=60000") == [
        "Created topic story.",
        "story: 2 partitions, replication factor 2, all with a leader",
    ]
    # Another broker than the one that was asked before may not know it yet.
    until(lambda: "story" in understudy.lines("topic", "list"), lambda: "it is not listed")
    head, first, second = understudy.lines("topic", "describe", "--topic", "story")
    topic, topic_id, *rest = head.split("\t")
    assert topic == "Topic: story"
    assert len(topic_id.removeprefix("TopicId: ")) == 22
    assert rest[:2] == ["PartitionCount: 2", "ReplicationFactor: 2"]
    assert "retention.ms=60000" in rest[2].removeprefix("Configs: ").split(",")
    assert first == (
        "\tTopic: story\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2\tElr: \tLastKnownElr: "
    )
    assert second.startswith("\tTopic: story\tPartition: 1\tLeader: 2\tReplicas: 2,1\tIsr: 2,1\t")
    assert understudy.lines("topic", "alter", "story", "--partitions", "3") == [
        "story: 3 partitions, all with a leader"
    ]
    dry = understudy("topic", "delete", "story")
    assert dry.stdout == "Would delete topic story.\n"
    assert dry.stderr == "Nothing was changed; add --execute to do it.\n"
    assert "story" in understudy.lines("topic", "list")
    assert understudy.lines("topic", "delete", "story", "--execute") == ["Deleted topic story."]
    until(lambda: "story" not in understudy.lines("topic", "list"), lambda: "it is still listed")


def test_a_topic_as_json(understudy: Command) -> None:
    made = understudy.json("topic", "create", "as-json", "--replica-assignment", "2:1")
    assert made == {
        "topic": "as-json",
        "created": True,
        "topic_id": made["topic_id"],
        "partition_count": 1,
        "replication_factor": 2,
    }
    again = understudy.json("topic", "create", "as-json", "--if-not-exists")
    assert again == made | {"created": False}
    (described,) = understudy.json("topic", "describe", "as-json")
    assert described.pop("configs")["min.insync.replicas"] == "1"
    assert described == {
        "topic": "as-json",
        "topic_id": made["topic_id"],
        "is_internal": False,
        "partition_count": 1,
        "replication_factor": 2,
        "partitions": [
            {
                "partition": 0,
                "leader": 2,
                "leader_epoch": 0,
                "replicas": [2, 1],
                "isr": [2, 1],
                "offline_replicas": [],
                "adding_replicas": [],
                "removing_replicas": [],
                "eligible_leaders": [],
                "last_known_eligible": [],
            }
        ],
    }
    assert {"topic": "as-json", "is_internal": False} in understudy.json("topic", "list")
    assert understudy.json("topic", "alter", "as-json", "--partitions", "2") == [
        {"topic": "as-json", "partition_count": 2}
    ]
    assert understudy.json("topic", "delete", "as-json") == [{"topic": "as-json", "deleted": False}]
    assert understudy.json("topic", "delete", "as-json", "--execute") == [
        {"topic": "as-json", "deleted": True}
    ]


def test_a_pattern_is_of_whole_names(understudy: Command, brokers: ThreadedCluster) -> None:
    for name in ("many-a", "many-b", "not-many-a"):
        brokers.create_topic(name)
    assert understudy.lines("topic", "list", "--topic", "many-.*") == ["many-a", "many-b"]
    assert understudy.lines("topic", "list", "--topic", "many-a,not-.*") == ["many-a", "not-many-a"]
    deleted = understudy.lines("topic", "delete", "--topic", "many-.*", "--execute")
    assert deleted == ["Deleted topic many-a.", "Deleted topic many-b."]
    assert "not-many-a" in understudy.lines("topic", "list")


@pytest.mark.parametrize("what", ["describe", "delete", "alter"])
def test_an_unknown_topic_is_an_error(understudy: Command, what: str) -> None:
    more = ["--timeout", "100", *(["--partitions", "2"] if what == "alter" else [])]
    answer = understudy("topic", what, "nowhere", *more, exit_code=1)
    assert answer.stdout == ""
    assert answer.stderr == "understudy: Topic 'nowhere' does not exist as expected\n"
    understudy("topic", what, "--topic", "nowhere", "--if-exists", *more)


@pytest.mark.parametrize(
    "wrong",
    [
        ["create"],
        ["create", "t", "--topic", "t"],
        ["create", "t", "--partitions", "0"],
        ["create", "t", "--partitions", "1", "--replica-assignment", "1:2"],
        ["create", "t", "--replica-assignment", "1:1"],
        ["create", "t", "--replica-assignment", "1:2,1"],
        ["create", "t", "--replica-assignment", "one"],
        ["create", "t", "--config", "retention.ms"],
        ["list", "--topic", "("],
        ["alter", "t"],
        ["delete"],
        ["describe", "--topics-with-overrides", "--at-min-isr-partitions"],
    ],
    ids=" ".join,
)
def test_contradicting_arguments_are_a_usage_error(understudy: Command, wrong: list[str]) -> None:
    answer = understudy("topic", *wrong, exit_code=2)
    assert answer.stderr.startswith("Usage: ")
    assert answer.stderr.splitlines()[-1].startswith("Error: ")


def partition(number: int, leader: int, replicas: str, isr: str) -> PartitionDescription:
    return PartitionDescription(
        partition=number,
        leader=leader,
        leader_epoch=LeaderEpoch(3),
        replicas=tuple(map(int, replicas)),
        isr=tuple(map(int, isr)),
    )


def config(name: str, value: str | None, source: ConfigSource) -> ConfigValue:
    return ConfigValue(name=name, value=value, source=source)


IN_TROUBLE = DescribedTopic(
    topic=TopicDescription(
        name="t",
        partitions=(
            partition(0, 1, "123", "123"),
            partition(1, 2, "231", "23"),
            partition(2, -1, "312", "3"),
            partition(3, 9, "1234", "123"),
        ),
    ),
    configs={
        "min.insync.replicas": config("min.insync.replicas", "2", ConfigSource.DEFAULT_CONFIG),
        "retention.ms": config("retention.ms", None, ConfigSource.TOPIC_CONFIG),
    },
    moves={3: Reassignment(replicas=(1, 2, 3, 4), adding=(4,), removing=())},
    alive={1, 2, 3, 4},
)


def numbers(only: Only) -> list[int]:
    return [
        each["partition"] for topic in as_json([IN_TROUBLE], only) for each in topic["partitions"]
    ]


def test_only_partitions_in_trouble() -> None:
    assert numbers(Only()) == [0, 1, 2, 3]
    # Who is being added need not be in sync yet.
    assert numbers(Only(under_replicated=True)) == [1, 2]
    assert numbers(Only(unavailable=True)) == [2, 3]
    assert numbers(Only(under_min_isr=True)) == [2]
    assert numbers(Only(at_min_isr=True)) == [1]
    assert len(list(lines([IN_TROUBLE], Only(under_min_isr=True)))) == 1


def test_missing_values_and_reassignments_are_written_as_kafka_does() -> None:
    head, *partitions = lines([IN_TROUBLE], Only())
    assert head == "Topic: t\tPartitionCount: 4\tReplicationFactor: 3\tConfigs: retention.ms=null"
    unknown = "\tElr: N/A\tLastKnownElr: N/A"
    assert (
        partitions[2] == f"\tTopic: t\tPartition: 2\tLeader: none\tReplicas: 3,1,2\tIsr: 3{unknown}"
    )
    moving = "\tAdding Replicas: 4\tRemoving Replicas: "
    assert partitions[3].endswith(f"\tIsr: 1,2,3{moving}{unknown}")
    assert list(lines([IN_TROUBLE], Only(overrides=True))) == [head]


def test_a_name_is_no_pattern() -> None:
    assert not WantedTopics(names=("a.b",)).matches("axb")
    assert WantedTopics(pattern="a.b").matches("axb")
    assert not WantedTopics(pattern=".*", exclude_internal=True).matches("__consumer_offsets")
    assert WantedTopics().matches("anything")
    assert pattern(None, None, '"a, b"') == "a|b"  # type: ignore[arg-type] # no context is needed
