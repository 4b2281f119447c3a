"""An admin client for trio, after Kafka's Admin.

    async with Admin("localhost:9092") as admin:
        await admin.create_topics([NewTopic(name="t", partitions=3)])
        await admin.alter_topic_configs({"t": {"retention.ms": "60000"}})

A request about many things that fails for some is done for the others; `SomeFailedError` names
those that failed, with the error of each.

The methods are the functions of `topics`, `offsets`, `brokers`, `cluster`, `groups` and `security`,
whose first argument is an open admin client.
"""

from collections.abc import Iterable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import trio

from replication.client.admin import brokers, cluster, groups, offsets, security, topics
from replication.client.admin.calls import Calls
from replication.client.config import ClientConfig
from replication.client.errors import IllegalStateError
from replication.client.metadata import Metadata
from replication.client.network_client import NetworkClient
from replication.net import production_seams
from replication.net.seams import Seams


class Admin:
    """An admin client, open inside its `async with` block.

    `config` holds Kafka's keys with underscores: `request_timeout_ms=5000`. A call takes at most
    `default_api_timeout_ms` and raises KafkaTimeoutError then.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        seams: Seams | None = None,
        **config: Any,
    ) -> None:
        self.config = ClientConfig.of(bootstrap_servers=bootstrap_servers, **config)
        self._seams = production_seams() if seams is None else seams
        self._open_calls: Calls | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            nursery = await stack.enter_async_context(trio.open_nursery())
            self._open_calls = self._assemble(nursery)
            nursery.start_soon(self._open_calls.metadata.run)
            stack.callback(nursery.cancel_scope.cancel)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open_calls = None
        # An error of the block is raised by the block, not by the nursery.
        await self._stack.__aexit__(None, None, None)

    def _assemble(self, nursery: trio.Nursery) -> Calls:
        network = NetworkClient(config=self.config, seams=self._seams, nursery=nursery)
        leaders_wanted: dict[str, int] = {}
        metadata = Metadata(network=network, topics_wanted=lambda: [*leaders_wanted])
        return Calls(metadata=metadata, topics=leaders_wanted)

    @property
    def calls(self) -> Calls:
        """The ways of asking the cluster; IllegalStateError outside the block."""
        if self._open_calls is None:
            raise IllegalStateError("an admin client asks inside `async with`")
        return self._open_calls

    # Topics and partitions.
    create_topics = topics.create_topics
    delete_topics = topics.delete_topics
    create_partitions = topics.create_partitions
    list_topics = topics.list_topics
    describe_topics = topics.describe_topics
    elect_leaders = topics.elect_leaders
    alter_partition_reassignments = topics.alter_partition_reassignments
    list_partition_reassignments = topics.list_partition_reassignments

    # Offsets and records.
    list_offsets = offsets.list_offsets
    list_replica_offsets = offsets.list_replica_offsets
    list_epoch_ends = offsets.list_epoch_ends
    list_replica_sizes = offsets.list_replica_sizes
    delete_records = offsets.delete_records

    # Configurations and brokers.
    describe_topic_configs = brokers.describe_topic_configs
    describe_broker_configs = brokers.describe_broker_configs
    alter_topic_configs = brokers.alter_topic_configs
    alter_broker_configs = brokers.alter_broker_configs
    describe_cluster = brokers.describe_cluster
    describe_log_dirs = brokers.describe_log_dirs

    # The whole cluster.
    describe_features = cluster.describe_features
    update_features = cluster.update_features
    describe_metadata_quorum = cluster.describe_metadata_quorum
    unregister_broker = cluster.unregister_broker
    list_config_resources = cluster.list_config_resources
    describe_client_quotas = cluster.describe_client_quotas
    alter_client_quotas = cluster.alter_client_quotas

    # Groups.
    list_groups = groups.list_groups
    describe_groups = groups.describe_groups
    delete_groups = groups.delete_groups
    list_group_offsets = groups.list_group_offsets
    alter_group_offsets = groups.alter_group_offsets
    delete_group_offsets = groups.delete_group_offsets

    # Users and ACLs.
    describe_user_scram_credentials = security.describe_user_scram_credentials
    alter_user_scram_credentials = security.alter_user_scram_credentials
    describe_acls = security.describe_acls
    create_acls = security.create_acls
    delete_acls = security.delete_acls
