"""A proxy in front of brokers that ask for TLS and a login, over real sockets."""

from replication.client import Admin, Producer
from replication.client.admin import NewTopic
from replication.client.config import ClientConfig
from replication.faults import FaultRule, once
from replication.proxy import open_proxy
from replication.proxy.proxy import UNKNOWN_BROKER
from tests.replication.net.certificates import certificates
from tests.replication.server.test_logins import guarded_cluster, outside


async def test_a_clients_login_passes_and_the_connection_behind_has_tls() -> None:
    async with guarded_cluster(brokers=2) as cluster:
        servers = cluster.addresses("OUTSIDE")
        trusting = ClientConfig.of(
            bootstrap_servers=servers,
            security_protocol="SSL",
            ssl_truststore_certificates=certificates().trusted,
        )
        async with open_proxy(servers[0], introduction=trusting.introduction) as proxy:
            assert [each.broker_id for each in proxy.fronted] == [UNKNOWN_BROKER]
            alice = outside(cluster, "PLAIN", "alice", "sesame") | {
                "bootstrap_servers": proxy.bootstrap_servers,
                "security_protocol": "SASL_PLAINTEXT",
            }
            del alice["ssl_truststore_certificates"]
            async with Admin(**alice) as admin:
                await admin.create_topics([NewTopic(name="t", replication_factor=2)])
            rule = proxy.faults.add(
                FaultRule(api="PRODUCE", topic="t", error="NOT_ENOUGH_REPLICAS", trigger=once())
            )
            async with Producer(**alice) as producer:
                assert (await producer.send("t", b"sealed")).offset == 0
            assert rule.hits == 1
            assert [each.broker_id for each in proxy.fronted] == [1, 2]


async def test_a_proxy_that_logs_in_itself_lets_in_clients_without_a_login() -> None:
    async with guarded_cluster() as cluster:
        own = ClientConfig.of(**outside(cluster, "PLAIN", "alice", "sesame"))
        (servers,) = cluster.addresses("OUTSIDE")
        async with open_proxy(servers, introduction=own.introduction) as proxy:
            assert [each.broker_id for each in proxy.fronted] == [1]
            async with Admin(proxy.bootstrap_servers) as admin:
                await admin.create_topics([NewTopic(name="t")])
                assert "t" in await admin.list_topics()
