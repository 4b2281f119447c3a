"""The handlers of a broker: one module for each group of APIs.

    metadata.py      Metadata, DescribeCluster
    produce.py       Produce
    fetch.py         Fetch
    offsets.py       ListOffsets, OffsetForLeaderEpoch
    topics.py        CreateTopics, DeleteTopics
    topic_ids.py     the newest versions of several APIs, which name topics by their ids
    partitions.py    CreatePartitions, ElectLeaders, Alter- and ListPartitionReassignments
    topic_partitions.py  DescribeTopicPartitions
    records.py       DeleteRecords
    configs.py       DescribeConfigs, AlterConfigs, IncrementalAlterConfigs
    config_resources.py  ListConfigResources
    client_quotas.py  DescribeClientQuotas
    forwarded.py     AlterClientQuotas, UpdateFeatures, UnregisterBroker, DescribeQuorum,
                     AddRaftVoter, RemoveRaftVoter
    log_dirs.py      DescribeLogDirs
    coordinators.py  FindCoordinator, InitProducerId
    groups.py        JoinGroup, SyncGroup, Heartbeat, LeaveGroup
    group_offsets.py OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete
    group_administration.py  DescribeGroups, ListGroups, DeleteGroups
    transactions.py  AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers,
                     DescribeTransactions, ListTransactions, DescribeProducers

Every handler is a function of the node, the request's context and the request. It answers from the
state of this broker, or forwards the request to the controller. It never blocks the node, and an
error of one partition or topic does not affect the answers about the others.
"""

from functools import partial
from typing import Any, Final

from replication.broker.handlers.acls import create_acls, delete_acls, describe_acls
from replication.broker.handlers.client_quotas import describe_client_quotas
from replication.broker.handlers.config_resources import list_config_resources
from replication.broker.handlers.configs import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
)
from replication.broker.handlers.consumer_groups import (
    consumer_group_describe,
    consumer_group_heartbeat,
)
from replication.broker.handlers.coordinators import find_coordinator, init_producer_id
from replication.broker.handlers.fetch import fetch
from replication.broker.handlers.forwarded import forward, update_features
from replication.broker.handlers.group_administration import (
    delete_groups,
    describe_groups,
    list_groups,
)
from replication.broker.handlers.group_offsets import (
    offset_commit,
    offset_delete,
    offset_fetch,
    txn_offset_commit,
)
from replication.broker.handlers.groups import heartbeat, join_group, leave_group, sync_group
from replication.broker.handlers.log_dirs import describe_log_dirs
from replication.broker.handlers.metadata import describe_cluster, metadata
from replication.broker.handlers.node import BrokerNode
from replication.broker.handlers.offsets import list_offsets, offset_for_leader_epoch
from replication.broker.handlers.partitions import (
    alter_partition_reassignments,
    create_partitions,
    elect_leaders,
    list_partition_reassignments,
)
from replication.broker.handlers.produce import produce
from replication.broker.handlers.records import delete_records
from replication.broker.handlers.scram import (
    alter_user_scram_credentials,
    describe_user_scram_credentials,
)
from replication.broker.handlers.topic_ids import by_name
from replication.broker.handlers.topic_partitions import describe_topic_partitions
from replication.broker.handlers.topics import create_topics, delete_topics
from replication.broker.handlers.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    list_transactions,
    write_txn_markers,
)
from replication.errors import ErrorCode
from replication.net.pace import in_steps
from replication.server.limits import limited
from replication.server.server import Handler, RequestContext
from replication.wire.api_versions import GROUP_VERSION
from replication.wire.apis import ApiKey
from replication.wire.refusals import refused_whole_in_steps

CONSUMER_GROUP_APIS: Final = (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE)
"""The APIs of the `consumer` protocol, which the configuration may leave out."""


def broker_handlers(node: BrokerNode) -> dict[ApiKey, Handler]:
    """Return the handler of each API that `node` can serve."""
    handlers: dict[ApiKey, Handler] = {
        ApiKey.PRODUCE: partial(produce, node),
        ApiKey.FETCH: partial(fetch, node),
        ApiKey.LIST_OFFSETS: partial(list_offsets, node),
        ApiKey.METADATA: partial(metadata, node),
        ApiKey.FIND_COORDINATOR: partial(find_coordinator, node),
        ApiKey.JOIN_GROUP: partial(join_group, node),
        ApiKey.SYNC_GROUP: partial(sync_group, node),
        ApiKey.HEARTBEAT: partial(heartbeat, node),
        ApiKey.LEAVE_GROUP: partial(leave_group, node),
        ApiKey.OFFSET_COMMIT: partial(offset_commit, node),
        ApiKey.OFFSET_FETCH: partial(offset_fetch, node),
        ApiKey.OFFSET_DELETE: partial(offset_delete, node),
        ApiKey.DESCRIBE_GROUPS: partial(describe_groups, node),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: partial(consumer_group_heartbeat, node),
        ApiKey.CONSUMER_GROUP_DESCRIBE: partial(consumer_group_describe, node),
        ApiKey.LIST_GROUPS: partial(list_groups, node),
        ApiKey.DELETE_GROUPS: partial(delete_groups, node),
        ApiKey.CREATE_TOPICS: partial(create_topics, node),
        ApiKey.DELETE_TOPICS: partial(delete_topics, node),
        ApiKey.CREATE_PARTITIONS: partial(create_partitions, node),
        ApiKey.ELECT_LEADERS: partial(elect_leaders, node),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: partial(alter_partition_reassignments, node),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: partial(list_partition_reassignments, node),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: partial(describe_topic_partitions, node),
        ApiKey.DELETE_RECORDS: partial(delete_records, node),
        ApiKey.INIT_PRODUCER_ID: partial(init_producer_id, node),
        ApiKey.ADD_PARTITIONS_TO_TXN: partial(add_partitions_to_txn, node),
        ApiKey.ADD_OFFSETS_TO_TXN: partial(add_offsets_to_txn, node),
        ApiKey.END_TXN: partial(end_txn, node),
        ApiKey.WRITE_TXN_MARKERS: partial(write_txn_markers, node),
        ApiKey.TXN_OFFSET_COMMIT: partial(txn_offset_commit, node),
        ApiKey.DESCRIBE_TRANSACTIONS: partial(describe_transactions, node),
        ApiKey.LIST_TRANSACTIONS: partial(list_transactions, node),
        ApiKey.DESCRIBE_PRODUCERS: partial(describe_producers, node),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: partial(offset_for_leader_epoch, node),
        ApiKey.DESCRIBE_CONFIGS: partial(describe_configs, node),
        ApiKey.ALTER_CONFIGS: partial(alter_configs, node),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: partial(incremental_alter_configs, node),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: partial(describe_client_quotas, node),
        ApiKey.ALTER_CLIENT_QUOTAS: partial(forward, node),
        ApiKey.LIST_CONFIG_RESOURCES: partial(list_config_resources, node),
        ApiKey.UPDATE_FEATURES: partial(update_features, node),
        ApiKey.DESCRIBE_QUORUM: partial(forward, node),
        ApiKey.UNREGISTER_BROKER: partial(forward, node),
        ApiKey.ADD_RAFT_VOTER: partial(forward, node),
        ApiKey.REMOVE_RAFT_VOTER: partial(forward, node),
        ApiKey.DESCRIBE_LOG_DIRS: partial(describe_log_dirs, node),
        ApiKey.DESCRIBE_CLUSTER: partial(describe_cluster, node),
        ApiKey.DESCRIBE_ACLS: partial(describe_acls, node),
        ApiKey.CREATE_ACLS: partial(create_acls, node),
        ApiKey.DELETE_ACLS: partial(delete_acls, node),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: partial(describe_user_scram_credentials, node),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: partial(alter_user_scram_credentials, node),
    }
    handlers |= {key: _where_enabled(node, handlers[key]) for key in CONSUMER_GROUP_APIS}
    return {key: limited(key, by_name(node, key, handler)) for key, handler in handlers.items()}


def _where_enabled(node: BrokerNode, handler: Handler) -> Handler:
    """Return `handler`, which refuses requests while `group.version` is 0 (KafkaApis)."""

    async def handle(context: RequestContext, request: Any) -> Any:
        if node.metadata.image.feature(GROUP_VERSION) > 0:
            return await handler(context, request)
        error = ErrorCode.UNSUPPORTED_VERSION
        return await in_steps(
            refused_whole_in_steps(context.api_key, context.version, request, error)
        )

    return handle


__all__ = ["CONSUMER_GROUP_APIS", "BrokerNode", "broker_handlers"]
