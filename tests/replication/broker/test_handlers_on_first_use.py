"""The modules of a broker's handlers are imported when a request needs them."""

import subprocess
import sys
from pathlib import Path

import pytest

from replication.broker.handlers import broker_handlers
from replication.server.server import RequestContext
from replication.wire.apis import API, ApiKey

ROOT = Path(__file__).parents[3]

IMPORTED = """
import sys
from replication.testing import ThreadedCluster
with ThreadedCluster(brokers=1) as cluster:
    assert cluster.brokers == [1]
for name in ("broker.handlers.transactions", "broker.handlers.groups", "server.guards.special"):
    assert f"replication.{name}" not in sys.modules, name
print(sum(name.startswith("replication.wire.") for name in sys.modules))
"""
MOST = 68
"""Of 80 modules: those of the cluster's own requests, and those that its rules name."""


def test_a_cluster_that_is_asked_for_nothing_imports_no_handler_of_groups() -> None:
    command = [sys.executable, "-c", IMPORTED]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= MOST


@pytest.mark.parametrize("key", broker_handlers(None))  # type: ignore[arg-type] # only its keys
async def test_each_api_has_a_handler(key: ApiKey) -> None:
    handler = broker_handlers(None)[key]  # type: ignore[arg-type] # there is no node to ask
    context = RequestContext(key, API[key].max_version, "", "", "")
    lacking: object = None
    answer: object = API[key].response()
    try:
        answer = await handler(context, API[key].request())
    except AttributeError as error:
        lacking = error.obj
    assert lacking is None, "it is the node that lacks something"
    assert isinstance(answer, API[key].response)
