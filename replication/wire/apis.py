"""Which of Kafka's APIs we speak, and which versions of each; the table itself is API.

`min_version` to `max_version` are what the codec reads and writes. What a broker tells
its clients may start lower: Produce is advertised from 0, as Apache Kafka 4 does, because
librdkafka stops compressing where the lowest version is 3 (KAFKA-18659); 0 to 2 are still
refused when they come. docs/protocol.md shows this table; a test keeps the two alike.
"""

import enum
from collections.abc import Mapping
from types import MappingProxyType, ModuleType

import attrs

from replication.wire import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    allocate_producer_ids,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    api_versions,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    fetch_snapshot,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)


class ApiKey(enum.IntEnum):
    """Kafka's numbers for its APIs (org.apache.kafka.common.protocol.ApiKeys)."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    ALTER_PARTITION = 56
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    ASSIGN_REPLICAS_TO_DIRS = 73
    DESCRIBE_TOPIC_PARTITIONS = 75


@attrs.frozen(kw_only=True)
class Api:
    """One API: its two messages, the versions spoken, the first that is flexible (KIP-482)."""

    key: ApiKey
    request: type
    response: type
    min_version: int
    max_version: int
    first_flexible: int
    advertised_from: int

    def serves(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        return version >= self.first_flexible

    def response_header_is_flexible(self, version: int) -> bool:
        # KIP-511: who cannot know our versions yet must be able to read this header.
        return self.key is not ApiKey.API_VERSIONS and self.is_flexible(version)


def _api(
    module: ModuleType, name: str, first: int, last: int, flexible: int, *, advertised: int = -1
) -> Api:
    """The API whose messages are `name`Request and `name`Response of `module`."""
    return Api(
        key=ApiKey[module.__name__.rpartition(".")[2].upper()],
        request=getattr(module, f"{name}Request"),
        response=getattr(module, f"{name}Response"),
        min_version=first,
        max_version=last,
        first_flexible=flexible,
        advertised_from=first if advertised < 0 else advertised,
    )


NEVER = 2**15
"""The first flexible version of an API that has none."""

# The numbers are the first and the last version, and the first flexible one.
_APIS = (
    _api(produce, "Produce", 3, 11, 9, advertised=0),
    _api(fetch, "Fetch", 4, 17, 12),
    _api(list_offsets, "ListOffsets", 0, 9, 6),
    _api(metadata, "Metadata", 0, 13, 9),
    _api(offset_commit, "OffsetCommit", 2, 9, 8),
    _api(offset_fetch, "OffsetFetch", 1, 9, 6),
    _api(find_coordinator, "FindCoordinator", 0, 6, 3),
    _api(join_group, "JoinGroup", 0, 9, 6),
    _api(heartbeat, "Heartbeat", 0, 4, 4),
    _api(leave_group, "LeaveGroup", 0, 5, 4),
    _api(sync_group, "SyncGroup", 0, 5, 4),
    _api(describe_groups, "DescribeGroups", 0, 6, 5),
    _api(list_groups, "ListGroups", 0, 5, 3),
    _api(api_versions, "ApiVersions", 0, 4, 3),
    _api(create_topics, "CreateTopics", 2, 7, 5),
    _api(delete_topics, "DeleteTopics", 1, 6, 4),
    _api(delete_records, "DeleteRecords", 0, 2, 2),
    _api(init_producer_id, "InitProducerId", 0, 5, 2),
    _api(offset_for_leader_epoch, "OffsetForLeaderEpoch", 2, 4, 4),
    _api(add_partitions_to_txn, "AddPartitionsToTxn", 0, 5, 3),
    _api(add_offsets_to_txn, "AddOffsetsToTxn", 0, 4, 3),
    _api(end_txn, "EndTxn", 0, 5, 3),
    _api(write_txn_markers, "WriteTxnMarkers", 1, 1, 1),
    _api(txn_offset_commit, "TxnOffsetCommit", 0, 5, 3),
    _api(describe_configs, "DescribeConfigs", 1, 4, 4),
    _api(alter_configs, "AlterConfigs", 0, 2, 2),
    _api(describe_log_dirs, "DescribeLogDirs", 1, 5, 2),
    _api(create_partitions, "CreatePartitions", 0, 3, 2),
    _api(delete_groups, "DeleteGroups", 0, 2, 2),
    _api(elect_leaders, "ElectLeaders", 0, 2, 2),
    _api(incremental_alter_configs, "IncrementalAlterConfigs", 0, 1, 1),
    _api(alter_partition_reassignments, "AlterPartitionReassignments", 0, 1, 0),
    _api(list_partition_reassignments, "ListPartitionReassignments", 0, 0, 0),
    _api(offset_delete, "OffsetDelete", 0, 0, NEVER),
    _api(alter_partition, "AlterPartition", 2, 3, 0),
    _api(fetch_snapshot, "FetchSnapshot", 0, 1, 0),
    _api(describe_cluster, "DescribeCluster", 0, 2, 0),
    _api(describe_producers, "DescribeProducers", 0, 0, 0),
    _api(broker_registration, "BrokerRegistration", 0, 4, 0),
    _api(broker_heartbeat, "BrokerHeartbeat", 0, 2, 0),
    _api(describe_transactions, "DescribeTransactions", 0, 0, 0),
    _api(list_transactions, "ListTransactions", 0, 1, 0),
    _api(allocate_producer_ids, "AllocateProducerIds", 0, 0, 0),
    _api(assign_replicas_to_dirs, "AssignReplicasToDirs", 0, 0, 0),
    _api(describe_topic_partitions, "DescribeTopicPartitions", 0, 0, 0),
)

API: Mapping[ApiKey, Api] = MappingProxyType({api.key: api for api in _APIS})
API_OF_REQUEST: Mapping[type, Api] = MappingProxyType({api.request: api for api in _APIS})
API_OF_RESPONSE: Mapping[type, Api] = MappingProxyType({api.response: api for api in _APIS})


def api_of(message: object) -> Api:
    """The API that a request or a response belongs to."""
    kind = type(message)
    api = API_OF_REQUEST.get(kind) or API_OF_RESPONSE.get(kind)
    assert api is not None, f"{kind.__name__} is no message of the protocol"
    return api
