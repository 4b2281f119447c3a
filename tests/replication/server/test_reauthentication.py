"""Logins that end and are renewed on their connection (KIP-368), and those without Kafka's headers.

On virtual time: the server of a broker, and a client of each kind that we have.
"""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

from replication.client import Admin, Producer
from replication.client.admin import NewTopic
from replication.client.config import ClientConfig
from replication.client.connection import BrokerConnection
from replication.client.requests import PendingResponse, ask
from replication.cluster.cluster import open_cluster
from replication.config.security import Login
from replication.errors import AuthenticationError, ErrorCode, PeerUnavailableError
from replication.events import ConnectionRefused, Event
from replication.net.framing import FrameReader, send_parts
from replication.net.rpc import RpcClient
from replication.net.sasl import SaslConnection, SaslTransport
from replication.net.seams import Connection, Seams
from replication.security.rules.sasl import client_mechanism, server_mechanisms
from replication.security.rules.scram import SHA_256, ScramCredential
from replication.server.authentication import Gate
from replication.server.server import RequestContext, Server
from replication.wire.apis import ApiKey
from replication.wire.metadata import MetadataRequest, MetadataResponse
from replication.wire.sasl_handshake import SaslHandshakeRequest
from scenarios.world.world import World
from tests.replication.broker.stage import QUICK, name_of, played_in
from tests.replication.net.counting import Counting
from tests.replication.server.attacked import with_logins

PORT = 9092
CREDENTIAL = ScramCredential.of(SHA_256, password="sesame", salt=b"salt")
ALICE = Login(SHA_256, "alice", "sesame")
MINUTE = 60.0


async def name_the_principal(context: RequestContext, _: MetadataRequest) -> MetadataResponse:
    return MetadataResponse(cluster_id=context.principal)


@attrs.define
class Scene:
    seams: Seams
    """The client's."""
    transport: Counting
    refused: list[str]

    def logged_in(self, login: Login = ALICE) -> SaslTransport:
        return SaslTransport(
            inner=self.transport, login=login, clock=self.seams.clock, chance=random.Random(1)
        )

    async def rpc(self, login: Login = ALICE) -> RpcClient:
        return await RpcClient.connect(
            self.logged_in(login),
            "b1",
            PORT,
            client_id="c",
            clock=self.seams.clock,
            timeout_ms=1000,
        )

    async def sleep(self, seconds: float) -> None:
        await self.seams.clock.sleep(seconds)


async def asked(client: RpcClient) -> str | None:
    response = await client.call(MetadataRequest(topics=[]), version=9, timeout_ms=1000)
    assert isinstance(response, MetadataResponse)
    return response.cluster_id


@asynccontextmanager
async def serving(world: World, *, lifetime_ms: int) -> AsyncIterator[Scene]:
    broker, client = world.node("b1"), world.node("client")
    refused: list[str] = []

    def note(event: Event) -> None:
        assert isinstance(event, ConnectionRefused)
        refused.append(event.cause)

    def bug(error: BaseException) -> None:
        raise error

    server = Server(
        handlers={ApiKey.METADATA: name_the_principal}, clock=broker.clock, sink=note, on_bug=bug
    )
    mechanisms = server_mechanisms(
        ("PLAIN", SHA_256),
        plain_users={"bob": "open", "carol": "open"},
        credential_of=lambda name, _: CREDENTIAL if name == "alice" else None,
        new_nonce=lambda: "server",
    )
    gate = Gate(clock=broker.clock, mechanisms=mechanisms, lifetime_ms=lifetime_ms)
    listener = await broker.transport.listen("b1", PORT)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: server.serve(listener, name="LOGIN", gate=gate))
        yield Scene(client, Counting(client.transport), refused)
        nursery.cancel_scope.cancel()


@played_in(serving, lifetime_ms=5000)
async def test_a_client_that_goes_on_asking_keeps_its_connection(scene: Scene) -> None:
    client = await scene.rpc()
    for _ in range(100):
        assert await asked(client) == "User:alice"
        await scene.sleep(MINUTE / 100)
    assert scene.transport.made == 1
    assert scene.refused == []


@played_in(serving, lifetime_ms=5000)
async def test_a_client_that_slept_past_the_end_logs_in_before_its_request(scene: Scene) -> None:
    client = await scene.rpc()
    await scene.sleep(MINUTE)
    assert await asked(client) == "User:alice"
    assert scene.transport.made == 1


@played_in(serving, lifetime_ms=1500)
async def test_several_callers_of_one_connection_each_have_their_answer(scene: Scene) -> None:
    client = await scene.rpc()
    answers: list[str | None] = []

    async def caller(pause: float) -> None:
        for _ in range(40):
            answers.append(await asked(client))
            await scene.sleep(pause)

    async with trio.open_nursery() as nursery:
        for pause in (0.1, 0.13, 0.17):
            nursery.start_soon(caller, pause)
    assert answers == ["User:alice"] * 120
    assert scene.transport.made == 1


@played_in(serving, lifetime_ms=1500)
async def test_a_client_with_many_requests_in_flight_renews_among_them(scene: Scene) -> None:
    connection = BrokerConnection(
        "b1",
        PORT,
        config=ClientConfig.of(bootstrap_servers=f"b1:{PORT}", request_timeout_ms=1000),
        seams=attrs.evolve(scene.seams, transport=scene.logged_in()),
        max_in_flight=5,
        connect_timeout_ms=1000,
        on_ready=lambda: None,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        for _ in range(100):
            burst = [
                PendingResponse(
                    ask(MetadataRequest(topics=[])), deadline=scene.seams.clock.now() + 10
                )
                for _ in range(8)
            ]
            for each in burst:
                connection.send(each)
            for each in burst:
                assert (await each.wait()).cluster_id == "User:alice"
            await scene.sleep(0.1)
        assert scene.transport.made == 1
        nursery.cancel_scope.cancel()


@played_in(serving, lifetime_ms=5000)
async def test_a_client_that_does_not_renew_its_login_is_disconnected(scene: Scene) -> None:
    connection = await scene.logged_in().connect("b1", PORT)
    assert isinstance(connection, SaslConnection)
    client = RpcClient(connection.inner, client_id="c", clock=scene.seams.clock)
    assert await asked(client) == "User:alice"
    await scene.sleep(5.1)
    with pytest.raises(PeerUnavailableError):
        await asked(client)
    assert scene.refused == ["the login has expired and was not renewed"]


@played_in(serving, lifetime_ms=5000)
async def test_another_user_or_mechanism_cannot_take_a_connection_over(scene: Scene) -> None:
    for other, why in [
        (Login("PLAIN", "carol", "open"), "Cannot change principals"),
        (Login(SHA_256, "alice", "sesame"), "does not renew the login now"),
    ]:
        client = await scene.rpc(Login("PLAIN", "bob", "open"))
        assert isinstance(client.connection, SaslConnection)
        await scene.sleep(3)
        client.connection.login = other
        client.connection._renewed_from = 0.0
        with pytest.raises(PeerUnavailableError, match=why):
            await asked(client)
        assert client.closed


@played_in(serving, lifetime_ms=5000)
async def test_a_changed_password_counts_when_the_login_is_renewed(scene: Scene) -> None:
    client = await scene.rpc()
    assert isinstance(client.connection, SaslConnection)
    client.connection.login = Login(SHA_256, "alice", "old")
    await scene.sleep(6)
    with pytest.raises(AuthenticationError, match="did not let alice in"):
        await asked(client)
    assert client.closed


@played_in(serving, lifetime_ms=500)
async def test_a_second_login_within_a_second_is_refused(scene: Scene) -> None:
    client = await scene.rpc()
    await scene.sleep(0.5)
    await asked(client)  # the first may come at any time
    await scene.sleep(0.5)
    with pytest.raises(PeerUnavailableError, match="does not renew the login now"):
        await asked(client)
    assert await asked(await scene.rpc()) == "User:alice"  # as who is disconnected does


@played_in(serving, lifetime_ms=0)
async def test_where_logins_do_not_end_none_is_renewed(scene: Scene) -> None:
    client = await scene.rpc()
    handshake = SaslHandshakeRequest(mechanism=SHA_256)
    response = await client.call(handshake, version=1, timeout_ms=1000)
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await asked(client) == "User:alice"


# SaslHandshake 0: tokens are bare.


async def handshake_0(scene: Scene, mechanism: str) -> tuple[Connection, FrameReader]:
    connection = await scene.transport.connect("b1", PORT)
    client = RpcClient(connection, client_id="c", clock=scene.seams.clock)
    asked_for = SaslHandshakeRequest(mechanism=mechanism)
    response = await client.call(asked_for, version=0, timeout_ms=1000)
    assert response.error_code == ErrorCode.NONE
    return connection, FrameReader(connection)


@pytest.mark.parametrize(
    ("mechanism", "name", "password"), [("PLAIN", "bob", "open"), (SHA_256, "alice", "sesame")]
)
@played_in(serving, lifetime_ms=0)
async def test_tokens_without_headers_log_in_too(
    scene: Scene, mechanism: str, name: str, password: str
) -> None:
    connection, reader = await handshake_0(scene, mechanism)
    ours = client_mechanism(mechanism, username=name, password=password, nonce="client")
    token = ours.first()
    while not ours.done:
        await send_parts(connection, [len(token).to_bytes(4, "big"), token])
        frame = await reader.receive_frame()
        assert frame is not None
        token = ours.respond(bytes(frame))
    client = RpcClient(connection, client_id="c", clock=scene.seams.clock)
    assert await asked(client) == f"User:{name}"


@played_in(serving, lifetime_ms=0)
async def test_a_bare_token_that_is_wrong_is_hung_up_on(scene: Scene) -> None:
    connection, reader = await handshake_0(scene, "PLAIN")
    token = b"\0bob\0wrong"
    await send_parts(connection, [len(token).to_bytes(4, "big"), token])
    assert await reader.receive_frame() is None
    assert scene.refused == [
        "a login by PLAIN failed: Authentication failed: Invalid username or password"
    ]


# A whole cluster.

PROPERTIES = QUICK | with_logins() | {"connections.max.reauth.ms": "3000"}


def test_nodes_and_clients_of_a_cluster_go_on_over_the_connections_that_they_have() -> None:
    """For seven times as long as a login is good for: fetchers, heartbeats, a producer."""

    async def story(world: World) -> None:
        events: list[Event] = []
        transports: dict[str, Counting] = {}

        def seams_of(name: str) -> Seams:
            seams = world.node(name)
            transports[name] = Counting(seams.transport)
            return attrs.evolve(seams, transport=transports[name])

        async with open_cluster(
            brokers=2,
            data_dir="/data",
            listeners=["INSIDE"],
            properties=PROPERTIES,
            host_of=name_of,
            make_seams=lambda node_id: seams_of(name_of(node_id)),
            make_sink=lambda _: events.append,
        ) as cluster:
            login: dict[str, Any] = {
                "bootstrap_servers": cluster.bootstrap_servers,
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "PLAIN",
                "sasl_plain_username": "admin",
                "sasl_plain_password": "top",
            }
            async with Admin(**login, seams=world.node("admin")) as admin:
                await admin.create_topics([NewTopic(name="t", replication_factor=2)])
            async with Producer(**login, seams=seams_of("producer"), acks="all") as producer:
                await producer.send("t", b"first")
                made = {name: each.made for name, each in transports.items()}
                for number in range(21):
                    await producer.send("t", b"%d" % number)
                    await cluster.clock.sleep(1)
                assert {name: each.made for name, each in transports.items()} == made
            partition = cluster.partition("t", 0)
            assert partition is not None
            assert len(partition.isr) == 2
        refused = [each for each in events if isinstance(each, ConnectionRefused)]
        assert refused == []

    World(seed=1).run(story)
