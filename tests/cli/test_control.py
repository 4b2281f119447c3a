"""`understudy up --control`, in one process and isolated: nodes are controlled over HTTP."""

import contextlib
import json
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from replication.broker.nodes import HOST
from replication.cli.probe import broker_ids
from replication.errors import ErrorCode, PeerUnavailableError
from replication.net import production_seams
from tests.cli.test_up import TIMEOUT, refused, running, stopped, table_of, until
from tests.deep import one_in
from tests.replication.broker.clients import Client
from tests.replication.broker.stage import QUICK

pytestmark = pytest.mark.slow


def ask(url: str, method: str = "GET", body: object = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            said = answer.read()
            return answer.status, json.loads(said) if said else None
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def files_of(pid: int) -> list[Path]:
    """Return the files that the process has open, if the system shows them (/proc)."""
    found = []
    for each in Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.append(each.readlink())
    return found


@attrs.frozen
class Controlled:
    """A cluster of two brokers with a topic `t` on both, and the URL of its control."""

    process: subprocess.Popen[str]
    addresses: list[str]
    url: str
    client: Client = attrs.field(factory=lambda: Client(production_seams()))

    def get(self, path: str) -> Any:
        return self._done("GET", path)

    def post(self, path: str, body: object = None) -> Any:
        return self._done("POST", path, body)

    def delete(self, path: str) -> None:
        self._done("DELETE", path)

    def _done(self, method: str, path: str, body: object = None) -> Any:
        status, given = ask(f"{self.url}/{path}", method, body)
        assert status < 300, given
        return given

    def produce(self, broker: int) -> int:
        """Return the error code."""
        answered = trio.run(self.client.produce, self.addresses[broker - 1], "t", b"value")
        return int(answered.error_code)

    def isr(self) -> list[int]:
        (partition,) = self.get("topics/t")["partitions"]
        isr: list[int] = partition["isr"]
        return isr


@pytest.fixture(params=one_in(2, ["isolated", "one process"]))
def controlled(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Controlled]:
    arguments = ["up", "-n", "2", "--any-port", "--data-dir", str(tmp_path), "--control", "0"]
    arguments += [word for key, value in QUICK.items() for word in ("-X", f"{key}={value}")]
    flags = ["--isolated"] if request.param == "isolated" else []
    with running(*arguments, *flags) as process:
        addresses = [row[2] for row in table_of(process, 2)]
        assert process.stdout is not None
        purpose, description = process.stdout.readline().split()
        assert (purpose, description.rpartition("/")[2]) == ("control:", "openapi.json")
        url = f"{description.rpartition('/')[0]}/control"
        there = Controlled(process, addresses, url)
        trio.run(partial(there.client.create_topic, addresses[0], "t", replicas=2))
        yield there
        if process.poll() is None:
            assert stopped(process, signal.SIGTERM) == 0


def test_nodes_are_steered_while_they_run(controlled: Controlled) -> None:
    nodes = controlled.get("brokers")
    assert [each["address"] for each in nodes["brokers"]] == controlled.addresses
    for word, then in (("freeze", "frozen"), ("thaw", "running"), ("stop", "down")):
        assert controlled.post(f"brokers/2/{word}")["status"] == then
    assert broker_ids(HOST, int(controlled.addresses[1].rpartition(":")[2])) == set()
    assert ask(f"{controlled.url}/brokers/2/kill", "POST")[0] == 409
    assert controlled.post("controller/kill")["status"] == "down"
    assert controlled.post("controller/start")["status"] == "running"
    nodes = controlled.post("reset")
    assert nodes["brokers"][1]["status"] == "running"
    journals = [each for each in files_of(controlled.process.pid) if each.name == "events.journal"]
    assert len(journals) == len(set(journals)), "one for all of a node's incarnations"
    assert [each["name"] for each in controlled.get("topics")["topics"]] == ["t"]
    controlled.post("brokers/1/freeze")  # who is frozen leaves all the same
    assert stopped(controlled.process, signal.SIGTERM) == 0


def test_a_node_that_is_cut_off_is_missed_until_the_network_heals(controlled: Controlled) -> None:
    until(lambda: controlled.isr() == [1, 2], "the replicas never were in sync")
    both = [{"from": 0, "to": 2}, {"from": 1, "to": 2}, {"from": 2, "to": 0}, {"from": 2, "to": 1}]
    assert controlled.post("network/cut", {"nodes": [2]}) == {"cuts": both}
    assert controlled.get("network") == {"cuts": both}
    until(lambda: controlled.isr() == [1], "broker 2 was not missed")
    assert broker_ids(HOST, int(controlled.addresses[1].rpartition(":")[2])), "clients reach it"
    assert controlled.post("network/heal") == {"cuts": []}
    until(lambda: controlled.isr() == [1, 2], "broker 2 never came back")


def test_a_rule_counts_the_calls_of_all_brokers(controlled: Controlled) -> None:
    words = {"api": "PRODUCE", "topic": "t", "error": "INVALID_RECORD", "trigger": {"times": 2}}
    added = controlled.post("faults", words)
    assert added == {"number": 1, "rule": words, "calls": 0, "hits": 0}
    refused = [controlled.produce(broker) for broker in (1, 2)]
    assert refused == [ErrorCode.INVALID_RECORD] * 2
    assert ErrorCode.INVALID_RECORD not in [controlled.produce(broker) for broker in (1, 2)]
    counted = added | {"calls": 4, "hits": 2}
    assert controlled.get("faults/1/wait?hits=2") == counted
    assert controlled.get("faults") == {"rules": [counted]}
    hits = controlled.get("faults/1/hits")["hits"]
    assert [(each["broker"], each["answer"]) for each in hits] == [
        (1, "INVALID_RECORD"),
        (2, "INVALID_RECORD"),
    ]
    assert hits[0]["parts"] == [{"topic": "t", "partition": 0}]
    status, given = ask(f"{controlled.url}/faults/1/wait?hits=3&timeout_ms=1")
    assert (status, "was hit 2 of 3 times" in given["error"]) == (504, True)
    controlled.delete("faults/1")
    assert ask(f"{controlled.url}/faults/1")[0] == 404


@pytest.mark.deep
def test_a_rule_holds_for_a_broker_that_starts_later_and_goes_with_a_reset(
    controlled: Controlled,
) -> None:
    controlled.post("faults", {"api": "PRODUCE", "error": "INVALID_RECORD"})
    controlled.post("brokers/2/kill")
    controlled.post("brokers/2/start")
    assert controlled.produce(2) == ErrorCode.INVALID_RECORD
    controlled.post("reset")
    assert controlled.get("faults") == {"rules": []}
    assert controlled.produce(2) != ErrorCode.INVALID_RECORD


@pytest.mark.deep
def test_a_silent_connection_is_closed_when_its_rule_is_removed(controlled: Controlled) -> None:
    controlled.post("faults", {"api": "PRODUCE", "effect": "drop-request"})

    async def held() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(is_hung_up_on)
            await trio.to_thread.run_sync(controlled.get, "faults/1/wait")
            await trio.to_thread.run_sync(controlled.delete, "faults")

    async def is_hung_up_on() -> None:
        with pytest.raises(PeerUnavailableError):
            await controlled.client.produce(controlled.addresses[0], "t", b"value")

    trio.run(held)


@pytest.mark.deep
def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    arguments = ["up", "-n", "1", "--any-port", "--control"]
    with running(*arguments, "0", "--data-dir", str(tmp_path / "a")) as process:
        table_of(process, 1)
        assert process.stdout is not None
        port = process.stdout.readline().rpartition(":")[2].partition("/")[0]
        said = refused(*arguments, port, "--data-dir", str(tmp_path / "b"))
        assert f"cannot serve HTTP on 127.0.0.1:{port}" in said
        assert stopped(process, signal.SIGTERM) == 0
