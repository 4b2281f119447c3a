"""The roles that newer metadata gives this broker's replicas: leader, follower, or none.

    metadata says                      the replica
    leader: this broker                stops fetching, then leads
    leader: another one, alive         follows it; fetches anew only at a new leader epoch
    leader: none                       follows nobody: it keeps its log, and waits
    not among the replicas, deleted    stops, and its log is deleted

Rule 1: a partition is removed from its fetcher before its role changes, and the offset to fetch
from is read from the log after that: what was appended until then counts.

Rule 2: a log is opened away from the loop (directories are made and synced), and its partition is
online once it is open. An error there takes that one partition offline.

Rule 3: a change of many partitions is carried out for `AT_ONCE` of them at a time, by their names;
between two such steps other tasks have a turn.

Rule 4: the requests that wait for a partition that has moved are woken, and answered so.

The file is long because one change of roles has many steps over the same replicas.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import compress
from typing import TypeVar

import attrs
import trio

from replication.config import BrokerConfig, TopicConfig
from replication.events import BecameFollower, BecameLeader, EventSink, PartitionStopped
from replication.follower.rules.fetch_state import BrokerEndPoint, InitialFetchState
from replication.leader.partition import Partition
from replication.leader.rules.leadership import Surroundings
from replication.metadata.rules.image import MetadataDelta, MetadataImage, PartitionRegistration
from replication.metadata.rules.records import METADATA_PARTITION, METADATA_TOPIC_ID
from replication.net.pace import in_steps
from replication.net.seams import Offload
from replication.replica_manager.configuration import Configuration
from replication.replica_manager.followed import FetcherManager
from replication.replica_manager.high_watermarks import HighWatermarks
from replication.replica_manager.hosted import HostedPartitions
from replication.steps import each_of
from storage.attributes import define, frozen
from storage.errors import KafkaStorageError, ShortageError, StorageError
from storage.log.leader_epoch_cache import LeaderEpochCache
from storage.log.log import Log
from storage.manager.log_manager import LogManager
from storage.types import Offset, TopicId, TopicPartition

AssignDirectory = Callable[[TopicId, int, bytes], None]
"""Reports to the controller in which log directory the replica of a topic's partition lies."""

TRUNCATION_ON_FETCH_SINCE = 12  # KIP-595
AT_ONCE = 128
"""How many partitions change their roles in one turn of the loop: a few milliseconds."""
FOLLOWED_AT_ONCE = 1024
"""How many partitions fetchers are given at once: the first fetch from a leader names them all."""
SHARES = 4
"""How many threads sync files of many partitions: a file system syncs several in the time of one."""

T = TypeVar("T")
Item = TypeVar("Item")


@frozen
class AssignedReplica:
    """A partition with a replica on this broker, by the metadata."""

    topic_partition: TopicPartition
    topic_id: TopicId
    registration: PartitionRegistration


@define(eq=False, kw_only=True)
class RoleChanges:
    """Applies metadata to the replicas; the caller applies one change at a time."""

    broker_id: int
    config: BrokerConfig
    configuration: Configuration
    hosted: HostedPartitions
    around: Surroundings
    log_manager: LogManager
    high_watermarks: HighWatermarks
    offload: Offload
    fetchers: FetcherManager
    sink: EventSink
    complete_delayed: Callable[[TopicPartition], None]
    roles_lost: Callable[[Collection[str]], None]
    on_storage_failure: Callable[[TopicPartition, TopicId, StorageError], None]
    assign_directory: AssignDirectory
    keeps_logs: bool = False
    """Whether logs that the metadata no longer names stay where they are, as in a mirror."""
    shutting_down: bool = False
    """Whether a replica that leaves the ISR, or loses its leader, stops following."""
    _following: dict[TopicPartition, BrokerEndPoint] = attrs.field(factory=dict, init=False)
    _knows_metadata: bool = attrs.field(default=False, init=False)

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Take the roles that `image` gives the partitions that `delta` names."""
        if not self._knows_metadata:
            self._knows_metadata = True
            if not self.keeps_logs:
                await self._put_strays_aside(image)
        await self._stop(self._removed(delta), leave=self._deleting("topic deleted"))
        await self.configuration.raise_minimums(image, delta)
        changed = sorted(delta.changed)
        restarted: list[Partition] = []
        for start in range(0, len(changed), AT_ONCE):
            if start:
                await trio.lowlevel.checkpoint()
            leaders, followers, gone = self._sort(image, changed[start : start + AT_ONCE])
            await self._stop(gone, leave=self._deleting("not a replica any more"))
            await self._become_leaders(image, leaders)
            restarted += await self._become_followers(image, followers)
        for start in range(0, len(restarted), FOLLOWED_AT_ONCE):
            if start:
                await trio.lowlevel.checkpoint()
            self._follow(image, restarted[start : start + FOLLOWED_AT_ONCE])
        # Not before: a leader that the same change deposes must not commit by a smaller minimum.
        # A larger one is in force by now: a leader must not commit with a smaller ISR without it.
        await self.configuration.apply(image, delta)
        await self._brokers_changed(image, delta.brokers)
        await self.fetchers.shutdown_idle_fetchers()

    def _sort(
        self, image: MetadataImage, changed: Iterable[TopicPartition]
    ) -> tuple[list[AssignedReplica], list[AssignedReplica], list[TopicPartition]]:
        leaders: list[AssignedReplica] = []
        followers: list[AssignedReplica] = []
        gone: list[TopicPartition] = []
        for topic_partition in changed:
            registration = image.partition(topic_partition)
            if registration is None or self.broker_id not in registration.replicas:
                gone.append(topic_partition)
                continue
            topic_id = image.topics[topic_partition.topic].topic_id
            leads = registration.leader == self.broker_id
            (leaders if leads else followers).append(
                AssignedReplica(topic_partition, topic_id, registration)
            )
        return leaders, followers, gone

    # Leading.

    async def _become_leaders(self, image: MetadataImage, assigned: list[AssignedReplica]) -> None:
        self._unfollow([each.topic_partition for each in assigned])
        await self._open(image, assigned)
        leading: list[Partition] = []
        for each in assigned:
            partition = self.hosted.find(each.topic_partition)
            if partition is None:
                continue
            leading.append(partition)
            newly = partition.make_leader(each.registration)
            self.complete_delayed(each.topic_partition)
            if newly:
                self._report_leading(partition)
        await self._flush_epochs(leading)

    async def _flush_epochs(self, partitions: list[Partition]) -> None:
        """Sync the starts of the new leader epochs: one file each, many when a broker fails."""
        if not partitions:
            return
        caches = [each.log.leader_epoch_cache for each in partitions]
        failures = await self._in_shares(_flush_all, caches)
        await trio.lowlevel.checkpoint_if_cancelled()
        for partition, error in zip(partitions, failures, strict=True):
            if error is not None:
                self.on_storage_failure(
                    partition.topic_partition, partition.topic_id, partition.log.fail(error)
                )

    def _report_leading(self, partition: Partition) -> None:
        assert partition.leadership is not None, "it has just become leader"
        self.sink(
            BecameLeader(
                partition=partition.topic_partition,
                leader_epoch=partition.leader_epoch,
                leader_epoch_start_offset=partition.leadership.epoch_start,
                high_watermark=partition.log.high_watermark,
                isr=tuple(sorted(partition.isr)),
            )
        )

    # Following.

    async def _become_followers(
        self, image: MetadataImage, assigned: list[AssignedReplica]
    ) -> list[Partition]:
        """Return the partitions that have another leader epoch, and are to be fetched anew."""
        await self._open(image, assigned)
        restarted: list[Partition] = []
        for each in assigned:
            partition = self.hosted.find(each.topic_partition)
            if partition is None:
                continue
            if partition.make_follower(each.registration):
                restarted.append(partition)
                self.complete_delayed(each.topic_partition)
                self._report_following(partition)
            elif self._must_stop_following(each.registration):
                self._unfollow([each.topic_partition])
        self._unfollow([each.topic_partition for each in restarted])
        self.roles_lost({each.topic_partition.topic for each in restarted})
        return restarted

    def _report_following(self, partition: Partition) -> None:
        self.sink(
            BecameFollower(
                partition=partition.topic_partition,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                log_end_offset=partition.log.log_end_offset,
                high_watermark=partition.log.high_watermark,
            )
        )

    def _must_stop_following(self, registration: PartitionRegistration) -> bool:
        """Return whether this broker shuts down and its replica has left the ISR."""
        return self.shutting_down and (
            registration.leader < 0 or self.broker_id not in registration.isr
        )

    def _follow(self, image: MetadataImage, partitions: list[Partition]) -> None:
        """Fetch these from their leaders, from where their logs end without a fetcher."""
        initial_states: dict[TopicPartition, InitialFetchState] = {}
        for partition in partitions:
            leader = self._endpoint(image, partition.leader)
            registration = image.partition(partition.topic_partition)
            if not self.hosted.holds(partition):
                continue  # its log has failed meanwhile
            if leader is None or registration is None or self._must_stop_following(registration):
                continue
            self._following[partition.topic_partition] = leader
            initial_states[partition.topic_partition] = InitialFetchState(
                topic_id=partition.topic_id,
                leader=leader,
                current_leader_epoch=partition.leader_epoch,
                init_offset=self._initial_offset(partition.log),
            )
        if initial_states:
            self.fetchers.add_fetcher_for_partitions(initial_states)

    def _initial_offset(self, log: Log) -> Offset:
        """Return the log end if leader epochs can show a divergence, else the high watermark."""
        version = self.config.understudy_inter_broker_fetch_version
        if version >= TRUNCATION_ON_FETCH_SINCE and log.latest_epoch is not None:
            return log.log_end_offset
        return log.high_watermark

    def _endpoint(self, image: MetadataImage, broker_id: int) -> BrokerEndPoint | None:
        broker = image.broker(broker_id)
        if broker is None or broker.fenced:
            return None
        endpoint = broker.endpoint(self.config.inter_broker_listener)
        return None if endpoint is None else BrokerEndPoint(broker_id, endpoint.host, endpoint.port)

    def _unfollow(self, partitions: list[TopicPartition]) -> None:
        if partitions:
            self.fetchers.remove_fetcher_for_partitions(partitions)
            for topic_partition in partitions:
                self._following.pop(topic_partition, None)

    async def _brokers_changed(self, image: MetadataImage, brokers: Iterable[int]) -> None:
        """Follow leaders that listen elsewhere or are back; stop waiting for fenced followers."""
        changed = frozenset(brokers)
        if not changed:
            return
        look = partial(self._look_at_brokers, image, changed)
        held = list(self.hosted)
        moved = list(compress(held, await in_steps(each_of(look, held))))
        for start in range(0, len(moved), FOLLOWED_AT_ONCE):
            if start:
                await trio.lowlevel.checkpoint()
            some = moved[start : start + FOLLOWED_AT_ONCE]
            self._unfollow([each.topic_partition for each in some])
            self._follow(image, some)

    def _look_at_brokers(
        self, image: MetadataImage, changed: frozenset[int], partition: Partition
    ) -> bool:
        """Take the change of brokers into account; return whether the leader listens elsewhere now."""
        if not self.hosted.holds(partition):
            return False  # its log has failed meanwhile
        if partition.leadership is not None:
            if not changed.isdisjoint(partition.replicas):
                partition.leadership.maybe_advance_high_watermark()
                self.complete_delayed(partition.topic_partition)
            return False
        if partition.leader not in changed:
            return False
        leader = self._endpoint(image, partition.leader)
        return leader is not None and leader != self._following.get(partition.topic_partition)

    # Logs.

    async def _open(self, image: MetadataImage, assigned: list[AssignedReplica]) -> None:
        """Open the logs of the partitions that are not held yet, and take them online."""
        missing = [each for each in assigned if self._is_missing(each)]
        if not missing:
            return
        configs = {
            topic: self.configuration.of(image.topics[topic])
            for topic in {each.topic_partition.topic: None for each in missing}
        }
        opened = await self.offload(partial(self._open_logs, missing, configs))
        opened = await self._in_shares(_with_topic_ids, opened)
        await self.high_watermarks.forget_deleted(each for each in opened if isinstance(each, Log))
        # The broker may have been stopped meanwhile: its fetchers take no more work then.
        await trio.lowlevel.checkpoint_if_cancelled()
        for each, log in zip(missing, opened, strict=True):
            if isinstance(log, StorageError):
                self.on_storage_failure(each.topic_partition, each.topic_id, log)
                continue
            self._report_directory(each)
            log.update_high_watermark(self.high_watermarks.of(log))
            self.hosted.add(
                Partition(
                    topic_partition=each.topic_partition,
                    topic_id=each.topic_id,
                    log=log,
                    around=self.around,
                    min_insync_replicas=configs[each.topic_partition.topic].min_insync_replicas,
                    read_only=configs[each.topic_partition.topic].read_only,
                )
            )

    async def _in_shares(self, work: Callable[[list[Item]], list[T]], items: list[Item]) -> list[T]:
        """Return what `work` makes of each of `items`; of many in `SHARES` threads at once."""
        if len(items) < 2 * SHARES:
            return await self.offload(partial(work, items))
        size = -(-len(items) // SHARES)
        starts = range(0, len(items), size)
        shares: dict[int, list[T]] = {}

        async def add(start: int) -> None:
            share = items[start : start + size]
            shares[start] = await self.offload(partial(work, share))

        async with trio.open_nursery() as nursery:
            for start in starts:
                nursery.start_soon(add, start)
        return [result for start in starts for result in shares[start]]

    def _report_directory(self, each: AssignedReplica) -> None:
        """Report the replica's log directory, unless the controller knows it."""
        directory = self.log_manager.directory_id_of(each.topic_partition)
        known = each.registration.directory(self.broker_id)
        several = len(self.log_manager.directories) > 1
        if directory not in (None, known) and (several or known is not None):
            assert directory is not None, "just compared"
            self.assign_directory(each.topic_id, each.topic_partition.partition, directory)

    def _is_missing(self, each: AssignedReplica) -> bool:
        """Return whether the partition is not held here.

        It is held if it is offline, but not if that was a former topic of the same name.
        """
        if self.hosted.find(each.topic_partition) is not None:
            return False
        return self.hosted.offline.get(each.topic_partition) != each.topic_id

    def _open_logs(
        self, assigned: list[AssignedReplica], configs: Mapping[str, TopicConfig]
    ) -> list[Log | StorageError]:
        opened: list[Log | StorageError] = []
        for each in assigned:
            topic_partition = each.topic_partition
            existing = self.log_manager.get(topic_partition)
            try:
                if existing is not None and existing.topic_id not in (None, each.topic_id):
                    # It belongs to a former topic of that name, deleted while this broker was away.
                    self.log_manager.put_aside(existing)
                log = self.log_manager.get_or_create(
                    topic_partition,
                    each.topic_id,
                    configs[topic_partition.topic].log,
                    # After its first change a replica may lie in a directory that is offline.
                    is_new=each.registration.partition_epoch == 0,
                    directory_id=each.registration.directory(self.broker_id),
                )
                opened.append(log)
            except StorageError as error:
                opened.append(error)
            except OSError as error:
                opened.append(KafkaStorageError(str(error)))
        return opened

    async def _put_strays_aside(self, image: MetadataImage) -> None:
        """Put aside the logs on disk that the first image lacks.

        Their topics were deleted while this broker was away, or one of its directories was, or the
        controller has lost its metadata: they are not deleted.
        """
        strays = self.log_manager.strays(partial(_topic_id_of, image))

        def put_aside() -> None:
            for log in strays:
                with suppress(KafkaStorageError):  # its directory is offline, as is reported
                    self.log_manager.put_aside(log)

        if strays:
            await self.offload(put_aside)

    def _removed(self, delta: MetadataDelta) -> list[TopicPartition]:
        """Return the deleted topics' partitions here; a new topic may have the name by now."""
        held = []
        for removed in sorted(delta.removed, key=lambda each: each.topic_partition):
            log = self.log_manager.get(removed.topic_partition)
            if log is None or log.topic_id == removed.topic_id:
                held.append(removed.topic_partition)
        return held

    async def _stop(
        self,
        partitions: list[TopicPartition],
        *,
        leave: Callable[[TopicPartition], None],
    ) -> None:
        """Take these partitions off this broker, and give their logs on disk to `leave`."""
        for start in range(0, len(partitions), AT_ONCE):
            if start:
                await trio.lowlevel.checkpoint()
            await self._stop_some(partitions[start : start + AT_ONCE], leave)

    async def _stop_some(
        self, partitions: list[TopicPartition], leave: Callable[[TopicPartition], None]
    ) -> None:
        held = [
            each
            for each in partitions
            if self.hosted.find(each) is not None
            or each in self.hosted.offline
            or self.log_manager.get(each) is not None
        ]
        self._unfollow(held)
        for topic_partition in held:
            if self.hosted.remove(topic_partition) is not None:
                self.sink(PartitionStopped(partition=topic_partition, deleted=True))
            self.complete_delayed(topic_partition)
        self.roles_lost({each.topic for each in held})
        if held:
            await self.offload(partial(self._let_go, held, leave))

    def _deleting(self, cause: str) -> Callable[[TopicPartition], None]:
        if self.keeps_logs:
            return _leave_alone
        return lambda partition: self.log_manager.async_delete(partition, cause)

    def _let_go(
        self, partitions: list[TopicPartition], leave: Callable[[TopicPartition], None]
    ) -> None:
        for topic_partition in partitions:
            if self.log_manager.get(topic_partition) is not None:
                with suppress(KafkaStorageError):  # its directory is offline, as is reported
                    leave(topic_partition)


def _topic_id_of(image: MetadataImage, partition: TopicPartition) -> TopicId | None:
    """Return the id of the topic that `partition` is of; None where there is no such partition."""
    if partition == METADATA_PARTITION:
        return METADATA_TOPIC_ID
    return None if image.partition(partition) is None else image.topics[partition.topic].topic_id


def _leave_alone(_: TopicPartition) -> None:
    """Keep the log where it is."""


def _with_topic_ids(opened: list[Log | StorageError]) -> list[Log | StorageError]:
    """Write the topic's id beside each log; return why that failed in the log's place.

    Otherwise the first append would write it, on the loop.
    """
    return [log if isinstance(log, StorageError) else _with_topic_id(log) for log in opened]


def _with_topic_id(log: Log) -> Log | StorageError:
    try:
        log.write_topic_id()
    except ShortageError:
        pass  # the first append does it
    except OSError as error:
        return log.fail(error)
    return log


def _flush_all(caches: list[LeaderEpochCache]) -> list[OSError | None]:
    """Write each of `caches`; return why that failed, None where it did not."""
    return [_flush(cache) for cache in caches]


def _flush(cache: LeaderEpochCache) -> OSError | None:
    try:
        cache.flush()
    except ShortageError:
        return None  # the next flush of the log writes it
    except OSError as error:
        return error
    return None
