"""Apache Kafka in a quorum with two controllers of ours: as a voter, as the leader, and back.

A broker of ours serves while the leader changes. Snapshots go both ways (KIP-630), records that were
never committed are shown by nobody, and no topic that was answered is lost.
"""

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import trio

from replication.client.admin import Admin
from replication.errors import UnderstudyError
from replication.wire.api_versions import KRAFT_VERSION
from tests.interop.kafka import CONTROLLER_ALONE
from tests.interop.mixed_quorum import BROKER, MixedQuorum, mixed_quorum, until

pytestmark = [pytest.mark.interop, pytest.mark.slow]

TURNS = 3


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedQuorum]:
    often = {"metadata.log.max.record.bytes.between.snapshots": "6000"}
    with mixed_quorum(tmp_path_factory.mktemp("mixed"), often) as quorum:
        yield quorum


def test_kafka_votes_for_us_leads_us_and_follows_again(mixed: MixedQuorum) -> None:
    assert mixed.describe().leader_id != CONTROLLER_ALONE
    mixed.create_topic("ours-leads")
    assert b"ours-leads" in mixed.check_logs()
    assert "does not support" not in mixed.kafka.output(CONTROLLER_ALONE)

    mixed.let_kafka_lead()
    mixed.create_topic("kafka-leads")
    assert b"kafka-leads" in mixed.check_logs()

    mixed.end_leadership(CONTROLLER_ALONE)
    assert mixed.describe().leader_id != CONTROLLER_ALONE
    mixed.create_topic("ours-leads-again")
    assert b"ours-leads-again" in mixed.check_logs()


def test_a_snapshot_of_ours_begins_kafkas_log_and_that_one_begins_ours(mixed: MixedQuorum) -> None:
    mixed.let_ours_lead()
    names = (f"snapshot-{number}" for number in itertools.count())
    while not mixed.snapshots(mixed.describe().leader_id):
        mixed.create_topic(next(names))
    mixed.begin_anew(CONTROLLER_ALONE)
    until(lambda: bool(mixed.snapshots(CONTROLLER_ALONE)), "Kafka has fetched a snapshot")
    mixed.check_logs()

    mixed.let_kafka_lead()
    (of_kafka, *_) = mixed.snapshots(CONTROLLER_ALONE)
    follower = mixed.ours.controller_ids[0]
    for node_id in (follower, BROKER):
        mixed.begin_anew(node_id)
        copy = mixed.metadata(node_id) / of_kafka.name
        until(copy.exists, f"node {node_id} has fetched {of_kafka.name}")
        assert copy.read_bytes() == of_kafka.read_bytes()
    mixed.ours.wait_until_ready(60)
    mixed.create_topic("behind-the-snapshot")
    assert b"behind-the-snapshot" in mixed.check_logs()
    assert {"ours-leads", "behind-the-snapshot"} <= mixed.topics()


def test_a_topic_that_no_majority_has_is_shown_by_nobody(mixed: MixedQuorum) -> None:
    """Kafka's leader sends it to our broker all the same, which keeps it over a restart."""
    mixed.let_kafka_lead()
    mixed.check_logs()
    for voter in mixed.ours.controller_ids:
        mixed.kill(voter)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(mixed.create_topic, "of-nobody", timeout_ms=10_000)
        until(
            lambda: any(b"of-nobody" in batch for batch in mixed.log(BROKER).values()),
            "the broker has the record",
        )
        assert b"of-nobody" in b"".join(mixed.log(CONTROLLER_ALONE).values())
        assert "of-nobody" not in mixed.topics()
        mixed.kill(BROKER)
        mixed.kill(CONTROLLER_ALONE)
        with pytest.raises(UnderstudyError):
            asked.result()
    for node_id in (BROKER, *mixed.ours.controller_ids):
        mixed.start(node_id)
    mixed.ours.wait_until_ready(60)
    mixed.create_topic("of-everybody")
    assert "of-nobody" not in mixed.topics()
    mixed.start(CONTROLLER_ALONE)
    mixed.check_logs()
    for node_id in (*mixed.voters, BROKER):
        assert b"of-nobody" not in b"".join(mixed.log(node_id).values())


def test_no_topic_is_lost_while_leaders_of_both_kinds_are_killed(mixed: MixedQuorum) -> None:
    answered: list[str] = []
    stopping = threading.Event()

    def create() -> None:
        for number in itertools.count():
            if stopping.is_set():
                return
            try:
                mixed.create_topic(f"load-{number}")
                answered.append(f"load-{number}")
            except UnderstudyError:
                time.sleep(0.1)  # nobody leads now; whether it was created is open

    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(create)
        try:
            for _ in range(TURNS):
                mixed.let_kafka_lead()
                mixed.let_ours_lead()
        finally:
            stopping.set()
        load.result()
    mixed.check_logs()
    assert answered
    assert set(answered) <= mixed.topics()


def test_the_voters_of_the_configuration_move_into_the_log(mixed: MixedQuorum) -> None:
    """A leader of ours raises kraft.version: Kafka's voter reports to it, and reads what it writes."""

    def raised() -> bool:
        try:
            trio.run(raise_kraft_version, mixed.ours.bootstrap_servers)
        except UnderstudyError:  # a voter registers, and reports after a fetch timeout
            return False
        return True

    mixed.let_ours_lead()
    until(raised, "every voter has registered and reported")
    mixed.create_topic("voters-in-the-log")
    assert b"voters-in-the-log" in mixed.check_logs()
    mixed.let_kafka_lead()
    mixed.create_topic("kafka-leads-with-voters-in-the-log")
    mixed.check_logs()


async def raise_kraft_version(servers: str) -> None:
    async with Admin(servers) as admin:
        await admin.update_features({KRAFT_VERSION: 1})
