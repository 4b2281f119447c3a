"""The values that an admin client takes and returns."""

import attrs

from replication.config import ConfigSource
from replication.wire.list_groups import CLASSIC
from storage.attributes import frozen
from storage.types import NO_LEADER_EPOCH, NO_TOPIC_ID, LeaderEpoch, Offset, TopicId, TopicPartition


@frozen(kw_only=True)
class NewTopic:
    """A topic to create.

    Either `partitions` and `replication_factor` are set (-1: the brokers' default), or `replicas`
    names the brokers of each partition, the preferred leader first.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    replicas: tuple[tuple[int, ...], ...] = ()
    configs: dict[str, str] = attrs.field(factory=dict)


@frozen(kw_only=True)
class PartitionDescription:
    """The replicas and the leader of a partition, by broker id."""

    partition: int
    leader: int
    """-1 if the partition has no leader."""
    leader_epoch: LeaderEpoch
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    eligible_leaders: tuple[int, ...] | None = None
    """Replicas outside the ISR that may be elected all the same (KIP-966); None if not known."""
    last_known_eligible: tuple[int, ...] | None = None


@frozen(kw_only=True)
class TopicDescription:
    """A topic and its partitions, in order."""

    name: str
    topic_id: TopicId = NO_TOPIC_ID
    is_internal: bool = False
    partitions: tuple[PartitionDescription, ...] = ()


@frozen(kw_only=True)
class BrokerDescription:
    """A broker and its address for clients."""

    id: int
    host: str
    port: int
    rack: str | None = None


@frozen(kw_only=True)
class ClusterDescription:
    """A cluster, as the broker that answered knows it."""

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerDescription, ...]


@frozen(kw_only=True)
class ConfigValue:
    """The value of a configuration key and its source; None for a secret value."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool = False

    @property
    def is_default(self) -> bool:
        """Whether the value is the default."""
        return self.source is ConfigSource.DEFAULT_CONFIG


@frozen(kw_only=True)
class ListedOffset:
    """An offset, with the timestamp in milliseconds and the leader epoch of its record; -1: unknown."""

    offset: Offset
    timestamp: int = -1
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


@frozen(kw_only=True)
class Reassignment:
    """The move of a partition to other brokers."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@frozen(kw_only=True)
class ReplicaSize:
    """The size of a replica in a log directory, and its lag in records."""

    size: int
    """The size of the log in bytes."""
    offset_lag: int


@frozen(kw_only=True)
class LogDirDescription:
    """A log directory of a broker; the sizes of its volume are in bytes, -1 if not known."""

    path: str
    error: str = ""
    """The name of the error for which the directory cannot be described; empty if there is none."""
    replicas: dict[TopicPartition, ReplicaSize] = attrs.field(factory=dict)
    total_bytes: int = -1
    usable_bytes: int = -1


@frozen(kw_only=True)
class ListedGroup:
    """A group, as its coordinator lists it."""

    group_id: str
    protocol_type: str
    state: str
    type: str = ""
    """`classic`, `consumer` (KIP-848), ...; empty if the broker is older than KIP-848."""


@frozen(kw_only=True)
class GroupMember:
    """A member of a group (Kafka's MemberDescription)."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    metadata: bytes = b""
    """The subscription that a member of a classic group joined with, as its protocol encodes it."""
    assignment: bytes = b""
    """The assignment in a classic group, as its protocol encodes it."""
    partitions: tuple[TopicPartition, ...] = ()
    """The partitions that the member has now; none in a group that assigns anything else."""
    target_partitions: tuple[TopicPartition, ...] | None = None
    """The partitions that a consumer group intends for the member; None in a classic group."""
    member_epoch: int | None = None
    """The epoch up to which the member has reconciled its partitions; None in a classic group."""
    upgraded: bool | None = None
    """Whether the member of a consumer group uses its protocol itself; None if not known."""
    rack_id: str | None = None


@frozen(kw_only=True)
class GroupDescription:
    """A group, as its coordinator knows it."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]
    coordinator: BrokerDescription | None = None
    """The broker that coordinates the group."""
    type: str = CLASSIC
    """`classic` or `consumer` (KIP-848)."""
    group_epoch: int | None = None
    """The epoch of the members' subscriptions; None for a classic group."""
    target_assignment_epoch: int | None = None
    """The group epoch for which partitions were assigned last; None for a classic group."""
