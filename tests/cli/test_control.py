"""`understudy up --control`, as a process that is steered over HTTP, and one of processes."""

import contextlib
import json
import signal
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from replication.cli.isolated import HOST
from replication.cli.probe import broker_ids
from replication.net import production_seams
from tests.cli.test_up import TIMEOUT, refused, running, stopped, table_of
from tests.replication.cluster.clients import Client
from tests.replication.cluster.stage import QUICK

pytestmark = pytest.mark.slow


def ask(url: str, method: str = "GET", body: object = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def files_of(pid: int) -> list[Path]:
    """Those that the process has open, where the system tells (/proc)."""
    found = []
    for each in Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.append(each.readlink())
    return found


@pytest.mark.parametrize("flags", [[], ["--isolated"]], ids=["one process", "isolated"])
def test_nodes_are_steered_while_they_run(tmp_path: Path, flags: list[str]) -> None:
    arguments = ["up", "-n", "2", "--any-port", "--data-dir", str(tmp_path), "--control", "0"]
    arguments += [word for key, value in QUICK.items() for word in ("-X", f"{key}={value}")]
    with running(*arguments, *flags) as process:
        addresses = [row[2] for row in table_of(process, 2)]
        assert process.stdout is not None
        purpose, description = process.stdout.readline().split()
        assert (purpose, description.rpartition("/")[2]) == ("control:", "openapi.json")
        post = partial(ask, method="POST")
        control = f"{description.rpartition('/')[0]}/control"
        trio.run(partial(Client(production_seams()).create_topic, addresses[0], "t", replicas=2))

        status, nodes = ask(f"{control}/brokers")
        assert (status, [each["address"] for each in nodes["brokers"]]) == (200, addresses)
        for word, then in (("freeze", "frozen"), ("thaw", "running"), ("stop", "down")):
            status, node = post(f"{control}/brokers/2/{word}")
            assert (status, node["status"]) == (200, then), node
        assert broker_ids(HOST, int(addresses[1].rpartition(":")[2])) == set()
        assert post(f"{control}/brokers/2/kill")[0] == 409
        status, node = post(f"{control}/controller/kill")
        assert (status, node["status"]) == (200, "down"), node
        status, node = post(f"{control}/controller/start")
        assert (status, node["status"]) == (200, "running"), node
        status, nodes = post(f"{control}/reset")
        assert (status, nodes["brokers"][1]["status"]) == (200, "running"), nodes
        journals = [each for each in files_of(process.pid) if each.name == "events.journal"]
        assert len(journals) == len(set(journals)), "one for all of a node's incarnations"
        status, topics = ask(f"{control}/topics")
        assert (status, [each["name"] for each in topics["topics"]]) == (200, ["t"]), topics

        expected = 501 if flags else 200
        for path, body in (("network/cut", {"nodes": [1]}), ("network/heal", {})):
            assert post(f"{control}/{path}", body=body)[0] == expected
        status, told = post(f"{control}/faults", body={"api": "PRODUCE", "effect": "observe"})
        assert status == (501 if flags else 201), told
        assert ask(f"{control}/faults")[0] == expected
        post(f"{control}/brokers/1/freeze")  # who is frozen leaves all the same
        assert stopped(process, signal.SIGTERM) == 0


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    arguments = ["up", "-n", "1", "--any-port", "--control"]
    with running(*arguments, "0", "--data-dir", str(tmp_path / "a")) as process:
        table_of(process, 1)
        assert process.stdout is not None
        port = process.stdout.readline().rpartition(":")[2].partition("/")[0]
        said = refused(*arguments, port, "--data-dir", str(tmp_path / "b"))
        assert f"cannot serve HTTP on 127.0.0.1:{port}" in said
        assert stopped(process, signal.SIGTERM) == 0
