"""The cluster as one client sees it: who there is, who leads what, since when (Metadata).

Rule 1: a partition's leader epoch only moves forward while its topic keeps its id. An
answer from a broker that lags behind changes nothing of what is known to be newer (KIP-320).

Rule 2: a leader heard of elsewhere (a fetch's answer, KIP-951) counts where its epoch is
newer than ours. An epoch heard of without a leader makes ours stale: the leader is unknown
until metadata has caught up with it.

Rule 3: an answer names all topics that were asked for, and takes away none that were not,
but for those that nobody `retain`s any more.

Nothing here asks anybody: replication/client/metadata.py does.
"""

from collections.abc import Callable, Iterable, Mapping

import attrs

from replication.client.nodes import NO_NODE, Node
from replication.errors import ErrorCode
from replication.wire.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from storage.types import NO_LEADER_EPOCH, NO_TOPIC_ID, LeaderEpoch, TopicId, TopicPartition


@attrs.frozen(kw_only=True)
class PartitionView:
    """One partition, as some broker told it."""

    topic_partition: TopicPartition
    leader: int = NO_NODE
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    error: ErrorCode = ErrorCode.NONE


@attrs.frozen(kw_only=True)
class TopicView:
    """One topic; `error` is why there is nothing more to say of it."""

    name: str
    topic_id: TopicId = NO_TOPIC_ID
    is_internal: bool = False
    partitions: Mapping[int, PartitionView] = attrs.field(factory=dict)
    error: ErrorCode = ErrorCode.NONE


@attrs.frozen
class Leader:
    """Who leads a partition as far as is known, and in which epoch (Metadata.LeaderAndEpoch)."""

    node: Node | None = None
    epoch: LeaderEpoch = NO_LEADER_EPOCH


UNKNOWN_LEADER = Leader()


@attrs.define(eq=False)
class ClusterView:
    """What has been heard so far."""

    cluster_id: str | None = None
    controller_id: int = NO_NODE
    nodes: dict[int, Node] = attrs.field(factory=dict)
    topics: dict[str, TopicView] = attrs.field(factory=dict)
    version: int = 0
    """How often an answer has been taken in."""
    _last_seen: dict[TopicPartition, LeaderEpoch] = attrs.field(init=False, factory=dict)

    # -- what is known

    def node(self, node_id: int) -> Node | None:
        return self.nodes.get(node_id)

    def topic_id(self, topic: str) -> TopicId:
        view = self.topics.get(topic)
        return NO_TOPIC_ID if view is None else view.topic_id

    def topic_name(self, topic_id: TopicId) -> str | None:
        found = (view.name for view in self.topics.values() if view.topic_id == topic_id)
        return next(found, None)

    def partitions_of(self, topic: str) -> list[int] | None:
        """In order; None where the topic is not known."""
        view = self.topics.get(topic)
        return None if view is None or not view.partitions else sorted(view.partitions)

    def partition(self, tp: TopicPartition) -> PartitionView | None:
        """None where there is none, or where a newer epoch than its own was heard of."""
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

    def last_seen_epoch(self, tp: TopicPartition) -> LeaderEpoch | None:
        return self._last_seen.get(tp)

    def unauthorized(self) -> list[str]:
        return self._in_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def invalid(self) -> list[str]:
        return self._in_error(ErrorCode.INVALID_TOPIC_EXCEPTION)

    def _in_error(self, error: ErrorCode) -> list[str]:
        return sorted(name for name, view in self.topics.items() if view.error is error)

    # -- what is heard

    def note_epoch(self, tp: TopicPartition, epoch: LeaderEpoch) -> bool:
        """An epoch was heard of in passing; whether it is news (updateLastSeenEpochIfNewer)."""
        last = self._last_seen.get(tp)
        if epoch < 0 or (last is not None and epoch <= last):
            return False
        # Of a partition that was never heard of there is nothing that could be stale.
        if last is None and self.partition(tp) is None:
            return False
        self._last_seen[tp] = epoch
        return True

    def update(
        self, response: MetadataResponse, *, retain: Callable[[str], bool] = lambda _: True
    ) -> bool:
        """Take in an answer; whether it leaves something to ask again."""
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
        """Leaders out of other answers than metadata's; those that were news (KIP-951)."""
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

    def _topic(self, told: MetadataResponseTopic) -> TopicView:
        name, error = told.name or "", ErrorCode.of(told.error_code)
        before = self.topics.get(name)
        if error is not ErrorCode.NONE:
            return TopicView(name=name, error=error, is_internal=told.is_internal)
        # A topic that was deleted and made again begins its epochs anew.
        is_same = before is None or NO_TOPIC_ID in (before.topic_id, told.topic_id)
        is_same = is_same or (before is not None and before.topic_id == told.topic_id)
        partitions = {}
        for each in told.partitions:
            newest = self._newest(name, each, before, is_same=is_same)
            if newest is not None:
                partitions[each.partition_index] = newest
        return TopicView(
            name=name,
            topic_id=told.topic_id,
            is_internal=told.is_internal,
            partitions=partitions,
        )

    def _newest(
        self,
        topic: str,
        told: MetadataResponsePartition,
        before: TopicView | None,
        *,
        is_same: bool,
    ) -> PartitionView | None:
        """What is told, or what is known where that is newer; None where it is neither."""
        tp = TopicPartition(topic, told.partition_index)
        last = self._last_seen.get(tp)
        if is_same and last is not None and 0 <= told.leader_epoch < last:
            return None if before is None else before.partitions.get(tp.partition)
        if told.leader_epoch >= 0:
            self._last_seen[tp] = told.leader_epoch
        elif not is_same:
            self._last_seen.pop(tp, None)
        return PartitionView(
            topic_partition=tp,
            leader=told.leader_id,
            leader_epoch=told.leader_epoch,
            replicas=tuple(told.replica_nodes),
            isr=tuple(told.isr_nodes),
            offline_replicas=tuple(told.offline_replicas),
            error=ErrorCode.of(told.error_code),
        )


def _unsettled(topic: TopicView) -> bool:
    """Whether asking again may tell more (an InvalidMetadataException in Kafka's words)."""
    codes = [topic.error, *(each.error for each in topic.partitions.values())]
    return any(code.retriable for code in codes)
