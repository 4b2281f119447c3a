"""An admin client for trio, after Kafka's Admin.

    async with Admin("localhost:9092") as admin:
        await admin.create_topics([NewTopic(name="t", partitions=3)])
        await admin.alter_topic_configs({"t": {"retention.ms": "60000"}})

What is asked for many things and fails for some is done for the others; `SomeFailedError`
says which failed, and why.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import attrs
import trio

from replication.client.admin import (
    acls,
    brokers,
    groups,
    offsets,
    replicas as replica_looks,
    scram,
    topics,
)
from replication.client.admin.calls import Calls
from replication.client.admin.scram import ScramCredentialInfo, UserScramCredentialAlteration
from replication.client.admin.values import (
    ClusterDescription,
    ConfigValue,
    GroupDescription,
    ListedGroup,
    ListedOffset,
    LogDirectory,
    NewTopic,
    Reassignment,
    TopicDescription,
)
from replication.client.config import ClientConfig
from replication.client.errors import IllegalStateError
from replication.client.given import list_of_names
from replication.client.metadata import Metadata
from replication.client.network_client import NetworkClient
from replication.client.offsets import OffsetAndMetadata
from replication.net import production_seams
from replication.net.seams import Seams
from replication.security.rules.acls import Acl, AclFilter
from replication.wire.describe_configs import ResourceType
from storage.types import LeaderEpoch, Offset, OffsetAndEpoch, TopicId, TopicPartition

ALL_BROKERS = ""
"""The broker whose configuration is every broker's default."""


@attrs.define(eq=False, init=False, repr=False)
class Admin:
    """`config` are Kafka's words, underscored: `request_timeout_ms=5000`. Times are waited for up
    to `default_api_timeout_ms`, then KafkaTimeoutError.
    """

    config: ClientConfig
    _seams: Seams
    _stack: AsyncExitStack
    _open_calls: Calls | None

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        seams: Seams | None = None,
        **config: Any,
    ) -> None:
        self.config = ClientConfig.of(bootstrap_servers=bootstrap_servers, **config)
        self._seams = production_seams() if seams is None else seams
        self._open_calls = None

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
        # What was raised in the block is its own, and none of the nursery's.
        await self._stack.__aexit__(None, None, None)

    def _assemble(self, nursery: trio.Nursery) -> Calls:
        seams = self._seams
        network = NetworkClient(
            config=self.config,
            transport=seams.transport,
            clock=seams.clock,
            chance=seams.chance,
            nursery=nursery,
        )
        leaders_wanted: dict[str, int] = {}
        metadata = Metadata(
            config=self.config,
            network=network,
            clock=seams.clock,
            chance=seams.chance,
            topics_wanted=lambda: [*leaders_wanted],
        )
        return Calls(
            config=self.config,
            network=network,
            metadata=metadata,
            clock=seams.clock,
            chance=seams.chance,
            topics=leaders_wanted,
        )

    @property
    def _calls(self) -> Calls:
        if self._open_calls is None:
            raise IllegalStateError("an admin client asks inside `async with`")
        return self._open_calls

    # Topics.

    async def create_topics(
        self, new_topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, TopicId]:
        """The ids of the topics, by name."""
        return await topics.create_topics(
            self._calls, list(new_topics), validate_only=validate_only
        )

    async def delete_topics(self, names: Iterable[str]) -> None:
        """With all of their records; who asks for one afterwards is told so once brokers have heard."""
        await topics.delete_topics(self._calls, list_of_names(names))

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        replicas: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """`counts`: how many partitions each topic is to have in all. `replicas`: of the new ones,
        by topic, where the brokers shall not choose.
        """
        await topics.create_partitions(
            self._calls, counts, replicas=replicas or {}, validate_only=validate_only
        )

    async def list_topics(self) -> list[str]:
        """The names of all topics, internal ones included."""
        return await topics.list_topics(self._calls)

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """By name: id, partitions, leaders, replicas and ISR."""
        return await topics.describe_topics(self._calls, list_of_names(names))

    # Partitions.

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition], *, unclean: bool = False
    ) -> None:
        """The preferred leader, where it is not leading; with `unclean` whoever is alive, where
        nobody is, and what it does not have is lost.
        """
        await topics.elect_leaders(self._calls, list(partitions), unclean=unclean)

    async def alter_partition_reassignments(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None]
    ) -> None:
        """The brokers that each partition is to be on; None calls its move off."""
        await topics.alter_reassignments(self._calls, replicas)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Those on the move, of `partitions` or of all."""
        wanted = None if partitions is None else list(partitions)
        return await topics.list_reassignments(self._calls, wanted)

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, ListedOffset]:
        """The first offset not older than each timestamp; EARLIEST, LATEST and MAX_TIMESTAMP of
        `replication.wire.list_offsets` are timestamps too.
        """
        return await offsets.list_offsets(self._calls, timestamps, read_committed=read_committed)

    async def list_replica_offsets(
        self,
        replicas: replica_looks.ByBroker,
        timestamp: int,
        *,
        asker: int = replica_looks.DEBUGGER,
        timeout_ms: float = 1000.0,
    ) -> dict[tuple[TopicPartition, int], ListedOffset]:
        """What brokers say of their own logs, by partition and broker: EARLIEST and LATEST are a
        log's two ends to a debugger, and LATEST the leader's high watermark to a CONSUMER. Who
        does not answer within `timeout_ms` is left out.
        """
        return await replica_looks.offsets(
            self._calls, replicas, timestamp, asker=asker, timeout_ms=timeout_ms
        )

    async def list_epoch_ends(
        self,
        epochs: Mapping[int, Mapping[TopicPartition, LeaderEpoch]],
        *,
        timeout_ms: float = 1000.0,
    ) -> dict[TopicPartition, OffsetAndEpoch]:
        """`epochs`: by leader, the epoch to ask about in each partition. The largest epoch up to
        that one in the leader's log, and where it ended. Who does not answer is left out.
        """
        return await replica_looks.epoch_ends(self._calls, epochs, timeout_ms=timeout_ms)

    async def list_replica_sizes(
        self, replicas: replica_looks.ByBroker, *, timeout_ms: float = 1000.0
    ) -> dict[tuple[TopicPartition, int], int]:
        """Bytes, by partition and broker. Who does not answer is left out."""
        return await replica_looks.sizes(self._calls, replicas, timeout_ms=timeout_ms)

    async def delete_records(
        self, before: Mapping[TopicPartition, Offset]
    ) -> dict[TopicPartition, Offset]:
        """Delete what lies before the offset, -1 for all; where each partition begins then."""
        return await offsets.delete_records(self._calls, before)

    # Configurations.

    async def describe_topic_configs(
        self, names: Iterable[str]
    ) -> dict[str, dict[str, ConfigValue]]:
        """By topic and key: what is in force, and where it comes from."""
        return await brokers.describe_configs(self._calls, ResourceType.TOPIC, list_of_names(names))

    async def describe_broker_configs(
        self, broker_ids: Iterable[int | str]
    ) -> dict[str, dict[str, ConfigValue]]:
        """The same of brokers, by their ids as text; `ALL_BROKERS` for what was set for all of them."""
        names = [str(each) for each in broker_ids]
        return await brokers.describe_configs(self._calls, ResourceType.BROKER, names)

    async def alter_topic_configs(
        self, changes: Mapping[str, Mapping[str, str | None]], *, validate_only: bool = False
    ) -> None:
        """Some keys of some topics; None puts one back to its default (KIP-339)."""
        await brokers.alter_configs(
            self._calls, ResourceType.TOPIC, changes, validate_only=validate_only
        )

    async def alter_broker_configs(
        self,
        changes: Mapping[int | str, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """The same of brokers; ALL_BROKERS for what holds where a broker has none of its own."""
        await brokers.alter_configs(
            self._calls,
            ResourceType.BROKER,
            {str(broker): keys for broker, keys in changes.items()},
            validate_only=validate_only,
        )

    # Brokers.

    async def describe_cluster(self) -> ClusterDescription:
        """Its id, its controller, and the brokers that are alive."""
        return await brokers.describe_cluster(self._calls)

    async def describe_log_dirs(
        self, broker_ids: Iterable[int] | None = None
    ) -> dict[int, list[LogDirectory]]:
        """What lies in the log directories of these brokers, or of all."""
        wanted = None if broker_ids is None else list(broker_ids)
        return await brokers.describe_log_dirs(self._calls, wanted)

    # Groups.

    async def list_groups(self, *, states: Iterable[str] = ()) -> list[ListedGroup]:
        """Of every coordinator; only those in one of `states`, where some are named."""
        return await groups.list_groups(self._calls, states=list(states))

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """By id: state, protocol, members and what they were assigned. A group that nobody knows is Dead."""
        return await groups.describe_groups(self._calls, list_of_names(group_ids))

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """With their offsets; NON_EMPTY_GROUP where somebody is in one."""
        await groups.delete_groups(self._calls, list_of_names(group_ids))

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """How far a group has read; partitions that it has no offset of are left out."""
        wanted = None if partitions is None else list(partitions)
        return await groups.list_group_offsets(
            self._calls, group_id, wanted, require_stable=require_stable
        )

    async def alter_group_offsets(
        self, group_id: str, committed: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Of a group that nobody is in; UNKNOWN_MEMBER_ID where somebody is."""
        await groups.alter_group_offsets(self._calls, group_id, committed)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> None:
        """Of partitions that nobody in the group reads; GROUP_SUBSCRIBED_TO_TOPIC of the others."""
        await groups.delete_group_offsets(self._calls, group_id, list(partitions))

    # Who may log in.

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> dict[str, tuple[ScramCredentialInfo, ...]]:
        """Of these users, or of all."""
        return await scram.describe(self._calls, None if users is None else list(users))

    async def alter_user_scram_credentials(
        self, alterations: Iterable[UserScramCredentialAlteration]
    ) -> None:
        """Users of SCRAM set or removed (KIP-554); what is kept of a password cannot log in."""
        await scram.alter(self._calls, alterations, self._seams.chance)

    # Who may do what.

    async def describe_acls(self, acl_filter: AclFilter | None = None) -> list[Acl]:
        """Those that the filter lets through, or all."""
        return await acls.describe(self._calls, acl_filter or AclFilter())

    async def create_acls(self, new_acls: Iterable[Acl]) -> None:
        """Those that are there already stay as they are."""
        await acls.create(self._calls, list(new_acls))

    async def delete_acls(self, filters: Iterable[AclFilter]) -> list[Acl]:
        """Those that any of the filters lets through; they are returned."""
        return await acls.delete(self._calls, list(filters))
