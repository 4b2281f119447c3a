"""One copy of a foreign cluster's topics, followed until it is stopped.

    metadata of the source ─> image ─> replica manager: opens logs, starts and moves fetchers
         ^                                                     │
         └───── a refusal, a lost leader, metadata.max.age ────┘

Rule 1: the source must answer before the copy is opened: a copy belongs to one cluster, and is
refused for any other, then or later.

Rule 2: a failing disk ends the mirror with its error. The next start finds all that was appended,
and truncates a torn batch.

Rule 3: a mirror may be killed at any moment. One that is stopped, or refuses to go on, closes its
logs as a broker does at a clean shutdown.
"""

from functools import partial

import attrs
import trio

from replication.client.config import ClientConfig
from replication.config import BrokerConfig, TopicConfig
from replication.errors import NO_ANSWER, OnBug, raise_bug
from replication.events import (
    Event,
    EventSink,
    FetchRefused,
    FollowerFetching,
    PartitionFailed,
    ignore,
)
from replication.follower.fetcher import FetcherConfig, no_broker_epoch
from replication.follower.fetcher_manager import ReplicaFetcherManager
from replication.leader.rules.isr import IsrAnswer, IsrProposal
from replication.metadata.rules.image import MetadataImage, delta_between
from replication.metrics import MetricsRegistry
from replication.mirror.image import MIRROR_ID, image_of, without
from replication.mirror.options import NODE_ID, MirrorOptions
from replication.mirror.source import MirrorSource, SourceFetcherFactory
from replication.mirror.state import (
    LOG_DIRECTORY,
    MirrorError,
    PartitionProgress,
    StateKeeper,
)
from replication.mirror.tails import Tail, TailCheck
from replication.net.raising import raising_only_one, raising_the_first
from replication.net.seams import Seams
from replication.net.secure import introduced
from replication.replica_manager import LocalReplicas, ReplicaManager, assemble_replica_manager
from replication.replica_manager.log_loading import load_logs
from replication.wire.fetch import DEBUGGING_REPLICA_ID
from replication.wire.metadata import INTERNAL_TOPICS
from storage.attributes import define
from storage.errors import KafkaStorageError
from storage.log.log import Log
from storage.manager.log_manager import LogManager
from storage.types import NO_TOPIC_ID, TopicId, TopicPartition


class _NoLeader:
    """The `AlterPartitionManager` of a mirror, which leads no partition."""

    async def submit(
        self, partition: TopicPartition, topic_id: TopicId, proposal: IsrProposal
    ) -> IsrAnswer:
        raise AssertionError(f"a mirror leads nothing: {proposal} of {partition}, {topic_id.hex()}")


@define(eq=False, kw_only=True)
class Mirror:
    """A mirror, to be run once; `directory` holds the copy and its `state`."""

    source_config: ClientConfig
    options: MirrorOptions
    directory: str
    seams: Seams
    sink: EventSink = ignore
    on_bug: OnBug = raise_bug
    metrics: MetricsRegistry = attrs.field(init=False)
    logs: LogManager | None = attrs.field(init=False, default=None)
    _fetchers: ReplicaFetcherManager | None = attrs.field(init=False, default=None)
    _image: MetadataImage = attrs.field(init=False, factory=MetadataImage)
    _source: MirrorSource | None = attrs.field(init=False, default=None)
    _replicas: ReplicaManager | None = attrs.field(init=False, default=None)
    _troubles: dict[TopicPartition, str] = attrs.field(init=False, factory=dict)
    _unchecked: set[TopicPartition] = attrs.field(init=False, factory=set)
    """Partitions whose ends have not been compared with the source yet."""
    _keeper: StateKeeper | None = attrs.field(init=False, default=None)
    _working: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    _loop: trio.lowlevel.TrioToken | None = attrs.field(init=False, default=None)
    _disk_failure: KafkaStorageError | None = attrs.field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        self.metrics = MetricsRegistry(self.seams.clock.now)

    def stop(self) -> None:
        """Shut down cleanly; `run` returns when that is done."""
        self._working.cancel()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the source until `stop`; MirrorError or StorageError if it cannot go on.

        It is started when the first metadata of the source has been applied.
        """
        self._loop = trio.lowlevel.current_trio_token()
        try:
            with raising_only_one():
                async with trio.open_nursery() as nursery:
                    refusal: MirrorError | None = None
                    with self._working:
                        try:
                            await self._work(nursery, task_status)
                        except MirrorError as error:
                            refusal = error
                    await self._shut_down(refusal)
                    nursery.cancel_scope.cancel()
        finally:
            if self.logs is not None:
                self.logs.close_uncleanly()

    async def _work(self, nursery: trio.Nursery, task_status: trio.TaskStatus[None]) -> None:
        self._source = source = MirrorSource(
            config=self.source_config, options=self.options, seams=self.seams, nursery=nursery
        )
        nursery.start_soon(source.metadata.run)
        seen = await source.next_version(0)
        replicas = await self._open(nursery, source)
        await self._apply_metadata(source, replicas)
        task_status.started()
        while True:
            seen = await source.next_version(seen)
            await self._apply_metadata(source, replicas)

    # Opening and leaving.

    async def _open(self, nursery: trio.Nursery, source: MirrorSource) -> ReplicaManager:
        """Open the copy, when the source cluster is known."""
        log_directory = f"{self.directory}/{LOG_DIRECTORY}"
        config = self.options.broker_config(log_directory)
        self._keeper = keeper = StateKeeper(
            seams=self.seams, directory=self.directory, source=source
        )
        cluster_id = await keeper.begin()
        self.logs = logs = LogManager(
            file_system=self.seams.file_system,
            log_dirs=[log_directory],
            node_id=NODE_ID,
            cluster_id=cluster_id,
            config=TopicConfig.in_force({}, config).log,
            new_directory_id=partial(self.seams.chance.randbytes, 16),
            on_directory_failed=self._on_directory_failed,
        )
        await load_logs(
            logs,
            self.seams.offload,
            self.sink,
            threads_per_directory=config.num_recovery_threads_per_data_dir,
        )
        self._unchecked = {log.topic_partition for log in logs.logs()}
        self._replicas = replicas = assemble_replica_manager(
            broker_id=MIRROR_ID,
            config=config,
            seams=self.seams,
            log_manager=logs,
            metadata=lambda: self._image,
            alter_partition=_NoLeader(),
            make_fetcher_manager=partial(self._fetcher_manager, source, config),
            broker_epoch=no_broker_epoch,
            metrics=self.metrics,
            keeps_logs=True,
            sink=self._hear,
            on_bug=self.on_bug,
        )
        await nursery.start(replicas.run)
        nursery.start_soon(keeper.run, self.progress)
        return replicas

    def _fetcher_manager(
        self, source: MirrorSource, config: BrokerConfig, replicas: LocalReplicas
    ) -> ReplicaFetcherManager:
        factory = SourceFetcherFactory(
            source=source,
            replicas=replicas,
            config=FetcherConfig(
                # This consumer gets every batch, also those without records.
                replica_id=DEBUGGING_REPLICA_ID,
                isolation_level=self.options.up_to.value,
                max_wait_ms=config.replica_fetch_wait_max_ms,
                min_bytes=config.replica_fetch_min_bytes,
                max_bytes=config.replica_fetch_response_max_bytes,
                partition_max_bytes=config.replica_fetch_max_bytes,
                backoff_ms=config.replica_fetch_backoff_ms,
            ),
            transport=introduced(self.seams, self.source_config.introduction).transport,
            clock=self.seams.clock,
            metrics=self.metrics,
            on_bug=self.on_bug,
            sink=self._hear,
            is_throttled=replicas.is_throttled,
            connect_timeout_ms=config.replica_socket_timeout_ms,
            request_timeout_ms=self.source_config.request_timeout_ms,
            name="MirrorFetcher",
        )
        self._fetchers = ReplicaFetcherManager(
            make_fetcher=factory,
            num_fetchers_per_broker=config.num_replica_fetchers,
            metrics=self.metrics,
            sink=self.sink,
        )
        return self._fetchers

    def _on_directory_failed(self, directory: str, error: OSError) -> None:
        """End the mirror; this may be called in a worker thread."""
        assert self._loop is not None, "the copy is opened by a mirror that runs"
        self._disk_failure = KafkaStorageError(
            f"{directory}: {error.strerror or error}; the copy is left as it is, and goes on from"
            " there when it is followed again"
        )
        self._loop.run_sync_soon(self._working.cancel)

    async def _shut_down(self, refusal: MirrorError | None) -> None:
        replicas, logs = self._replicas, self.logs
        if self._disk_failure is None and replicas is not None and logs is not None:
            assert self._keeper is not None, "made before the copy was opened"
            if refusal is None:
                await self._keeper.write(self.progress())
            await replicas.shutdown()
            await self.seams.offload(logs.shutdown)
        if self._disk_failure is not None:  # before the shutdown, or during it
            raise self._disk_failure
        if refusal is not None:
            raise refusal

    # Following.

    async def _apply_metadata(self, source: MirrorSource, replicas: ReplicaManager) -> None:
        assert self.logs is not None, "opened first"
        if source.view.cluster_id != self.logs.cluster_id:
            raise MirrorError(
                f"the source is cluster {source.view.cluster_id} now; {self.directory} holds"
                f" a copy of cluster {self.logs.cluster_id}"
            )
        nameless = [topic.name for topic in source.followed if topic.topic_id == NO_TOPIC_ID]
        if nameless:
            raise MirrorError(f"topic {nameless[0]} has no id: the source is older than Kafka 2.8")
        await source.reach()
        before = self._image
        image = image_of(source.view, before, self.options, source.reachable)
        await self._check_tails(source, image)
        self._image = without(image, self._unchecked)
        await replicas.apply_metadata(self._image, delta_between(before, self._image))
        assert self._keeper is not None, "made before the copy was opened"
        await self._keeper.note_image(self._image, self.progress())

    async def _check_tails(self, source: MirrorSource, image: MetadataImage) -> None:
        """Raise MirrorError if the copy was written to.

        Partitions that cannot be checked yet wait for new metadata, which is requested at once.
        """
        with raising_the_first():
            async with trio.open_nursery() as nursery:
                for each in sorted(self._unchecked):
                    nursery.start_soon(self._check_tail, source, image, each)
        if any(image.partition(each) is not None for each in self._unchecked):
            source.metadata.request_update()

    async def _check_tail(
        self, source: MirrorSource, image: MetadataImage, partition: TopicPartition
    ) -> None:
        assert self.logs is not None, "opened first"
        log, registration = self.logs.get(partition), image.partition(partition)
        if log is None or registration is None:
            return
        if image.topics[partition.topic].topic_id != log.topic_id:
            self._unchecked.discard(partition)  # a copy of an older topic, which is set aside
            return
        leader = source.view.node(registration.leader)
        if leader is None or leader.id not in source.reachable:
            return
        try:
            tail = await TailCheck(network=source.network, leader=leader, log=log).run()
        except NO_ANSWER:
            return
        if tail is Tail.WRITTEN:
            raise MirrorError(
                f"{partition} in {self.directory} was written to: what it has at offset"
                f" {log.log_end_offset - 1} is not what the source has; nothing was changed"
            )
        if tail is Tail.OURS:
            self._unchecked.discard(partition)

    def _hear(self, event: Event) -> None:
        """Note the troubles that events name, and request metadata for some of them."""
        match event:
            case FetchRefused():
                self._troubles[event.partition] = event.error
            case PartitionFailed():
                self._troubles[event.partition] = event.cause
            case FollowerFetching():
                self._troubles.pop(event.partition, None)
            case _:
                pass
        if isinstance(event, FetchRefused | PartitionFailed) and self._source is not None:
            self._source.metadata.request_update()
        self.sink(event)

    # Looking.

    @property
    def trouble(self) -> str | None:
        """The reason why the source's metadata is not fresh, or None."""
        return "not asked yet" if self._source is None else self._source.trouble

    @property
    def missing(self) -> list[str]:
        """Named topics that the source does not have (yet)."""
        return [] if self._source is None else self._source.missing

    def progress(self) -> list[PartitionProgress]:
        """Return the progress of every followed partition here, gone from the source or not."""
        if self.logs is None or self._keeper is None:
            return []
        # A cluster that served the copy may have logs of its own: the offsets of its groups.
        topics = self._keeper.topic_ids()
        logs = {
            log.topic_partition: log
            for log in self.logs.logs()
            if topics.get(log.topic_partition.topic) == log.topic_id
            and self._wants(log.topic_partition.topic)
        }
        return [self._progress(logs[each]) for each in sorted(logs)]

    def _wants(self, topic: str) -> bool:
        """Return whether a topic is followed; a copy may hold others from before."""
        return self.options.wants(topic, is_internal=topic in INTERNAL_TOPICS)

    def _progress(self, log: Log) -> PartitionProgress:
        partition = log.topic_partition
        registration = self._image.partition(partition)
        state = None if self._fetchers is None else self._fetchers.fetch_state(partition)
        trouble = self._troubles.get(partition)
        if state is not None and not state.is_delayed(self.seams.clock.now()):
            trouble = None
        elif registration is None:
            waits = partition in self._unchecked and not self._is_gone(partition)
            trouble = "not yet compared with the source" if waits else "gone from the source"
        elif state is None and trouble is None:
            trouble = "its leader cannot be reached"
        return PartitionProgress(
            topic_partition=partition,
            leader=None if registration is None else registration.leader,
            leader_epoch=-1 if registration is None else registration.leader_epoch,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            lag=None if state is None else state.lag,
            trouble=trouble,
        )

    def _is_gone(self, partition: TopicPartition) -> bool:
        assert self._source is not None, "a partition is gone only after an answer"
        topic = self._source.view.topics.get(partition.topic)
        return topic is None or partition.partition not in topic.partitions
