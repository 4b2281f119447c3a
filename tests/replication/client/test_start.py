"""What a program waits for before its first record: imports, for the most part."""

import subprocess
import sys

import pytest

# Each of them costs as much as all of the client.
COSTLY = {"asyncio", "rich", "structlog", "msgpack", "numpy", "pyarrow", "argparse"}
PROGRAM = """
import sys
from replication.client import {name}
print(*sorted(sys.modules))
"""


def modules_of(name: str) -> set[str]:
    """All that is there once a program has imported that class."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(name=name)],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("Consumer", {"producer", "admin", "consumer.group.coordinator"}),
        ("Producer", {"consumer", "admin"}),
    ],
)
def test_a_client_imports_what_it_needs_and_nothing_of_brokers_and_other_clients(
    name: str, others: set[str]
) -> None:
    imported = modules_of(name)
    assert not imported & COSTLY
    assert not imported & {f"replication.client.{each}" for each in others}
    assert not imported & {
        "replication.config.broker",
        "replication.cluster",
        "replication.groups.rules",
    }
    # Messages are imported when they are first sent or read.
    assert "replication.wire.api_versions" in imported
    assert "replication.wire.broker_registration" not in imported
    assert len([each for each in imported if each.startswith("replication.wire.")]) <= 20
