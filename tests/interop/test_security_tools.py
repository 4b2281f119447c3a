"""kafka-acls and kafka-configs keep who may come in and what they may do, at brokers of ours."""

from collections.abc import Iterator

import pytest
import trio

from replication.client.admin import Admin, ScramCredentialInfo
from replication.config.security import STANDARD_AUTHORIZER
from replication.testing import ThreadedCluster
from tests.interop import tools

pytestmark = [pytest.mark.interop, pytest.mark.slow]

ACLS = "org.apache.kafka.tools.AclCommand"


@pytest.fixture(scope="module")
def governed() -> Iterator[str]:
    """The servers of a broker that looks at ACLs, and where we may do everything."""
    config = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with ThreadedCluster(brokers=1, config=config) as cluster:
        yield cluster.bootstrap_servers


def test_acls_are_added_listed_and_removed(governed: str) -> None:
    def acls(*arguments: str) -> str:
        return tools.run_tool(ACLS, "--bootstrap-server", governed, *arguments)

    what = ["--topic=orders", "--resource-pattern-type=prefixed"]
    allowed = ["--allow-principal=User:alice", "--operation=Read", "--operation=Describe"]
    acls("--add", *allowed, *what)
    acls("--add", "--deny-principal=User:bob", "--deny-host=10.0.0.1", "--group=g")
    listed = acls("--list")
    assert "ResourcePattern(resourceType=TOPIC, name=orders, patternType=PREFIXED)" in listed
    for operation in ("READ", "DESCRIBE"):
        entry = f"principal=User:alice, host=*, operation={operation}, permissionType=ALLOW"
        assert entry in listed
    assert "principal=User:bob, host=10.0.0.1, operation=ALL, permissionType=DENY" in listed
    acls("--remove", "--force", *allowed, *what)
    left = acls("--list")
    assert "User:alice" not in left
    assert "User:bob" in left


def test_users_are_added_and_removed(governed: str) -> None:
    def alter(*arguments: str) -> str:
        user = ["--alter", "--entity-type=users", "--entity-name=alice"]
        return tools.run_tool(tools.CONFIGS, "--bootstrap-server", governed, *user, *arguments)

    async def known() -> object:
        async with Admin(governed) as admin:
            return await admin.describe_user_scram_credentials()

    # One by one: a request may name a user once.
    alter("--add-config=SCRAM-SHA-256=[iterations=5000,password=a]")
    alter("--add-config=SCRAM-SHA-512=[password=b]")
    sha_256 = ScramCredentialInfo("SCRAM-SHA-256", 5000)
    assert trio.run(known) == {"alice": (sha_256, ScramCredentialInfo("SCRAM-SHA-512", 4096))}
    alter("--delete-config=SCRAM-SHA-512")
    assert trio.run(known) == {"alice": (sha_256,)}
