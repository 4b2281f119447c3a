"""kafka-dump-log.sh and kafka-metadata-shell.sh on every type of metadata record that we write.

Where the tools are older than the broker (`jars.TOOLS_OF`), kafka-dump-log.sh does not know the
newest type. The shell runs on the classes of the broker.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import get_args

import attrs
import pytest

from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.records import encode_all
from replication.metadata.rules.snapshot import entity_data
from replication.wire.api_versions import KAFKA_4_4, METADATA_VERSION, TRANSACTION_VERSION
from replication.wire.broker_registration import Endpoint, Feature
from replication.wire.control_records import ControlRecord, control_batch_of
from replication.wire.metadata_records import (
    API_KEYS,
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
    encode_record,
)
from storage.batch.records import Record, encode_batch
from tests.interop import tools
from tests.interop.jars import NEWEST, kafka_version
from tests.interop.mixed_quorum import until
from tests.interop.test_metadata_files import kafkas_dump, our_dump
from tests.replication.controller.images import (
    broker_config,
    client_metrics,
    group_config,
    topic_config,
)
from tests.replication.metadata.checkpoints import snapshot_bytes
from tests.replication.wire.samples import sample
from tests.replication.wire.test_metadata_records import EVERY_VERSION

pytestmark = [pytest.mark.interop, pytest.mark.slow]

WALL_MS = 1000
NOT_IN_THE_TOOLS = '"type":"UNREGISTER_CONTROLLER_RECORD"'
"""The type that Kafka 4.4 has added."""


@pytest.fixture(autouse=True)
def _kafka_knows_the_records() -> None:
    if kafka_version() != NEWEST:
        pytest.skip("the records are those of the newest metadata.version")


def batch_of(values: Iterable[bytes], base_offset: int = 0) -> bytes:
    records = (Record(timestamp=WALL_MS, key=None, value=each) for each in values)
    return encode_batch(records, base_offset=base_offset)


def test_every_record_in_every_version_is_dumped_alike(tmp_path: Path) -> None:
    """Each is there with every default, and with every field set."""
    values = [
        encode_record(each, version)
        for kind, version in EVERY_VERSION
        for each in (kind(), sample(kind))
    ]
    control = [
        each
        for kind in get_args(ControlRecord)
        for each in (kind(), attrs.evolve(sample(kind), version=0))
    ]
    file = tmp_path / f"{0:020}.log"
    file.write_bytes(
        batch_of(values) + control_batch_of(control, wall_ms=WALL_MS, base_offset=len(values))
    )
    theirs = kafkas_dump(file)
    ours = [
        theirs[number] if NOT_IN_THE_TOOLS in line and "Unknown" in theirs[number] else line
        for number, line in enumerate(our_dump(file))
    ]
    assert theirs == ours
    assert sum("Error at" in line for line in theirs) <= 2
    assert sum("| offset:" in line for line in theirs) == len(values) + len(control)


ORDERS, GONE, NEVER = (bytes([number]) * 16 for number in (1, 2, 3))
FIRST, SECOND = (bytes([number]) * 16 for number in (11, 12))
ALICE, BOB = (("user", name) for name in ("alice", "bob"))


def broker(broker_id: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        broker_epoch=broker_id,
        incarnation_id=bytes([broker_id]) * 16,
        end_points=[Endpoint("PLAINTEXT", "127.0.0.1", 9000 + broker_id)],
        features=[Feature(METADATA_VERSION, 7, KAFKA_4_4)],
        rack="north",
        log_dirs=[FIRST, SECOND],
        cordoned_log_dirs=[],
    )


def controller(controller_id: int) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=controller_id,
        incarnation_id=bytes([9]) * 16,
        end_points=[Endpoint("CONTROLLER", "127.0.0.1", controller_id)],
        features=[Feature(METADATA_VERSION, 7, KAFKA_4_4)],
    )


def partition(topic_id: bytes) -> PartitionRecord:
    return PartitionRecord(
        topic_id=topic_id,
        replicas=[1, 2],
        isr=[1],
        leader=1,
        directories=[FIRST, SECOND],
        eligible_leader_replicas=[2],
    )


def acl(number: int) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id_=bytes([number]) * 16,
        resource_type=2,
        resource_name="orders",
        pattern_type=3,
        principal="User:alice",
        host="*",
        operation=number,
        permission_type=3,
    )


def quota(user: tuple[str, str], *, remove: bool = False) -> ClientQuotaRecord:
    return ClientQuotaRecord(
        entity=entity_data((user,)), key="producer_byte_rate", value=5.0, remove=remove
    )


def credential(name: str) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=name, mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    )


def token(token_id: str) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner="User:alice",
        requester="User:alice",
        renewers=["User:carol"],
        issue_timestamp=1,
        max_timestamp=3,
        expiration_timestamp=2,
        token_id=token_id,
    )


RECORDS: list[MetadataRecord] = [
    FeatureLevelRecord(name=METADATA_VERSION, feature_level=KAFKA_4_4),
    FeatureLevelRecord(name=TRANSACTION_VERSION, feature_level=2),
    ZkMigrationStateRecord(),
    NoOpRecord(),
    controller(3001),
    controller(3002),
    *(broker(each) for each in (1, 2, 3, 4)),
    UnfenceBrokerRecord(id_=1, epoch=1),
    UnfenceBrokerRecord(id_=2, epoch=2),
    FenceBrokerRecord(id_=2, epoch=2),
    BrokerRegistrationChangeRecord(
        broker_id=3,
        broker_epoch=3,
        fenced=-1,
        in_controlled_shutdown=1,
        log_dirs=[FIRST],
        cordoned_log_dirs=[FIRST],
    ),
    BeginTransactionRecord(name="to be kept"),
    TopicRecord(name="orders", topic_id=ORDERS),
    topic_config("orders", "retention.ms", "1000"),
    topic_config("orders", "cleanup.policy", "compact"),
    topic_config("orders", "cleanup.policy", None),
    partition(ORDERS),
    EndTransactionRecord(),
    BeginTransactionRecord(name="to be aborted"),
    TopicRecord(name="never", topic_id=NEVER),
    AbortTransactionRecord(reason="a test"),
    PartitionChangeRecord(topic_id=ORDERS, isr=[1, 2], leader=2, eligible_leader_replicas=[]),
    PartitionChangeRecord(topic_id=ORDERS, isr=[2], eligible_leader_replicas=[1]),
    ClearElrRecord(topic_name="orders"),
    TopicRecord(name="gone", topic_id=GONE),
    topic_config("gone", "retention.ms", "1000"),
    partition(GONE),
    broker_config("", "log.cleaner.threads", "2"),
    broker_config("1", "log.cleaner.threads", "3"),
    group_config("readers", "consumer.session.timeout.ms", "50000"),
    client_metrics("kept-metrics", "interval.ms", "5000"),
    client_metrics("spent-metrics", "interval.ms", "5000"),
    quota(ALICE),
    quota(BOB),
    credential("alice"),
    credential("bob"),
    acl(3),
    acl(4),
    token("kept-token"),
    token("spent-token"),
    ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=2000),
    RemoveTopicRecord(topic_id=GONE),
    quota(BOB, remove=True),
    RemoveUserScramCredentialRecord(name="bob", mechanism=1),
    RemoveAccessControlEntryRecord(id_=acl(4).id_),
    RemoveDelegationTokenRecord(token_id="spent-token"),
    client_metrics("spent-metrics", "interval.ms", None),
    UnregisterControllerRecord(controller_id=3002),
    UnregisterBrokerRecord(broker_id=4, broker_epoch=4),
]
"""Records of every type, as controllers write them."""


KEPT = (
    *("orders", "alice", "4.4-IV2", "3001", "producer_byte_rate", "id=3"),
    *("GROUP:readers", "kept-metrics", "kept-token"),
)
REMOVED = ("gone", "never", "bob", "3002", "id=4", "spent")


def shown(file: Path) -> str:
    """Return the image that the shell shows, without where it comes from."""
    tree = tools.run_tool(tools.METADATA_SHELL, "--snapshot", str(file), "tree", "/image")
    before, _, after = tree.partition("provenance:\n")
    return before + after.split("\n", 1)[1]


def test_the_shell_shows_the_same_image_of_our_records_and_of_our_snapshot(tmp_path: Path) -> None:
    """Kafka replays each record, and what our image has become by the same records."""
    assert {*map(type, RECORDS)} == API_KEYS.keys()
    log = tmp_path / f"{0:020}.log"
    values = encode_all(RECORDS, level=KAFKA_4_4)
    log.write_bytes(b"".join(batch_of([value], number) for number, value in enumerate(values)))
    image = MetadataImage().apply_all(RECORDS, offset=len(RECORDS) - 1, leader_epoch=0)
    snapshot = tmp_path / f"{len(RECORDS):020}-{0:010}.checkpoint"
    snapshot.write_bytes(snapshot_bytes(image))

    def alike() -> bool:
        of_snapshot = shown(snapshot)
        assert not any(each in of_snapshot for each in REMOVED)
        return all(each in of_snapshot for each in KEPT) and of_snapshot == shown(log)

    # The shell begins before it has applied all of a file, if the machine is busy.
    until(alike, "the shell shows the whole image, and the same twice")
