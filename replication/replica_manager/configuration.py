"""Settings of topics and of this broker, and the parts that they are passed to.

    metadata ─┬─ of brokers ─> DynamicBrokerConfig ─> fetchers, quotas, producers' expiration
              └─ of topics ──> Log.config, min.insync.replicas, throttled replicas

A broker's settings are the defaults of its topics, so a change of them reconfigures every topic
too. Other parts read `DynamicBrokerConfig.current` whenever they need it.
"""

from collections.abc import Iterable

from replication.config import DynamicBrokerConfig, TopicConfig
from replication.leader.rules.quota import ReplicationQuotas
from replication.metadata.rules.image import MetadataDelta, MetadataImage, TopicImage
from replication.net.pace import in_steps
from replication.replica_manager.followed import FetcherManager
from replication.replica_manager.hosted import HostedPartitions
from replication.steps import Steps
from storage.attributes import define
from storage.manager.log_manager import LogManager
from storage.types import TopicPartition

CONFIGURING_A_TOPIC = 32
"""The work of finding the settings in force for one topic, in items of a list."""


@define(eq=False, kw_only=True)
class Configuration:
    """Applies settings (see the head of this module)."""

    broker_id: int
    config: DynamicBrokerConfig
    hosted: HostedPartitions
    log_manager: LogManager
    fetchers: FetcherManager
    quotas: ReplicationQuotas

    def __attrs_post_init__(self) -> None:
        self._limit_replication()

    async def raise_minimums(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Set each min.insync.replicas that becomes larger.

        It comes before roles change, and a smaller one, by `apply`, after that: by neither of the
        two may a leader commit with an ISR that was not decided under it.
        """
        topics = delta.reconfigured
        if self._is_reconfigured(delta):
            before = self.config.current
            self.config.update(image.broker_configs)
            if self.config.current.min_insync_replicas > before.min_insync_replicas:
                topics |= {partition.topic for partition in self.hosted.online}
        await in_steps(self._raise_minimums(image, sorted(topics)))

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        for removed in delta.removed:
            self.quotas.forget(removed.topic_partition.topic)
        topics = delta.reconfigured
        if self._is_reconfigured(delta):
            await self._reconfigure_broker()
            topics |= {partition.topic for partition in self.hosted.online}
        await in_steps(self._reconfigure_topics(image, sorted(topics)))

    def _is_reconfigured(self, delta: MetadataDelta) -> bool:
        return not delta.reconfigured_brokers.isdisjoint((None, self.broker_id))

    def of(self, topic: TopicImage) -> TopicConfig:
        return TopicConfig.in_force(topic.configs, self.config.current)

    async def _reconfigure_broker(self) -> None:
        current = self.config.current
        self.log_manager.config = TopicConfig.in_force({}, current).log
        self.log_manager.expire_producers_after(current.producer_id_expiration_ms)
        self._limit_replication()
        await self.fetchers.resize(current.num_replica_fetchers)

    def _limit_replication(self) -> None:
        current = self.config.current
        self.quotas.limit(
            leader=current.leader_replication_throttled_rate,
            follower=current.follower_replication_throttled_rate,
        )

    def _raise_minimums(self, image: MetadataImage, topics: Iterable[str]) -> Steps[None]:
        for name in topics:
            yield CONFIGURING_A_TOPIC
            topic = image.topics.get(name)
            if topic is None:
                continue
            minimum = self.of(topic).min_insync_replicas
            for number in topic.partitions:
                yield 1
                partition = self.hosted.find(TopicPartition(name, number))
                if partition is not None and partition.min_insync_replicas < minimum:
                    partition.configure(min_insync_replicas=minimum, read_only=partition.read_only)

    def _reconfigure_topics(self, image: MetadataImage, topics: Iterable[str]) -> Steps[None]:
        for name in topics:
            yield CONFIGURING_A_TOPIC
            topic = image.topics.get(name)
            if topic is None:
                continue
            config = self.of(topic)
            self._throttle(name, config)
            for number in topic.partitions:
                yield 1
                partition = self.hosted.find(TopicPartition(name, number))
                if partition is not None:
                    partition.log.config = config.log
                    partition.configure(
                        min_insync_replicas=config.min_insync_replicas,
                        read_only=config.read_only,
                    )

    def _throttle(self, topic: str, config: TopicConfig) -> None:
        for quota, replicas in (
            (self.quotas.leader, config.leader_throttled_replicas),
            (self.quotas.follower, config.follower_throttled_replicas),
        ):
            quota.throttle(topic, replicas, broker_id=self.broker_id)
