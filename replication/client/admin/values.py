"""What an admin client is given and gives back."""

import attrs

from replication.config import ConfigSource
from storage.types import NO_LEADER_EPOCH, NO_TOPIC_ID, LeaderEpoch, Offset, TopicId, TopicPartition


@attrs.frozen(kw_only=True)
class NewTopic:
    """A topic to make: so many partitions and replicas (-1: as the brokers have it), or for each
    partition the brokers that are to have it, the leader first.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    replicas: tuple[tuple[int, ...], ...] = ()
    configs: dict[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class PartitionDescription:
    """Who has a partition and who leads it, by broker id."""

    partition: int
    leader: int
    """-1 where there is none."""
    leader_epoch: LeaderEpoch
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    eligible_leaders: tuple[int, ...] | None = None
    """Who is out of the ISR and could lead all the same (KIP-966); None where it is not told."""
    last_known_eligible: tuple[int, ...] | None = None


@attrs.frozen(kw_only=True)
class TopicDescription:
    """A topic and its partitions, in their order."""

    name: str
    topic_id: TopicId = NO_TOPIC_ID
    is_internal: bool = False
    partitions: tuple[PartitionDescription, ...] = ()


@attrs.frozen(kw_only=True)
class BrokerDescription:
    """A broker, where clients reach it."""

    id: int
    host: str
    port: int
    rack: str | None = None


@attrs.frozen(kw_only=True)
class ClusterDescription:
    """A cluster, as the broker that answered knows it."""

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerDescription, ...]


@attrs.frozen(kw_only=True)
class ConfigValue:
    """One key's value and where it comes from; None of a value that is shown to nobody."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool = False

    @property
    def is_default(self) -> bool:
        """Whether nobody has set it."""
        return self.source is ConfigSource.DEFAULT_CONFIG


@attrs.frozen(kw_only=True)
class ListedOffset:
    """An offset, with the time in milliseconds and the leader epoch of its record; -1 where not known."""

    offset: Offset
    timestamp: int = -1
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


@attrs.frozen(kw_only=True)
class Reassignment:
    """A partition on the move."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@attrs.frozen(kw_only=True)
class ReplicaSize:
    """One replica on one disk, and by how many records it is behind."""

    size: int
    """Bytes of its log."""
    offset_lag: int


@attrs.frozen(kw_only=True)
class LogDirectory:
    """One log directory of a broker; sizes of its volume are in bytes, -1 where not known."""

    path: str
    error: str = ""
    """Why nothing can be said of it: an error's name; empty where all is well."""
    replicas: dict[TopicPartition, ReplicaSize] = attrs.field(factory=dict)
    total_bytes: int = -1
    usable_bytes: int = -1


@attrs.frozen(kw_only=True)
class ListedGroup:
    """A group, as its coordinator lists it."""

    group_id: str
    protocol_type: str
    state: str


@attrs.frozen(kw_only=True)
class GroupMember:
    """A member; `metadata` and `assignment` are the bytes that its protocol has for them."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    metadata: bytes
    assignment: bytes


@attrs.frozen(kw_only=True)
class GroupDescription:
    """A group, as its coordinator knows it."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]
    coordinator: BrokerDescription | None = None
    """Who answered for it."""
