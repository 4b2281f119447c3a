"""Stock clients that show a certificate or log in, at brokers with ACLs.

The ways in and the probes are those of the conformance card (`tests/interop/card/secured.py`).
"""

from collections.abc import Iterator

import attrs
import pytest
import trio
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.clients.probes import LEAVES_SOCKETS, MODULES, forget_sockets, probes
from tests.clients.sample import PATIENCE_SECONDS, until
from tests.interop.card.__main__ import CONFIG, make, make_ways, topic_of
from tests.interop.card.secured import WAYS, SecuredCluster

pytestmark = [pytest.mark.client, *LEAVES_SOCKETS]

TOPIC = "kept"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    """Three brokers that ask every client for a certificate or a login."""
    planned = SecuredCluster.planned(tmp_path_factory.mktemp("secured"), CONFIG)
    with planned.cluster:
        planned.cluster.wait_until_ready()
        trio.run(make_ways, planned, [*MODULES])
        yield planned
    forget_sockets()


@pytest.mark.parametrize(
    ("client", "name"), probes({name: way.probe for name, way in WAYS.items()})
)
def test_a_client_gets_in_by_its_rights(secured: SecuredCluster, client: str, name: str) -> None:
    way = WAYS[name]
    getattr(MODULES[client], way.probe)(secured.entrance(way), topic_of(client, name))


async def make_topic(secured: SecuredCluster) -> None:
    async with secured.admin() as admin:
        await make(admin, [TOPIC])


def test_librdkafkas_admin_keeps_users_and_acls(secured: SecuredCluster) -> None:
    trio.run(make_topic, secured)
    boss = attrs.evolve(secured.entrance(WAYS["mutual_tls"]), own=str(secured.files / "boss.pem"))
    bob = secured.entrance(WAYS["sasl_plain"])
    admin, bobs = (
        AdminClient({"bootstrap.servers": way.servers, **way.as_librdkafka()})
        for way in (boss, bob)
    )
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    alteration = UserScramCredentialUpsertion("dora", info, b"secret")
    for altered in admin.alter_user_scram_credentials([alteration]).values():
        altered.result(timeout=PATIENCE_SECONDS)
    described_users = admin.describe_user_scram_credentials(["dora"])
    assert isinstance(described_users, dict)
    dora = described_users["dora"].result(timeout=PATIENCE_SECONDS)
    (found,) = dora.scram_credential_infos
    assert (found.mechanism, found.iterations) == (info.mechanism, info.iterations)
    pattern = (ResourceType.TOPIC, TOPIC, ResourcePatternType.LITERAL)
    who = ("User:bob", "*")
    reading = AclBinding(*pattern, *who, AclOperation.READ, AclPermissionType.ALLOW)
    for created in admin.create_acls([reading]).values():
        created.result(timeout=PATIENCE_SECONDS)
    wanted = AclBindingFilter(*pattern, *who, AclOperation.ANY, AclPermissionType.ANY)
    # The broker hears of it from the controller, later.
    until(
        lambda: admin.describe_acls(wanted).result(timeout=PATIENCE_SECONDS) == [reading],
        lambda: "there is no such ACL",
    )
    until(
        lambda: TOPIC in bobs.list_topics(timeout=PATIENCE_SECONDS).topics,
        lambda: "bob does not see the topic",
    )
    (described,) = bobs.describe_topics(
        TopicCollection([TOPIC]), include_authorized_operations=True
    ).values()
    may = described.result(timeout=PATIENCE_SECONDS).authorized_operations
    assert {*may} == {AclOperation.READ, AclOperation.DESCRIBE}
    for deleted in admin.delete_acls([wanted]).values():
        assert deleted.result(timeout=PATIENCE_SECONDS) == [reading]
