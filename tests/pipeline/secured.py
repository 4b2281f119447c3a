"""A broker with logins and certificates, for the source and the sink."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from replication.client import Admin
from replication.client.admin import NewTopic
from replication.cluster.cluster import Cluster, open_cluster
from replication.config.security import STANDARD_AUTHORIZER
from tests.replication.broker.stage import QUICK
from tests.replication.net.certificates import broker_keys, certificates, in_files

MECHANISM = "SCRAM-SHA-512"
ADMIN = 'ScramLoginModule required username="admin" password="top";'
PROPERTIES = QUICK | {
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,LOGIN:SASL_SSL,MUTUAL:SSL",
    "inter.broker.listener.name": "LOGIN",
    "sasl.enabled.mechanisms": f"PLAIN,{MECHANISM}",
    "sasl.mechanism.inter.broker.protocol": MECHANISM,
    "sasl.mechanism.controller.protocol": MECHANISM,
    "listener.name.login.scram-sha-512.sasl.jaas.config": ADMIN,
    "listener.name.controller.scram-sha-512.sasl.jaas.config": ADMIN,
    "listener.name.login.plain.sasl.jaas.config": 'PlainLoginModule required user_bob="b";',
    "listener.name.controller.plain.sasl.jaas.config": 'PlainLoginModule required user_bob="b";',
    "understudy.add.scram": f"{MECHANISM}=[name=admin,password=top]",
    "listener.name.mutual.ssl.client.auth": "required",
    "ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/,DEFAULT",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:admin;User:carol",
    "offsets.topic.num.partitions": "1",
}


@asynccontextmanager
async def secured_cluster(directory: Path, **more: str) -> AsyncIterator[Cluster]:
    """Yield one broker with a topic `t`, and write the files of its user carol to `directory`."""
    keys = broker_keys()
    in_files(certificates().issued("carol.example", common_name="carol"), directory, "carol")
    properties = PROPERTIES | {
        "ssl.keystore.key": keys.ssl_keystore_key or "",
        "ssl.keystore.certificate.chain": keys.ssl_keystore_certificate_chain or "",
        "ssl.truststore.certificates": certificates().trusted,
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    async with open_cluster(
        brokers=1, listeners=["LOGIN", "MUTUAL"], properties=properties
    ) as cluster:
        async with Admin(
            cluster.addresses("LOGIN"),
            security_protocol="SASL_SSL",
            ssl_cafile=str(directory / "trusted.pem"),
            sasl_mechanism=MECHANISM,
            sasl_plain_username="admin",
            sasl_plain_password="top",
        ) as admin:
            await admin.create_topics([NewTopic(name="t")])
        await cluster.until(lambda: cluster.leader("t", 0) is not None)
        yield cluster
