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

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from replication.broker.handlers.forwarded import forward
from replication.broker.handlers.node import BrokerNode
from replication.broker.handlers.topic_ids import by_name
from replication.errors import ErrorCode
from replication.net.pace import in_steps
from replication.server.limits import limited
from replication.server.server import Handler, RequestContext
from replication.wire.api_versions import GROUP_VERSION
from replication.wire.apis import ApiKey
from replication.wire.refusals import refused_whole_in_steps

CONSUMER_GROUP_APIS: Final = (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE)
"""The APIs of the `consumer` protocol, which the configuration may leave out."""

MODULES: Final = {
    ApiKey.PRODUCE: "produce",
    ApiKey.FETCH: "fetch",
    ApiKey.LIST_OFFSETS: "offsets",
    ApiKey.METADATA: "metadata",
    ApiKey.FIND_COORDINATOR: "coordinators",
    ApiKey.JOIN_GROUP: "groups",
    ApiKey.SYNC_GROUP: "groups",
    ApiKey.HEARTBEAT: "groups",
    ApiKey.LEAVE_GROUP: "groups",
    ApiKey.OFFSET_COMMIT: "group_offsets",
    ApiKey.OFFSET_FETCH: "group_offsets",
    ApiKey.OFFSET_DELETE: "group_offsets",
    ApiKey.DESCRIBE_GROUPS: "group_administration",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "consumer_groups",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "consumer_groups",
    ApiKey.LIST_GROUPS: "group_administration",
    ApiKey.DELETE_GROUPS: "group_administration",
    ApiKey.CREATE_TOPICS: "topics",
    ApiKey.DELETE_TOPICS: "topics",
    ApiKey.CREATE_PARTITIONS: "partitions",
    ApiKey.ELECT_LEADERS: "partitions",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "partitions",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "partitions",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "topic_partitions",
    ApiKey.DELETE_RECORDS: "records",
    ApiKey.INIT_PRODUCER_ID: "coordinators",
    ApiKey.ADD_PARTITIONS_TO_TXN: "transactions",
    ApiKey.ADD_OFFSETS_TO_TXN: "transactions",
    ApiKey.END_TXN: "transactions",
    ApiKey.WRITE_TXN_MARKERS: "transactions",
    ApiKey.TXN_OFFSET_COMMIT: "group_offsets",
    ApiKey.DESCRIBE_TRANSACTIONS: "transactions",
    ApiKey.LIST_TRANSACTIONS: "transactions",
    ApiKey.DESCRIBE_PRODUCERS: "transactions",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "offsets",
    ApiKey.DESCRIBE_CONFIGS: "configs",
    ApiKey.ALTER_CONFIGS: "configs",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "configs",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "client_quotas",
    ApiKey.LIST_CONFIG_RESOURCES: "config_resources",
    ApiKey.UPDATE_FEATURES: "forwarded",
    ApiKey.DESCRIBE_LOG_DIRS: "log_dirs",
    ApiKey.DESCRIBE_CLUSTER: "metadata",
    ApiKey.DESCRIBE_ACLS: "acls",
    ApiKey.CREATE_ACLS: "acls",
    ApiKey.DELETE_ACLS: "acls",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "scram",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "scram",
}
"""The module of each handler; the handler has the name of its API."""

_FORWARDED: Final = (
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
)
"""The APIs whose requests the controller answers as they are."""


def broker_handlers(node: BrokerNode) -> dict[ApiKey, Handler]:
    """Return the handler of each API that `node` can serve.

    A handler's module is imported when the first request needs it: a test of a producer has no use
    for transactions, and would wait for them.
    """
    handlers: dict[ApiKey, Handler] = {
        key: _made_on_first_use(partial(_imported, node, key)) for key in MODULES
    }
    for key in (ApiKey.PRODUCE, ApiKey.FETCH):  # on the way of every record
        handlers[key] = _imported(node, key)
    return handlers | {key: limited(key, partial(forward, node)) for key in _FORWARDED}


def _made_on_first_use(make: Callable[[], Handler]) -> Handler:
    made: Handler | None = None

    def handle(context: RequestContext, request: Any) -> Any:
        nonlocal made
        if made is None:
            made = make()
        return made(context, request)

    return handle


def _imported(node: BrokerNode, key: ApiKey) -> Handler:
    module = importlib.import_module(f"{__name__}.{MODULES[key]}")
    handler: Handler = partial(getattr(module, key.name.lower()), node)
    if key in CONSUMER_GROUP_APIS:
        handler = _where_enabled(node, handler)
    return limited(key, by_name(node, key, handler))


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
