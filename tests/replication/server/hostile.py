"""Requests that ask for as much work as they can.

    HOSTILE      the requests, by name: a message made as large as `count` asks
    ACCEPTED     requests that are granted, and what the broker then has to do

`tests/replication/server/test_bounded_work.py` counts the steps between two looks at the
sockets, and what is allocated. `make bench ARGS=stalls` measures the same requests, larger, in
processor time. A request belongs here when a few bytes of it ask for work; add a row.
"""

from replication.security.rules.acls import (
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from replication.wire.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from replication.wire.create_acls import AclCreation, CreateAclsRequest
from replication.wire.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from replication.wire.create_topics import CreatableTopic, CreateTopicsRequest
from replication.wire.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from replication.wire.describe_acls import DescribeAclsRequest
from replication.wire.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from replication.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from replication.wire.list_offsets import (
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from replication.wire.metadata import MetadataRequest, MetadataRequestTopic
from replication.wire.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from storage.batch.compression import Codec, compress
from storage.batch.record_batch import HEADER_SIZE
from storage.batch.records import Record, encode_batch
from tests.replication.server.attacked import ADMIN, EVE, TOPIC, Hostile
from tests.storage.logs import claiming


def names(count: int, pattern: str = "topic-%d") -> list[str]:
    return [pattern % number for number in range(count)]


def create_topics(partitions: int, *, topics: int = 1, validate_only: bool) -> CreateTopicsRequest:
    new = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        for name in names(topics, "grown-%d")
    ]
    return CreateTopicsRequest(topics=new, timeout_ms=30_000, validate_only=validate_only)


def create_partitions(count: int, *, validate_only: bool) -> CreatePartitionsRequest:
    topic = CreatePartitionsTopic(name=TOPIC, count=count, assignments=None)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=30_000, validate_only=validate_only)


def produce(batch: bytes) -> ProduceRequest:
    sent = PartitionProduceData(index=0, records=batch)
    topic = TopicProduceData(name=TOPIC, partition_data=[sent])
    return ProduceRequest(transactional_id=None, acks=1, timeout_ms=30_000, topic_data=[topic])


def produce_claimed_records(count: int) -> ProduceRequest:
    """Produce `count` records, all at one offset, which zstd shrinks to nearly nothing."""
    record = encode_batch([Record(timestamp=0, value=b"x")])[HEADER_SIZE:]
    return produce(bytes(claiming(count, compress(Codec.ZSTD, count * record), Codec.ZSTD)))


def produce_tiny_records(count: int) -> ProduceRequest:
    """Produce `count` sound records of which no two neighbours have the same size."""
    records = [Record(timestamp=0, value=b"x" * (each % 2)) for each in range(count)]
    return produce(encode_batch(records, codec=Codec.ZSTD))


def produce_headers(count: int) -> ProduceRequest:
    record = Record(timestamp=0, headers=(("", None),) * count)
    return produce(encode_batch([record], codec=Codec.ZSTD))


def produce_large_value(size: int) -> ProduceRequest:
    return produce(encode_batch([Record(timestamp=0, value=bytes(size))], codec=Codec.ZSTD))


def produce_unknown_partitions(count: int, *, acks: int = 1) -> ProduceRequest:
    partitions = [PartitionProduceData(index=1 + each, records=None) for each in range(count)]
    topic = TopicProduceData(name=TOPIC, partition_data=partitions)
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=30_000, topic_data=[topic])


def produce_young_last(count: int) -> ProduceRequest:
    """Produce `count` records of which only the last is of time 1 or younger."""
    records = [Record(timestamp=each // (count - 1), value=b"") for each in range(count)]
    return produce(encode_batch(records))


def list_offsets(timestamp: int) -> ListOffsetsRequest:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[asked])]
    )


def fetch_one_partition(count: int) -> FetchRequest:
    asked = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)] * count
    topic = FetchTopic(topic=TOPIC, partitions=asked)
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, session_epoch=-1, topics=[topic])


def metadata(count: int, *, pattern: str = "topic-%d", creates: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names(count, pattern)],
        allow_auto_topic_creation=creates,
    )


def names_with_dots(count: int) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
        for name in names(count, "a.%d_b")
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=30_000, validate_only=True)


def create_acls(count: int) -> CreateAclsRequest:
    return CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=ResourceType.TOPIC,
                resource_name=name,
                principal="User:eve",
                host=WILDCARD,
                operation=Operation.READ,
                permission_type=Permission.ALLOW,
            )
            for name in names(count)
        ]
    )


def delete_acls(filters: list[str | None]) -> DeleteAclsRequest:
    """Delete the ACLs of each named topic; None names all of them."""
    return DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=ResourceType.ANY,
                resource_name_filter=name,
                pattern_type_filter=PatternType.ANY,
                principal_filter=None,
                host_filter=None,
                operation=Operation.ANY,
                permission_type=Permission.ANY,
            )
            for name in filters
        ]
    )


def describe_acls() -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )


def alter_credentials(count: int) -> AlterUserScramCredentialsRequest:
    return AlterUserScramCredentialsRequest(
        deletions=[],
        upsertions=[
            ScramCredentialUpsertion(
                name=name, mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
            )
            for name in names(count, "user-%d")
        ],
    )


HOSTILE: dict[str, Hostile] = {
    "Produce, records that are not there": Hostile(
        request=produce_claimed_records, tested=1_000_000, measured=30_000_000
    ),
    "Produce, tiny records": Hostile(
        request=produce_tiny_records, tested=10_000, measured=1_000_000
    ),
    "Produce, headers": Hostile(request=produce_headers, tested=20_000, measured=5_000_000),
    "Produce, a large value": Hostile(
        request=produce_large_value, tested=16_000_000, measured=250_000_000
    ),
    "Produce, unknown partitions": Hostile(request=produce_unknown_partitions),
    "Produce, unknown partitions, no answer": Hostile(
        request=lambda count: produce_unknown_partitions(count, acks=0)
    ),
    "ListOffsets, a time": Hostile(
        request=lambda _: list_offsets(1), before=produce_young_last, tested=10_000
    ),
    "ListOffsets, the largest time": Hostile(
        request=lambda _: list_offsets(MAX_TIMESTAMP), before=produce_young_last, tested=10_000
    ),
    "CreatePartitions": Hostile(
        request=lambda count: create_partitions(count, validate_only=False),
        tested=20_000_000,
        measured=20_000_000,
    ),
    "CreatePartitions, validated only": Hostile(
        request=lambda count: create_partitions(count, validate_only=True),
        tested=20_000_000,
        measured=20_000_000,
    ),
    "CreateTopics, many partitions": Hostile(
        request=lambda count: create_topics(count, validate_only=True),
        tested=20_000_000,
        measured=20_000_000,
    ),
    "CreateTopics, many partitions together": Hostile(
        request=lambda count: create_topics(10_000, topics=count, validate_only=True),
        tested=3,
        measured=100,
    ),
    "Fetch, one partition many times": Hostile(
        request=fetch_one_partition, version=12
    ),  # the last version with names
    "Metadata, unknown names": Hostile(request=metadata, measured=300_000),
    "CreateTopics, names with dots": Hostile(request=names_with_dots, tested=500, measured=9_000),
    "Metadata, names to be created": Hostile(
        request=lambda count: metadata(count, creates=True), tested=6_000, measured=300_000
    ),
    "Metadata, unauthorised names": Hostile(request=metadata, tested=2_000, sender=EVE),
}


ACCEPTED: dict[str, Hostile] = {
    "CreatePartitions, all that may be created": Hostile(
        request=lambda count: create_partitions(count, validate_only=False),
        tested=500,
        measured=9_999,
    ),
    "CreateAcls": Hostile(request=create_acls, measured=9_999, sender=ADMIN),
    "DescribeAcls of all": Hostile(
        request=lambda _: describe_acls(), before=create_acls, measured=9_999, sender=ADMIN
    ),
    "Metadata, by the first ACLs": Hostile(
        request=lambda _: metadata(1), before=create_acls, measured=9_999, sender=EVE
    ),
    "DeleteAcls, one filter": Hostile(
        request=lambda _: delete_acls([None]), before=create_acls, measured=9_999, sender=ADMIN
    ),
    "DeleteAcls, a filter for each": Hostile(
        request=lambda count: delete_acls([*names(count)]),
        before=create_acls,
        tested=1_000,
        measured=9_999,
        sender=ADMIN,
    ),
    "DeleteAcls, all by each filter": Hostile(
        request=lambda count: delete_acls([None] * count),
        before=create_acls,
        tested=500,
        measured=1_000,
        sender=ADMIN,
    ),
    "AlterUserScramCredentials": Hostile(request=alter_credentials, measured=9_999, sender=ADMIN),
    "DescribeUserScramCredentials of all": Hostile(
        request=lambda _: DescribeUserScramCredentialsRequest(users=None),
        before=alter_credentials,
        measured=9_999,
        sender=ADMIN,
    ),
}
"""Requests that change the cluster, or are about such a change, so that each is sent once."""
