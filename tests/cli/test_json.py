"""`--output json` of every command has the keys of `docs/commands.md`, and the values of the run."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import pytest

from replication.testing import ThreadedCluster
from tests.cli.commands import Command
from tests.cli.test_up import TIMEOUT, running, stopped

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
TOKEN = re.compile(r"[\[\]{},:]|\.\.\.|\w+")
AND_MORE = "..."

Shape: TypeAlias = "dict[str, Shape] | list[Shape] | None"


def parsed(text: str) -> Shape:
    """Return the shape of a text such as `[{topic, partitions: [{leader}]}]`; None is any value."""
    tokens = iter(TOKEN.findall(text))

    def value(token: str) -> Shape:
        if token == "[":
            items = [value(next(tokens))]
            assert next(tokens) == "]"
            return items
        assert token == "{", token
        found: dict[str, Shape] = {}
        name = ""
        for each in tokens:
            match each:
                case "}":
                    return found
                case ",":
                    continue
                case ":":
                    found[name] = value(next(tokens))
                case _:
                    name, found[each] = each, None
        raise AssertionError(f"no end: {text}")

    return value(next(tokens))


def documented() -> dict[str, Shape]:
    """Return the shape of each command's JSON, from the table of the page."""
    answer = PAGE.read_text(encoding="utf-8").partition("## JSON")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w -]+)` \|[^`]*`([^`]+)`", answer, re.MULTILINE)
    return {name: parsed(shape) for name, shape in rows}


DOCUMENTED = documented()


def agrees(shape: Shape, value: Any) -> bool:
    if isinstance(shape, list):
        return isinstance(value, list) and all(agrees(shape[0], each) for each in value)
    if shape is None or value is None:
        return True
    keys = shape.keys() - {AND_MORE}
    same = value.keys() >= keys if AND_MORE in shape else value.keys() == keys
    return same and all(agrees(shape[name], value[name]) for name in keys)


@attrs.frozen
class Place:
    """Two brokers with a topic `orders` of two partitions, three records in the first; a folder."""

    understudy: Command
    folder: Path

    def json(self, *arguments: str, stdin: bytes = b"") -> Any:
        return self.understudy.json(*arguments, stdin=stdin)

    def process(self, *arguments: str) -> Any:
        """Return the JSON of a command that needs a process of its own."""
        command = [sys.executable, "-m", "replication.cli", *arguments, "--output", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT)
        return json.loads(done.stdout)


@pytest.fixture
def place(understudy: Command, brokers: ThreadedCluster, tmp_path: Path) -> Place:
    if not brokers.leader("orders"):
        brokers.create_topic("orders", partitions=2)
        understudy("produce", "orders", "-p", "0", stdin=b"0\n1\n2\n")
        flags = ["--topic", "orders:0", "--to-offset", "2", "--execute"]
        understudy("group", "reset-offsets", "readers", *flags)
    return Place(understudy, tmp_path)


def topic_create(place: Place) -> Any:
    made = place.json("topic", "create", "made", "--partitions", "2", "--if-not-exists")
    assert (made["topic"], made["partition_count"]) == ("made", 2)
    return made


def topic_list(place: Place) -> Any:
    listed = place.json("topic", "list")
    assert {"topic": "orders", "is_internal": False} in listed
    return listed


def topic_describe(place: Place) -> Any:
    (answer,) = described = place.json("topic", "describe", "orders")
    assert answer["partition_count"] == len(answer["partitions"]) == 2
    assert all(each["leader"] in each["isr"] for each in answer["partitions"])
    return described


def topic_alter(place: Place) -> Any:
    place.understudy("topic", "create", "grown")
    altered = place.json("topic", "alter", "grown", "--partitions", "3")
    assert altered == [{"topic": "grown", "partition_count": 3}]
    return altered


def topic_delete(place: Place) -> Any:
    deleted = place.json("topic", "delete", "orders")
    assert deleted == [{"topic": "orders", "deleted": False}]
    return deleted


def consume(place: Place) -> Any:
    where = ["-p", "0", "-o", "1", "-c", "1"]
    record = place.json("consume", "orders", *where)
    assert (record["offset"], record["value"], record["key"]) == (1, "1", None)
    return record


def produce(place: Place) -> Any:
    made = place.json("produce", "orders", "-p", "1", stdin=b"x\n")
    assert (made["topic"], made["partition"], type(made["offset"])) == ("orders", 1, int)
    return made


def group_list(place: Place) -> Any:
    listed = place.json("group", "list")
    readers = {"group_id": "readers", "type": "classic", "protocol_type": "", "state": "Empty"}
    assert readers in listed
    return listed


def group_describe(place: Place) -> Any:
    (answer,) = described = place.json("group", "describe", "readers")
    (offset,) = answer["offsets"]
    assert (offset["current_offset"], offset["log_end_offset"], offset["lag"]) == (2, 3, 1)
    return described


def group_delete(place: Place) -> Any:
    deleted = place.json("group", "delete", "readers")
    assert deleted == [{"group": "readers", "state": "Empty", "deleted": False}]
    return deleted


def group_reset_offsets(place: Place) -> Any:
    moved = place.json("group", "reset-offsets", "readers", "--all-topics", "--to-earliest")
    assert [each["new_offset"] for each in moved] == [0]
    return moved


def group_delete_offsets(place: Place) -> Any:
    (deleted,) = answer = place.json("group", "delete-offsets", "readers", "--topic", "orders:0")
    assert (deleted["current_offset"], deleted["deleted"]) == (2, False)
    return answer


def follow(place: Place) -> Any:
    answer = place.json(
        "follow", "--topic", "orders", "--to", str(place.folder / "copy"), "--until-caught-up"
    )
    assert (answer["caught_up"], answer["behind"]) == (True, 0)
    first, second = answer["partitions"]
    assert (first["topic"], first["partition"], second["partition"]) == ("orders", 0, 1)
    assert (first["log_start_offset"], first["log_end_offset"], first["lag"]) == (0, 3, 0)
    return answer


def promote(place: Place) -> Any:
    follow(place)
    answer = place.json("promote", str(place.folder / "copy"))
    assert [each["not_copied"] for each in answer["partitions"]] == [0, 0]
    assert answer["groups_ahead"] == []
    return answer


def up(place: Place) -> Any:
    flags = ["-n", "2", "--any-port", "--control", "0", "--output", "json"]
    with running("up", *flags, "--data-dir", str(place.folder)) as process:
        assert process.stdout is not None
        answer = json.loads(process.stdout.readline())
        assert stopped(process, signal.SIGTERM) == 0
    assert [(each["node_id"], each["status"]) for each in answer["brokers"]] == [
        (1, "running"),
        (2, "running"),
    ]
    addresses = [each["kafka_address"] for each in answer["brokers"]]
    assert answer["bootstrap_servers"] == ",".join(addresses)
    assert answer["urls"].keys() == {"control"}
    return answer


def scenario_list(place: Place) -> Any:
    listed = place.json("scenario", "list")
    assert "swizzled" in {each["name"] for each in listed}
    return listed


def scenario_run(place: Place) -> Any:
    answer = place.process("scenario", "run", "a-torn-write")
    assert (answer["name"], answer["changed"]) == ("a-torn-write", False)
    assert all(isinstance(line, str) for step in answer["steps"] for line in step["commands"])
    return answer


def scenario_swarm(place: Place) -> Any:
    answer = place.process("scenario", "swarm", "--from", "7", "--seeds", "1", "--jobs", "1")
    assert (answer["first"], answer["seeds"], answer["failures"]) == (7, 1, [])
    assert answer["virtual_seconds"] > 0
    assert type(answer["elections"]) is int
    assert answer["commands"]["cluster"] == answer["seeds"]
    assert answer["reached"]
    assert set(answer["reached"].values()) <= {0, 1}, "in how many runs"
    return answer


def scenario_museum(place: Place) -> Any:
    listed = place.json("scenario", "museum")
    (visited,) = place.process("scenario", "museum", "kip-279")
    assert [each for each in listed if each["name"] == "KIP-279"] == [
        {name: visited[name] for name in listed[0]}
    ]
    assert visited["as_recorded"] is True
    assert visited["with_bug"]["rule"] == visited["damage"]
    assert visited["without_bug"]["failure"] is None
    return listed


def scenario_replay(place: Place) -> Any:
    answer = place.process("scenario", "replay", "--seed", "7")
    assert (answer["seed"], answer["wrong"], type(answer["may_have_lost"])) == (7, None, bool)
    assert answer["commands"]
    assert all(isinstance(line, str) for line in answer["commands"] + answer["answer"])
    traced = place.process("scenario", "replay", "--seed", "7", "--trace")
    lines = traced.pop("trace")
    assert traced == answer
    assert all(isinstance(line, str) for line in lines)
    return answer


def audit_headers(place: Place) -> Any:
    pytest.importorskip("pyarrow", reason="the Arrow extra is not installed: understudy[arrow]")
    data, to = place.folder / "data", place.folder / "headers"
    with ThreadedCluster(brokers=1, data_dir=str(data)) as cluster:
        cluster.create_topic("t")
        one_by_one = ["-b", cluster.bootstrap_servers, "--sync"]
        place.understudy("produce", "t", *one_by_one, stdin=b"0\n1\n2\n")
    log = data / "broker-1" / "log"
    answer = place.json("audit-headers", str(log), "--name", "b1", "--to", str(to))
    assert answer == {"name": "b1", "batches": 3, "to": str(to)}
    return answer


RUNS: Mapping[str, Callable[[Place], Any]] = {
    "topic create": topic_create,
    "topic list": topic_list,
    "topic describe": topic_describe,
    "topic alter": topic_alter,
    "topic delete": topic_delete,
    "consume": consume,
    "produce": produce,
    "group list": group_list,
    "group describe": group_describe,
    "group delete": group_delete,
    "group reset-offsets": group_reset_offsets,
    "group delete-offsets": group_delete_offsets,
    "follow": follow,
    "promote": promote,
    "up": up,
    "scenario list": scenario_list,
    "scenario run": scenario_run,
    "scenario swarm": scenario_swarm,
    "scenario museum": scenario_museum,
    "scenario replay": scenario_replay,
    "audit-headers": audit_headers,
}


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            each, marks=[pytest.mark.deep] if each in ("scenario replay", "scenario swarm") else []
        )
        for each in DOCUMENTED
    ],
)
def test_json_has_the_keys_of_the_page(command: str, place: Place) -> None:
    answer = RUNS[command](place)
    assert agrees(DOCUMENTED[command], answer), answer


def test_every_command_of_the_page_is_run() -> None:
    assert RUNS.keys() == DOCUMENTED.keys()


def test_json_with_other_keys_does_not_agree() -> None:
    shape = parsed("[{a, b: [{c}], d: {e, ...}}]")
    assert shape == [{"a": None, "b": [{"c": None}], "d": {"e": None, AND_MORE: None}}]
    assert agrees(shape, [{"a": 1, "b": [{"c": 2}], "d": {"e": 3, "f": 4}}])
    assert agrees(shape, [])
    others: list[Any] = [{}, [{}], [{"a": 1, "b": [{}], "d": None}]]
    for other in [*others, [{"a": 1, "b": [], "d": {"f": 4}}]]:
        assert not agrees(shape, other), other
