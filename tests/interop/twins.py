"""One broker of Apache Kafka and one of ours with the same topics, and the same question to both.

    async with twins(kafka, allow(Operation.READ, "open")) as both:
        theirs, ours = await both.ask(lambda side: fetch_of(side.topic_id("open")), version=17)

alice has the rights that are given, and nothing else; the boss may do everything. What must
differ is put out of the answers: addresses, ids, and the sentences of error messages.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from replication.broker.handlers import broker_handlers
from replication.client.admin import Acl
from replication.errors import ErrorCode, PeerUnavailableError
from replication.net import production_seams
from replication.wire.api_versions import ApiVersionsRequest
from replication.wire.apis import API, ApiKey
from replication.wire.create_acls import AclCreation, CreateAclsRequest
from replication.wire.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from replication.wire.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from replication.wire.schema import fields_of
from tests.interop.kafka import Kafka
from tests.replication.broker.clients import Client
from tests.replication.server.test_acls import asking, governed, make

TOPICS: Final = ("open", "shut")
CLOSED: Final = "the connection is closed"
_ANY: Final = 1
_DIFFERENT: Final = {"brokers", "cluster_id", "controller_id", "error_message", "node_endpoints"}


@attrs.frozen(kw_only=True)
class Side:
    """One of the two brokers, and its clients."""

    alice: Client
    boss: Client
    address: str
    boss_address: str
    topic_ids: dict[str, bytes]

    def topic_id(self, name: str) -> bytes:
        return self.topic_ids[name]

    async def ask(self, request: object, version: int, *, as_boss: bool = False) -> Any:
        client, address = (self.boss, self.boss_address) if as_boss else (self.alice, self.address)
        try:
            return self._plain(await client.ask(address, request, version=version))
        except PeerUnavailableError:
            return CLOSED

    def _plain(self, value: Any) -> Any:
        if attrs.has(type(value)):
            kind: type = type(value)
            return {
                field.name: self._plain(getattr(value, field.name))
                for field in fields_of(kind)
                if field.name not in _DIFFERENT
            }
        if isinstance(value, list | tuple):
            # Kafka's order of topics is often that of a hash map.
            return sorted((self._plain(each) for each in value), key=repr)
        if isinstance(value, memoryview):
            return bytes(value)
        names = [name for name, topic_id in self.topic_ids.items() if topic_id == value]
        return f"the id of {names[0]}" if names else value


@attrs.frozen
class Twins:
    """Both sides; `kafka_versions`: what Kafka's advertises of each API."""

    kafka: Side
    ours: Side
    kafka_versions: dict[int, range]

    async def ask(
        self, request: Callable[[Side], object], version: int, *, as_boss: bool = False
    ) -> tuple[Any, Any]:
        """Return Kafka's answer and ours, as dictionaries."""
        theirs = await self.kafka.ask(request(self.kafka), version, as_boss=as_boss)
        return theirs, await self.ours.ask(request(self.ours), version, as_boss=as_boss)

    def every_api(self) -> Iterator[tuple[ApiKey, int]]:
        """Yield each API and version that both brokers serve."""
        for key in sorted(broker_handlers(None)):  # type: ignore[arg-type] # only its keys
            for version in range(API[key].min_version, API[key].max_version + 1):
                if version in self.kafka_versions.get(key, ()):
                    yield key, version


@asynccontextmanager
async def twins(kafka: Kafka, *rights: Acl) -> AsyncIterator[Twins]:
    """Both with two topics, and `rights` for alice."""
    boss = Client(production_seams())
    plain = kafka.address(1)
    everything = DeleteAclsFilter(
        resource_type_filter=_ANY, pattern_type_filter=_ANY, operation=_ANY, permission_type=_ANY
    )
    await boss.ask(plain, DeleteAclsRequest(filters=[everything]))
    await boss.ask(plain, CreateAclsRequest(creations=[_creation(each) for each in rights]))
    served = await boss.ask(
        plain, ApiVersionsRequest(client_software_name="a", client_software_version="1"), version=3
    )
    versions = {
        each.api_key: range(each.min_version, each.max_version + 1) for each in served.api_keys
    }
    known = await boss.metadata(plain, *TOPICS)
    theirs = Side(
        alice=asking("alice", "a"),
        boss=boss,
        address=kafka.address(1, "SECURE"),
        boss_address=plain,
        topic_ids={each.name or "": each.topic_id for each in known.topics},
    )
    protocols = {"group.coordinator.rebalance.protocols": "classic,consumer"}
    async with governed(properties=protocols) as (cluster, admin):
        if rights:
            await make(cluster, admin, *rights)
        (address,) = cluster.bootstrap_list
        ours = Side(
            alice=asking("alice", "a"),
            boss=asking("admin", "top"),
            address=address,
            boss_address=address,
            topic_ids={name: cluster.image.topics[name].topic_id for name in TOPICS},
        )
        yield Twins(theirs, ours, versions)


def _creation(acl: Acl) -> AclCreation:
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def strict_kafka(data_dir: Path) -> Kafka:
    """Return a broker of Apache Kafka with ACLs, whose own listener is the boss's."""
    users = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a";'
    return Kafka(
        data_dir=data_dir,
        listeners={"SECURE": "SASL_PLAINTEXT"},
        properties={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.secure.plain.sasl.jaas.config": users,
        },
    )


async def make_topics(kafka: Kafka, records: bytes) -> None:
    """Create the topics of both at Kafka's, and append `records` to the first."""
    boss = Client(production_seams())
    for name in TOPICS:
        await boss.create_topic(kafka.address(1), name, replicas=1)
    data = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name=TOPICS[0], partition_data=[data])
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])
    while True:
        response = await boss.ask(kafka.address(1), request)
        if response.responses[0].partition_responses[0].error_code == ErrorCode.NONE:
            return
        await trio.sleep(0.1)  # a real broker, which says nothing when it is ready
