"""The source and the sink over TLS and logins, as Spark's Kafka source names what they need."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import pytest
import trio

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")

from pipeline.source.cluster import SourceCluster as Reached
from pipeline.source.errors import BrokerError, OptionError
from pipeline.source.options import parse_read_options
from replication.client import Producer
from replication.cluster.cluster import Cluster
from tests.clients.sample import PATIENCE_SECONDS, in_thread
from tests.pipeline.logs import read
from tests.pipeline.secured import MECHANISM, secured_cluster


def by_login(cluster: Cluster, files: Path, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": ",".join(cluster.addresses("LOGIN")),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": MECHANISM,
        "kafka.sasl.jaas.config": 'ScramLoginModule required username="admin" password="top";',
        "kafka.ssl.truststore.location": str(files / "trusted.pem"),
        "kafka.default.api.timeout.ms": "20000",
        "subscribe": "t",
        **more,
    }


def by_certificate(cluster: Cluster, files: Path, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": ",".join(cluster.addresses("MUTUAL")),
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": str(files / "trusted.pem"),
        "kafka.ssl.keystore.location": str(files / "carol.pem"),
        "kafka.default.api.timeout.ms": "20000",
        "subscribe": "t",
        **more,
    }


async def produce(cluster: Cluster, files: Path) -> None:
    async with Producer[bytes, bytes](
        cluster.addresses("LOGIN"),
        security_protocol="SASL_SSL",
        ssl_cafile=str(files / "trusted.pem"),
        sasl_mechanism=MECHANISM,
        sasl_plain_username="admin",
        sasl_plain_password="top",
    ) as producer:
        for number in range(50):
            await producer.send_soon("t", b"%d" % number)


@pytest.mark.client
async def test_the_source_logs_in_by_password_or_certificate_or_says_why_not(
    tmp_path: Path,
) -> None:
    async with secured_cluster(tmp_path) as cluster:
        await produce(cluster, tmp_path)
        for way in (by_login, by_certificate):
            rows = await in_thread(read, way(cluster, tmp_path), "value")
            assert [int(row["value"]) for row in rows] == list(range(50)), way
        wrong = by_login(cluster, tmp_path, **{"kafka.sasl.jaas.config": user("admin", "wrong")})
        await refused(wrong, "did not let admin in")
        other = by_login(cluster, tmp_path, **{"kafka.sasl.mechanism": "SCRAM-SHA-256"})
        await refused(other, f"SCRAM-SHA-256 is not offered; PLAIN, {MECHANISM} is")
        # Without the authority that issued it, the broker's certificate is not believed.
        unknown = by_login(cluster, tmp_path)
        del unknown["kafka.ssl.truststore.location"]
        await refused(unknown, "no TLS with .*: its certificate is refused")
        nobody = by_certificate(cluster, tmp_path)
        del nobody["kafka.ssl.keystore.location"]
        await refused(nobody, "no TLS with|closed the connection")


def user(name: str, password: str) -> str:
    return f'ScramLoginModule required username="{name}" password="{password}";'


async def refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(BrokerError, match=said):
        await in_thread(read, options)


@pytest.mark.client
async def test_a_login_that_ends_costs_the_connection_and_nothing_else(tmp_path: Path) -> None:
    async with secured_cluster(tmp_path, connections_max_reauth_ms="600000") as cluster:
        options = parse_read_options(by_login(cluster, tmp_path), streaming=False)
        assert options.fetching is not None
        reached = Reached(options.fetching.config)

        def ask() -> Any:
            """Ask over a connection that is logged in, and return that."""
            assert list(reached.topics(["t"])) == ["t"]
            opened = reached.connection(1)._opened
            assert opened is not None
            assert 0 < opened.login_ends - time.monotonic() < 600
            return opened

        first = await in_thread(ask)
        assert await in_thread(ask) is first
        first.login_ends = time.monotonic()
        assert await in_thread(ask) is not first
        reached.connection(1).close()


@contextmanager
def served(directory: Path) -> Iterator[dict[str, str]]:
    """Serve a cluster from a thread of its own, as Spark blocks this one; yield its options."""
    ready: Queue[tuple[dict[str, str], Callable[[], None]]] = Queue()

    async def serve() -> None:
        async with secured_cluster(directory) as cluster:
            over, token = trio.Event(), trio.lowlevel.current_trio_token()
            ready.put((by_login(cluster, directory), partial(token.run_sync_soon, over.set)))
            await over.wait()

    thread = Thread(target=trio.run, args=(serve,))
    thread.start()
    options, end = ready.get(timeout=PATIENCE_SECONDS)
    try:
        yield options
    finally:
        end()
        thread.join()


@pytest.mark.client
@pytest.mark.spark
@pytest.mark.deep
def test_a_table_goes_in_and_out_by_login_in_spark(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    with served(tmp_path) as options:
        sink = {name: text for name, text in options.items() if name != "subscribe"}
        sink["transactionalIdPrefix"] = "once"
        table = spark.range(20).selectExpr("cast(id as string) value", "'t' topic")
        table.write.format("understudy").options(**sink).mode("append").save()
        rows = spark.read.format("understudy").options(**options).load().collect()
        assert sorted(int(row.value) for row in rows) == list(range(20))
        wrong = options | {"kafka.sasl.mecanism": MECHANISM}
        with pytest.raises(PySparkException, match=r"unknown key sasl\.mecanism; did you mean"):
            spark.read.format("understudy").options(**wrong).load().collect()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kafka.security.protocol": "TLS"}, "security.protocol"),
        ({"kafka.security.protocol": "SASL_SSL"}, "sasl.jaas.config is missing|sasl.mechanism"),
        ({"kafka.ssl.keystore.typ": "PEM"}, "unknown key ssl.keystore.typ; did you mean"),
        ({"kafka.sasl.kerberos.service.name": "k"}, "unknown key sasl.kerberos.service.name"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(options: dict[str, str], said: str) -> None:
    given = {"kafka.bootstrap.servers": "b1:9092", "subscribe": "t", **options}
    with pytest.raises(OptionError, match=said):
        parse_read_options(given, streaming=False)


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    missing = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "no/such.pem"}
    given = {"kafka.bootstrap.servers": "b1:9092", "subscribe": "t", **missing}
    with pytest.raises(OptionError, match=r"ssl\.truststore\.location"):
        read(given)
