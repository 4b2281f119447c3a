"""The cluster as one client sees it: its brokers, topics, leaders and leader epochs (Metadata).

Rule 1: a partition's leader epoch only grows while its topic keeps its id. A response from a
broker that lags behind changes nothing that is known to be newer (KIP-320).

Rule 2: a leader that another response names (a fetch's, KIP-951) counts if its epoch is newer
than ours. An epoch that is named without a leader makes ours stale: the leader is unknown
until metadata has caught up with it.

Rule 3: a response names all topics that were asked for. It removes no other topic, except those
that `retain` refuses.

Rule 4: a broker that is only known by its address has a negative id (Cluster.bootstrap). Group
and transaction coordinators are asked over connections of their own, so that a JoinGroup that
waits for a minute delays no fetch; their ids are far from those of brokers.

Nothing here sends a request: `replication.client.metadata` does.
"""

from collections.abc import Callable, Iterable, Mapping

import attrs

from replication.errors import ErrorCode
from replication.wire.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from storage.attributes import define, frozen
from storage.types import NO_LEADER_EPOCH, NO_TOPIC_ID, LeaderEpoch, TopicId, TopicPartition

NO_NODE = -1
_COORDINATORS_DOWN_FROM = 2**31 - 1


@frozen
class Node:
    """A broker, or a client's second connection to it as a coordinator."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id {self.id})"

    def as_coordinator(self) -> "Node":
        """Return the node of the second connection; of that one, the broker again."""
        return attrs.evolve(self, id=_COORDINATORS_DOWN_FROM - self.id)


def bootstrap_node(index: int, host: str, port: int) -> Node:
    return Node(-1 - index, host, port)


@frozen(kw_only=True)
class PartitionInfo:
    """One partition, as a broker described it."""

    topic_partition: TopicPartition
    leader: int = NO_NODE
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    error: ErrorCode = ErrorCode.NONE


@frozen(kw_only=True)
class TopicView:
    """One topic; a topic with an `error` has no partitions."""

    name: str
    topic_id: TopicId = NO_TOPIC_ID
    is_internal: bool = False
    partitions: Mapping[int, PartitionInfo] = attrs.field(factory=dict)
    error: ErrorCode = ErrorCode.NONE


@frozen
class Leader:
    """The leader of a partition as far as is known, and its epoch (Metadata.LeaderAndEpoch)."""

    node: Node | None = None
    epoch: LeaderEpoch = NO_LEADER_EPOCH


UNKNOWN_LEADER = Leader()


@define(eq=False)
class ClusterView:
    """The newest state of the cluster that responses have given."""

    cluster_id: str | None = None
    controller_id: int = NO_NODE
    nodes: dict[int, Node] = attrs.field(factory=dict)
    topics: dict[str, TopicView] = attrs.field(factory=dict)
    version: int = 0
    """The number of metadata responses that have been applied."""
    _last_seen: dict[TopicPartition, LeaderEpoch] = attrs.field(init=False, factory=dict)

    # -- what is known

    def node(self, node_id: int) -> Node | None:
        return self.nodes.get(node_id)

    def topic_id(self, topic: str) -> TopicId:
        view = self.topics.get(topic)
        return NO_TOPIC_ID if view is None else view.topic_id

    def partitions_of(self, topic: str) -> list[int] | None:
        """Return the partitions in order; None if the topic is not known."""
        view = self.topics.get(topic)
        return None if view is None or not view.partitions else sorted(view.partitions)

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        """Return the partition; None if it is not known or a newer epoch than its own is."""
        view = self.topics.get(tp.topic)
        found = None if view is None else view.partitions.get(tp.partition)
        if found is None or found.leader_epoch == NO_LEADER_EPOCH:
            return found
        return found if found.leader_epoch == self._last_seen.get(tp) else None

    def leader(self, tp: TopicPartition) -> Leader:
        found = self.partition(tp)
        if found is None:
            return Leader(None, self._last_seen.get(tp, NO_LEADER_EPOCH))
        return Leader(self.nodes.get(found.leader), found.leader_epoch)

    def in_error(self, error: ErrorCode) -> set[str]:
        """Return the topics about which a response had this error."""
        return {name for name, view in self.topics.items() if view.error is error}

    # -- responses

    def note_epoch(self, tp: TopicPartition, epoch: LeaderEpoch) -> bool:
        """Note an epoch that another response named; return whether it is new.

        (Metadata.updateLastSeenEpochIfNewer.)
        """
        last = self._last_seen.get(tp)
        if epoch < 0 or (last is not None and epoch <= last):
            return False
        # Nothing is stale about a partition that is not known.
        if last is None and self.partition(tp) is None:
            return False
        self._last_seen[tp] = epoch
        return True

    def update(
        self, response: MetadataResponse, *, retain: Callable[[str], bool] = lambda _: True
    ) -> bool:
        """Apply a response; return whether it leaves something to ask again."""
        self.nodes = {
            each.node_id: Node(each.node_id, each.host, each.port, each.rack)
            for each in response.brokers
        }
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        answered = [self._topic(each) for each in response.topics if each.name]
        kept = {name: view for name, view in self.topics.items() if retain(name)}
        self.topics = kept | {view.name: view for view in answered}
        self._last_seen = {
            tp: epoch for tp, epoch in self._last_seen.items() if tp.topic in self.topics
        }
        self.version += 1
        return any(_unsettled(view) for view in answered)

    def update_leaders(
        self,
        leaders: Mapping[TopicPartition, tuple[int, LeaderEpoch]],
        nodes: Iterable[Node] = (),
    ) -> list[TopicPartition]:
        """Apply leaders that another response named (KIP-951); return the partitions that changed."""
        known = self.nodes | {node.id: node for node in nodes}
        news = []
        for tp, (leader, epoch) in leaders.items():
            found = self.partition(tp)
            if leader not in known or found is None or epoch <= found.leader_epoch:
                continue
            view = self.topics[tp.topic]
            moved = attrs.evolve(found, leader=leader, leader_epoch=epoch)
            self.topics[tp.topic] = attrs.evolve(
                view, partitions={**view.partitions, tp.partition: moved}
            )
            self._last_seen[tp] = epoch
            self.nodes.setdefault(leader, known[leader])
            news.append(tp)
        return news

    def _topic(self, given: MetadataResponseTopic) -> TopicView:
        name, error = given.name or "", ErrorCode.of(given.error_code)
        before = self.topics.get(name)
        if error is not ErrorCode.NONE:
            return TopicView(name=name, error=error, is_internal=given.is_internal)
        # A topic that was deleted and made again begins its epochs anew.
        is_same = before is None or NO_TOPIC_ID in (before.topic_id, given.topic_id)
        is_same = is_same or (before is not None and before.topic_id == given.topic_id)
        partitions = {}
        for each in given.partitions:
            newest = self._newest(name, each, before, is_same=is_same)
            if newest is not None:
                partitions[each.partition_index] = newest
        return TopicView(
            name=name,
            topic_id=given.topic_id,
            is_internal=given.is_internal,
            partitions=partitions,
        )

    def _newest(
        self,
        topic: str,
        given: MetadataResponsePartition,
        before: TopicView | None,
        *,
        is_same: bool,
    ) -> PartitionInfo | None:
        """Return the newer of what `given` says and what is known; None if neither is usable."""
        tp = TopicPartition(topic, given.partition_index)
        last = self._last_seen.get(tp)
        if is_same and last is not None and 0 <= given.leader_epoch < last:
            return None if before is None else before.partitions.get(tp.partition)
        if given.leader_epoch >= 0:
            self._last_seen[tp] = given.leader_epoch
        elif not is_same:
            self._last_seen.pop(tp, None)
        return PartitionInfo(
            topic_partition=tp,
            leader=given.leader_id,
            leader_epoch=given.leader_epoch,
            replicas=tuple(given.replica_nodes),
            isr=tuple(given.isr_nodes),
            offline_replicas=tuple(given.offline_replicas),
            error=ErrorCode.of(given.error_code),
        )


def _unsettled(topic: TopicView) -> bool:
    """Return whether asking again may tell more (Kafka's InvalidMetadataException)."""
    codes = [topic.error, *(each.error for each in topic.partitions.values())]
    return any(code.retriable for code in codes)
