"""A broker in a cluster of the other kind with a level of metadata.version that it lacks.

For a broker of Apache Kafka's, run with KAFKA_VERSION=4.1.1: that of the newest release supports
every level. A controller of the newest release has one that is not final yet, which ours lacks.

A controller of Apache Kafka 4.0 registers our broker, but does not serve its version of Fetch.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from replication.cli.kafka.processes import START_SECONDS
from replication.client.admin import Admin
from replication.errors import KafkaError
from replication.wire.api_versions import KAFKA_4_4, METADATA_VERSION
from tests.clients.sample import in_thread
from tests.interop.card.waiting import until
from tests.interop.jars import NEWEST, kafka_version
from tests.interop.kafka import CONTROLLER_ALONE, Kafka

THEIRS, OURS = 1, 2


@pytest.mark.interop
async def test_a_level_that_their_broker_lacks_and_then_their_broker(tmp_path: Path) -> None:
    if kafka_version() == NEWEST:
        pytest.skip("a broker of this version supports every level of metadata.version")
    raised = {METADATA_VERSION: KAFKA_4_4}
    async with Kafka(data_dir=tmp_path, brokers=2, ours={CONTROLLER_ALONE, OURS}) as kafka:
        async with Admin(kafka.address(OURS)) as admin:
            with pytest.raises(KafkaError, match=f"[Bb]roker {THEIRS}"):
                await admin.update_features(raised)
            await in_thread(kafka.stop, THEIRS)
            await admin.unregister_broker(THEIRS)
            await admin.update_features(raised)
        await in_thread(kafka.spawn, THEIRS)
        await in_thread(
            until, lambda: kafka.output(THEIRS), lambda said: "UNSUPPORTED_VERSION" in said
        )
        refusals = [
            line
            for line in kafka.output(CONTROLLER_ALONE).splitlines()
            if "registration_refused" in line
        ]
        assert refusals
        for word in (METADATA_VERSION, str(KAFKA_4_4), f"node={THEIRS}"):
            assert word in refusals[0], refusals[0]
        assert len(refusals) == 1


@pytest.mark.interop
def test_a_level_that_our_broker_lacks(tmp_path: Path) -> None:
    if kafka_version() != NEWEST:
        pytest.skip("a controller of this version has no level that our broker lacks")
    kafka = Kafka(
        data_dir=tmp_path,
        brokers=2,
        ours={OURS},
        properties={"unstable.feature.versions.enable": "true"},
        format_arguments=("--feature", f"{METADATA_VERSION}=34"),
    )
    try:
        kafka.format()
        for node in (CONTROLLER_ALONE, THEIRS):
            kafka.spawn(node)
        kafka.wait_until_ready()
        config = tmp_path / f"node-{OURS}" / "server.properties"
        done = subprocess.run(
            [sys.executable, "-m", "replication.cli", "broker", "--config", str(config)],
            capture_output=True,
            text=True,
            check=False,
            timeout=START_SECONDS,
        )
    finally:
        kafka.kill_all()
    assert done.returncode != 0
    *ignored, line = done.stderr.splitlines()
    assert f"feature {METADATA_VERSION} of level 34, but this release knows 7 to 33" in line
    assert all("has no effect here and is ignored" in each for each in ignored)


@pytest.mark.interop
@pytest.mark.slow
async def test_a_controller_that_is_too_old_is_named_once_in_ten_seconds(tmp_path: Path) -> None:
    kafka = Kafka(data_dir=tmp_path, brokers=2, ours={OURS}, version="4.0.0")
    try:
        await in_thread(kafka.format)
        for node in (CONTROLLER_ALONE, THEIRS):
            kafka.spawn(node)
        await in_thread(kafka.wait_until_ready)
        kafka.spawn(OURS)
        said = await in_thread(until, lambda: not_served(kafka), lambda found: len(found) >= 2)
    finally:
        kafka.kill_all()
    assert "closed the connection instead of answering FETCH v18' left_out=0 " in said[0]
    assert "left_out=0 " not in said[1]


def not_served(kafka: Kafka) -> list[str]:
    return [each for each in kafka.output(OURS).splitlines() if "metadata_not_served" in each]
