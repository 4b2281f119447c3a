"""The decisions of the controller, synced or not, in the form that the rules take.

The controller reports an election once it is durable, and a new leader may show what it lacks
before that. So decisions are read as soon as they are made.
"""

from collections.abc import Collection, Iterator

import attrs

from replication.config import BrokerConfig
from replication.controller.controller import Controller
from replication.metadata.rules.image import (
    MIN_INSYNC_REPLICAS,
    MetadataImage,
    PartitionRegistration,
)
from replication.metadata.rules.records import LeaderRecoveryState
from replication.wire.metadata import NO_LEADER
from scenarios.checkers.leadership import Decided
from storage.types import LeaderEpoch, TopicPartition

FENCED_FETCH_VERSION = 9
NAMED_FETCH_VERSION = 15
UNCLEAN = "unclean.leader.election.enable"


@attrs.frozen
class PartitionDecision:
    """A partition before and after a decision; `before` is None if it is not known."""

    before: Decided | None
    after: Decided
    registered: frozenset[int]
    """The brokers that have registered in between."""
    goes_on: bool
    """Whether the same controller made both decisions, so that it has forgotten none."""

    @property
    def is_new(self) -> bool:
        return self.before is None or self.before.registration is not self.after.registration

    @property
    def asked_to_join(self) -> Collection[int]:
        """The brokers that the leader has added to the ISR; an elected leader joins by itself."""
        if self.before is None:
            return ()
        was, now = self.before.registration, self.after.registration
        return set(now.isr) - set(was.isr) if now.leader_epoch == was.leader_epoch else ()

    @property
    def risk(self) -> str:
        """The reason why the leader, if it is new, may lack what was committed; empty if none."""
        if self.before is None:
            return ""
        was, now = self.before.registration, self.after.registration
        recovers = now.leader_recovery_state is LeaderRecoveryState.RECOVERING
        # A leader may be deposed before it has recovered; then the next one recovers instead.
        if not recovers or now.leader in (NO_LEADER, was.leader, *was.isr, *was.elr):
            return ""
        eligible = set(was.elr) & set(now.replicas)
        if now.leader not in was.last_known_elr or eligible - self.registered:
            return "unclean"
        # One that has registered is still eligible if it was shut down cleanly, which is not seen.
        return "unclean" if eligible and self.after.unclean else "last known"


@attrs.define(eq=False)
class Decisions:
    image: MetadataImage = attrs.field(factory=MetadataImage, init=False)
    config: BrokerConfig | None = attrs.field(default=None, init=False)
    """The controller's configuration, once it has been seen."""
    _controller: object = attrs.field(default=None, init=False)
    _leader_epoch: LeaderEpoch = attrs.field(default=0, init=False)
    _decided: dict[TopicPartition, Decided] = attrs.field(factory=dict, init=False)

    @property
    def eligible(self) -> bool:
        """Whether there are eligible leader replicas (KIP-966)."""
        return self.config is None or self.config.understudy_eligible_leader_replicas_version > 0

    @property
    def fetches_are_fenced(self) -> bool:
        """Whether fetches carry the leader epoch that the follower knows (KIP-320)."""
        config = self.config
        return config is None or (
            config.understudy_inter_broker_fetch_version >= FENCED_FETCH_VERSION
        )

    @property
    def fetches_are_named(self) -> bool:
        """Whether fetches carry the broker epoch of the process that sends them (KIP-903)."""
        config = self.config
        return config is None or config.understudy_inter_broker_fetch_version >= NAMED_FETCH_VERSION

    def of(self, partition: TopicPartition) -> Decided | None:
        return self._decided.get(partition)

    def look(self, controller: Controller | None) -> Iterator[PartitionDecision]:
        """Yield every partition, if anything was decided since the last call."""
        if controller is None or controller.image is self.image:
            return
        # Not the epoch that its node knows: a deposed controller may just have heard of another's.
        leader_epoch = controller.log.leading_epoch
        if leader_epoch is None or leader_epoch < self._leader_epoch:
            return  # it does not know yet that another one has decided since
        self._leader_epoch = leader_epoch
        before, decided = self.image, self._decided
        goes_on = controller is self._controller
        self.image, self.config, self._decided = controller.image, controller.config, {}
        self._controller = controller
        registered = frozenset(_registered(before, self.image))
        for partition, topic_id, registration in self.image.partitions():
            after = self._decided[partition] = self._decided_of(partition, registration)
            same = before.topic_id(partition.topic) == topic_id
            was = decided.get(partition) if same else None
            yield PartitionDecision(was, after, registered, goes_on)

    def _decided_of(
        self, partition: TopicPartition, registration: PartitionRegistration
    ) -> Decided:
        assert self.config is not None, "a controller that has decided has a configuration"
        image = self.image
        topic = image.topics[partition.topic].configs
        cluster = image.broker_configs.get(None, {})
        unclean = topic.get(UNCLEAN) or cluster.get(UNCLEAN)
        return Decided(
            partition=partition,
            registration=registration,
            min_isr=min(
                int(
                    topic.get(MIN_INSYNC_REPLICAS)
                    or cluster.get(MIN_INSYNC_REPLICAS)
                    or self.config.min_insync_replicas
                ),
                len(registration.replicas),
            ),
            may_be_in_isr=image.may_join_isr,
            unclean=(unclean == "true" if unclean else self.config.unclean_leader_election_enable),
            eligible=self.eligible,
        )


def _registered(before: MetadataImage, after: MetadataImage) -> Iterator[int]:
    for broker_id, broker in after.brokers.items():
        known = before.brokers.get(broker_id)
        if known is None or known.broker_epoch != broker.broker_epoch:
            yield broker_id
