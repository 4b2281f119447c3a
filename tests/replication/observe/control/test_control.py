"""Control over HTTP of a real cluster: every operation does, and answers, as it is described."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from replication.cluster.cluster import Cluster, open_cluster
from replication.faults import FaultRule, on_call, with_probability
from replication.faults.impairments import Impairments
from replication.faults.rules.as_json import rule_from_json, rule_to_json
from replication.net import production_seams
from replication.observe.control import control_routes
from replication.observe.control.declared import MOST_BYTES, ControlOperation, description_of
from replication.observe.control.operations import OPERATIONS
from replication.observe.http import LOOPBACK, http_app, serve_http
from tests.replication.broker.clients import Client
from tests.replication.broker.stage import QUICK
from tests.replication.observe.http.http_client import asking

DESCRIPTION = json.loads(json.dumps(description_of(OPERATIONS)))


@attrs.define
class Controlled:
    """A cluster with its control API, and the operations that were used."""

    url: str
    cluster: Cluster
    used: set[tuple[str, int]] = attrs.field(factory=set)

    async def ask(self, method: str, path: str, body: object = None, *, raw: bytes = b"") -> Any:
        """Return the status and the answer, which agrees with the description."""
        data = raw if body is None else json.dumps(body).encode()
        async with asking(f"{self.url}{path}", method=method, body=data) as answer:
            text = await answer.body()
            found = json.loads(text) if text else None
            self.check(method, path.partition("?")[0], answer.status, found)
            return answer.status, found

    def check(self, method: str, path: str, status: int, found: object) -> None:
        operation = operation_at(method, path)
        self.used.add((operation["operationId"], status))
        described_answer = operation["responses"][str(status)]
        if found is None:
            assert "content" not in described_answer
            return
        schema = described_answer["content"]["application/json"]["schema"]
        whole = {**schema, "components": DESCRIPTION["components"]}
        Draft202012Validator(whole).validate(found)

    async def done(self, method: str, path: str, body: object = None) -> Any:
        status, found = await self.ask(method, path, body)
        assert status < 300, found
        return found

    async def refused(self, status: int, method: str, path: str, body: object = None) -> Any:
        refused, found = await self.ask(method, path, body)
        assert refused == status, found
        assert "\n" not in found["error"]
        return found


def operation_at(method: str, path: str) -> Any:
    """Return its description; a word in braces stands for any."""
    given = path.split("/")
    for template, operations in DESCRIPTION["paths"].items():
        words = template.split("/")
        alike = (
            mine.startswith("{") or mine == theirs
            for mine, theirs in zip(words, given, strict=False)
        )
        if len(words) == len(given) and all(alike) and method.lower() in operations:
            return operations[method.lower()]
    raise AssertionError(f"{method} {path} is not described")


@asynccontextmanager
async def controlled(**options: Any) -> AsyncIterator[Controlled]:
    opened = open_cluster(brokers=2, properties=QUICK, impairments=Impairments(), **options)
    async with opened as cluster, trio.open_nursery() as nursery:
        app = http_app(control_routes(cluster))
        address = await nursery.start(serve_http, app, LOOPBACK, 0)
        yield Controlled(address.url, cluster)
        cluster.let_go()
        nursery.cancel_scope.cancel()


def test_the_description_is_openapi() -> None:
    OpenAPIV31SpecValidator(DESCRIPTION).validate()
    assert {each.name for each in OPERATIONS} == {
        each["operationId"] for paths in DESCRIPTION["paths"].values() for each in paths.values()
    }


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_the_page_has_it(operation: ControlOperation) -> None:
    page = (Path(__file__).parents[4] / "docs" / "control.md").read_text(encoding="utf-8")
    parent, _, word = operation.path.rpartition("/")
    assert any(
        f"`{operation.method} {operation.path}" in line
        or (f"`{operation.method} {parent}/" in line and f"`{word}`" in line)
        for line in page.splitlines()
    )


async def test_every_operation_acts_and_answers_as_described() -> None:
    async with controlled() as there:
        assert await there.done("GET", "/openapi.json") == DESCRIPTION
        await of_nodes(there)
        await of_the_network(there)
        await of_topics(there)
        await of_faults(there)
        assert {name for name, _ in there.used} == {each.name for each in OPERATIONS}


async def test_a_node_with_both_roles_is_listed_in_both() -> None:
    async with controlled(combined=True) as there:
        nodes = await there.done("GET", "/control/brokers")
        assert [each["id"] for each in nodes["brokers"]] == [1, 2]
        assert nodes["controllers"] == [nodes["controller"]] == nodes["brokers"][:1]
        for node in ("controller", "controllers/1", "brokers/1"):
            assert (await there.done("POST", f"/control/{node}/freeze"))["id"] == 1
            assert (await there.done("POST", f"/control/{node}/thaw"))["id"] == 1


async def of_nodes(there: Controlled) -> None:
    nodes = await there.done("GET", "/control/brokers")
    assert nodes["controller"]["status"] == "running"
    assert [(each["id"], each["status"]) for each in nodes["brokers"]] == [
        (1, "running"),
        (2, "running"),
    ]
    addresses = [each["address"] for each in nodes["brokers"]]
    assert addresses == there.cluster.bootstrap_list
    statuses = {"kill": "down", "freeze": "frozen", "stop": "down"}
    assert nodes["controllers"] == [nodes["controller"]]
    for node in ("brokers/2", "controller", "controllers/0"):
        ends = [("kill", "start")] * (node != "brokers/2")  # who has killed a broker waits for it
        for word, undo in (*ends, ("freeze", "thaw"), ("stop", "start")):
            found = await there.done("POST", f"/control/{node}/{word}", {})
            assert found["status"] == statuses[word]
            found = await there.done("POST", f"/control/{node}/{undo}")
            assert found["status"] == "running"
    refused = await there.refused(409, "POST", "/control/brokers/2/start")
    assert refused == {"error": "broker 2 is up already"}
    await there.done("POST", "/control/brokers/2/kill")
    for word in ("kill", "stop", "freeze", "thaw"):
        refused = await there.refused(409, "POST", f"/control/brokers/2/{word}")
        assert refused == {"error": "broker 2 is down already"}
    refused = await there.refused(404, "POST", "/control/brokers/7/kill")
    assert refused == {"error": "broker_id: there is no broker 7; there are 1, 2"}
    refused = await there.refused(404, "POST", "/control/controllers/1/kill")
    assert refused == {"error": "controller_id: there is no controller 1; there are 0"}
    nodes = await there.done("POST", "/control/reset")
    assert {each["status"] for each in nodes["brokers"]} == {"running"}


async def of_the_network(there: Controlled) -> None:
    assert await there.done("GET", "/control/network") == {"cuts": []}
    one_way = {"nodes": [1], "others": [2], "one_way": True}
    cut = {"cuts": [{"from": 1, "to": 2}]}
    assert await there.done("POST", "/control/network/cut", one_way) == cut
    found = await there.done("POST", "/control/network/cut", {"nodes": [0]})
    assert {"from": 2, "to": 0} in found["cuts"]
    assert len(found["cuts"]) == 5
    assert await there.done("POST", "/control/network/heal", {}) == {"cuts": []}


async def of_topics(there: Controlled) -> None:
    assert await there.done("GET", "/control/topics") == {"topics": []}
    cluster = there.cluster
    client = Client(production_seams())
    await client.create_topic(cluster.bootstrap_list[0], "t", partitions=2, replicas=2)
    await cluster.until(lambda: cluster.leader("t", 1) is not None)
    topic = await there.done("GET", "/control/topics/t")
    assert await there.done("GET", "/control/topics") == {"topics": [topic]}
    for each in topic["partitions"]:
        partition = cluster.partition("t", each["partition"])
        assert partition is not None
        assert (each["leader"], each["replicas"]) == (partition.leader, list(partition.replicas))
        assert each["isr"] == [1, 2]
    refused = await there.refused(404, "GET", "/control/topics/u")
    assert refused == {"error": "topic: there is no 'u'"}


async def of_faults(there: Controlled) -> None:
    cluster = there.cluster
    client = Client(production_seams())
    leader = cluster.bootstrap_list[(cluster.leader("t", 0) or 0) - 1]
    words = {"api": "PRODUCE", "topic": "t", "error": "INVALID_RECORD", "trigger": {"times": 2}}
    added = await there.done("POST", "/control/faults", words)
    assert added == {"number": 1, "rule": words, "calls": 0, "hits": 0}
    assert (await client.produce(leader, "t", b"one")).error_code == 87
    added |= {"calls": 1, "hits": 1}
    assert await there.done("GET", "/control/faults/1/wait") == added
    assert await there.done("GET", "/control/faults/1") == added
    assert await there.done("GET", "/control/faults") == {"rules": [added]}
    (hit,) = (await there.done("GET", "/control/faults/1/hits"))["hits"]
    assert (hit["api"], hit["client_id"], hit["answer"]) == ("PRODUCE", "test", "INVALID_RECORD")
    assert hit["parts"] == [{"topic": "t", "partition": 0}]
    refused = await there.refused(504, "GET", "/control/faults/1/wait?hits=2&timeout_ms=1")
    assert "was hit 1 of 2 times" in refused["error"]
    await there.done("DELETE", "/control/faults/1")
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/hits"), ("GET", "/wait")):
        refused = await there.refused(404, method, f"/control/faults/1{path}")
        assert refused == {"error": "number: there is no rule 1"}
    assert (await client.produce(leader, "t", b"two")).base_offset == 0
    await there.done("POST", "/control/faults", {"effect": "observe"})
    await there.done("DELETE", "/control/faults")
    assert await there.done("GET", "/control/faults") == {"rules": []}


BAD: list[tuple[str, str, object, str]] = [
    ("POST", "/control/brokers/one/kill", None, "broker_id"),
    ("POST", "/control/brokers/0/kill", None, "broker_id"),
    ("POST", "/control/brokers/1/kill", {"now": True}, "now"),
    ("POST", "/control/brokers/1/kill", [], "body"),
    ("POST", "/control/network/cut", {}, "nodes"),
    ("POST", "/control/network/cut", {"nodes": []}, "nodes"),
    ("POST", "/control/network/cut", {"nodes": [9]}, "nodes"),
    ("POST", "/control/network/cut", {"nodes": [True]}, "nodes"),
    ("POST", "/control/network/cut", {"nodes": [1.0]}, "nodes"),
    ("POST", "/control/network/cut", {"nodes": [[1]]}, "nodes"),
    ("POST", "/control/network/cut", {"nodes": 1}, "nodes"),
    ("POST", "/control/network/cut", {"nodes": [1], "others": ["2"]}, "others"),
    ("POST", "/control/network/cut", {"nodes": [1], "others": [1, 2]}, "others"),
    ("POST", "/control/network/cut", {"nodes": [1], "one_way": "yes"}, "one_way"),
    ("POST", "/control/network/cut", {"nodes": [1], "both": True}, "both"),
    ("POST", "/control/faults", {}, "effect"),
    ("POST", "/control/faults", {"api": "PRODUCES", "error": 6}, "api"),
    ("POST", "/control/faults", {"api": ["PRODUCE"], "error": 6}, "api"),
    ("POST", "/control/faults", {"error": {"code": 6}}, "error"),
    ("POST", "/control/faults", {"effect": ["observe"]}, "effect"),
    ("POST", "/control/faults", {"delay_ms": "5"}, "delay_ms"),
    ("POST", "/control/faults", {"delay_ms": 5, "client_id": 5}, "client_id"),
    ("POST", "/control/faults", {"delay_ms": 5, "when": "now"}, "when"),
    ("POST", "/control/faults", {"delay_ms": 5, "trigger": "twice"}, "trigger"),
    ("POST", "/control/faults", {"delay_ms": 5, "trigger": {"times": 0}}, "trigger"),
    ("POST", "/control/faults", {"delay_ms": 5, "trigger": {"times": True}}, "trigger"),
    ("POST", "/control/faults", {"delay_ms": 5, "trigger": {"times": 1, "x": 1}}, "trigger"),
    ("POST", "/control/faults", {"delay_ms": 5, "trigger": {"with_probability": 2}}, "trigger"),
    ("GET", "/control/faults/first", None, "number"),
    ("GET", "/control/faults/1/wait?hits=-1", None, "hits"),
    ("GET", "/control/faults/1/wait?timeout_ms=9999999", None, "timeout_ms"),
    ("GET", "/control/faults/1/wait?seconds=1", None, "seconds"),
]


async def test_an_invalid_field_is_refused_by_name_and_changes_nothing() -> None:
    async with controlled() as there:
        there.cluster.faults.add(FaultRule(effect="observe"))
        before = await state_of(there)
        for method, path, body, field in BAD:
            refused = await there.refused(400, method, path, body)
            assert refused["field"] == field, (path, body)
            assert refused["error"].startswith(f"{field}: ")
        too_long = json.dumps({"effect": "observe"}).encode() + b" " * MOST_BYTES
        for raw in (b"{", b"\xff", b"7", b"[" * 20_000, too_long):
            status, refused = await there.ask("POST", "/control/faults", raw=raw)
            assert (status, refused["field"]) == (400, "body")
        assert await state_of(there) == before


async def state_of(there: Controlled) -> Any:
    paths = ("/control/brokers", "/control/network", "/control/faults")
    return [await there.done("GET", path) for path in paths]


@pytest.mark.parametrize(
    "rule",
    [
        FaultRule(effect="observe"),
        FaultRule(api="FETCH", topic="t", partition=0, client_id="a*", error=-1, delay_ms=5),
        FaultRule(broker=0, sender="brokers", throttle_ms=5, trigger=on_call(3)),
        FaultRule(effect="cut-answer", trigger=with_probability(0.25)),
        FaultRule(
            effect="cut-answer", trigger=rule_from_json({"delay_ms": 1, "trigger": "once"}).trigger
        ),
    ],
)
def test_a_rule_as_json_is_complete(rule: FaultRule) -> None:
    words = rule_to_json(rule)
    assert rule_from_json(json.loads(json.dumps(words))) == rule
    schema = {"$ref": "#/components/schemas/FaultRule", "components": DESCRIPTION["components"]}
    Draft202012Validator(schema).validate(words)
