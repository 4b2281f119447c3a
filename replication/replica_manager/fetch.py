"""Records out: read every partition that is wanted, or wait until there is enough to read.

    read ── enough, or an error, or a divergence, or no time ──────────────> answer
      └── wait in the purgatory until enough, moved away, or the time is up ── read again ──┘

Rule 1: partitions are read in the order of the request, and share its byte limit. The first
that has anything gives at least one batch, however large, so that nobody gets stuck.

Rule 2: a follower's position is noted once, when its request comes. What is read after the
wait is answered, but says nothing new about where the follower stands.

Rule 3: the records of the answer are file regions taken at that moment; nothing is pinned
while a request waits.

Rule 4: a follower out of sync gets nothing of a throttled partition while the leader's rate
is exceeded (KIP-73): no error, no records, and its fetch waits as if there were none.

Rule 5: after the wait only those are read again that have moved since they were read, be it
by this very fetch, or had records before. Of a thousand idle partitions nine hundred and
ninety-nine have their answer already.
"""

from collections.abc import Callable

import attrs
import trio

from replication.errors import ErrorCode, KafkaError
from replication.fetch_data import (
    Answers,
    FetchInfo,
    FetchParams,
    FetchPartitionData,
    TopicIdPartition,
    Wanted,
)
from replication.net.seams import NodeClock
from replication.partition import Partition
from replication.purgatory import Purgatory
from replication.quota import ReplicationQuota
from replication.replica_manager.hosted import HostedPartitions
from replication.replica_manager.results import code_of
from storage.errors import KafkaStorageError, StorageError
from storage.types import NO_TOPIC_ID, TopicPartition


@attrs.define(eq=False)
class DelayedFetch:
    """Waits for `params.min_bytes`, counting anew only the partition that has moved."""

    hosted: HostedPartitions
    params: FetchParams
    wanted: dict[TopicPartition, FetchInfo]
    available: dict[TopicPartition, int]
    total: int
    is_held_back: Callable[[TopicPartition], bool]
    moved: set[TopicPartition] = attrs.field(factory=set)

    def satisfied(self) -> bool:
        # It has just been read, and found wanting.
        return False

    def satisfied_by(self, key: TopicPartition, /) -> bool:
        self.moved.add(key)
        partition = self.hosted.find(key)
        if partition is None:
            return True
        before = self.available.get(key, 0)
        others = self.total - before
        now = partition.available_bytes(
            self.params, self.wanted[key], enough=self.params.min_bytes - others
        )
        if now is None:
            return True
        if self.is_held_back(key):
            now = 0
        self.available[key] = now
        self.total = others + now
        return self.total >= self.params.min_bytes


@attrs.define(eq=False, kw_only=True)
class FetchPath:
    """Reads, and waits for more in `purgatory`."""

    hosted: HostedPartitions
    purgatory: Purgatory[TopicPartition]
    clock: NodeClock
    quota: ReplicationQuota
    on_storage_failure: Callable[[Partition, KafkaStorageError], None]

    async def fetch(self, params: FetchParams, wanted: Wanted) -> Answers:
        answers = await self._fetch(params, wanted)
        if params.from_follower and self.quota.throttles:
            sizes = {asked.topic_partition: answer.records_size for asked, answer in answers}
            self.quota.record(sizes, now_ms=self.clock.now_ms())
        return answers

    async def _fetch(self, params: FetchParams, wanted: Wanted) -> Answers:
        answers = self._read(params, wanted, note=True)
        if params.max_wait_ms <= 0 or not wanted or _is_enough(params, answers):
            await trio.lowlevel.checkpoint()
            return answers
        delayed = self._delayed(params, wanted, answers)
        # Without the regions: they would pin their files.
        known = [
            None
            if answer.records is not None
            or self._is_stale(asked, answer)
            or self._is_held_back(params, asked.topic_partition)
            else answer
            for asked, answer in answers
        ]
        del answers
        await self.purgatory.wait(delayed, delayed.wanted, timeout_ms=params.max_wait_ms)
        if delayed.moved:
            known = [
                None if partition.topic_partition in delayed.moved else answer
                for (partition, _), answer in zip(wanted, known, strict=True)
            ]
        return self._read(params, wanted, note=False, known=known)

    def _is_held_back(self, params: FetchParams, topic_partition: TopicPartition) -> bool:
        """ReplicaManager.shouldLeaderThrottle."""
        if not params.from_follower:
            return False
        if not self.quota.holds_back(topic_partition, now_ms=self.clock.now_ms()):
            return False
        partition = self.hosted.find(topic_partition)
        return partition is not None and params.replica_id not in partition.isr

    def _is_stale(self, asked: TopicIdPartition, answer: FetchPartitionData) -> bool:
        """Whether noting this very fetch has moved the high watermark after it was read."""
        partition = self.hosted.find(asked.topic_partition)
        return partition is not None and partition.log.high_watermark != answer.high_watermark

    def _read(
        self,
        params: FetchParams,
        wanted: Wanted,
        *,
        note: bool,
        known: list[FetchPartitionData | None] | None = None,
    ) -> Answers:
        """Read those that have no answer in `known`."""
        limit = params.max_bytes
        min_one = not params.hard_max_bytes
        answers: Answers = []
        for index, (partition, info) in enumerate(wanted):
            answer = None if known is None else known[index]
            if answer is None:
                answer = self._read_one(
                    params, partition, info, limit=limit, min_one=min_one, note=note
                )
            if answer.records is not None:
                size = answer.records.size
                min_one = min_one and size == 0
                limit = max(0, limit - size)
            answers.append((partition, answer))
        return answers

    def _read_one(
        self,
        params: FetchParams,
        asked: TopicIdPartition,
        info: FetchInfo,
        *,
        limit: int,
        min_one: bool,
        note: bool,
    ) -> FetchPartitionData:
        try:
            partition = self.hosted.get(asked.topic_partition)
        except KafkaError as error:
            return FetchPartitionData(error=error.code)
        if asked.topic_id not in (NO_TOPIC_ID, partition.topic_id):
            return FetchPartitionData(error=ErrorCode.INCONSISTENT_TOPIC_ID)
        held_back = self._is_held_back(params, asked.topic_partition)
        try:
            return partition.fetch(
                params,
                info,
                max_bytes=0 if held_back else max(0, min(info.max_bytes, limit)),
                min_one=min_one and not held_back,
                note=note,
            )
        except KafkaError as error:
            return FetchPartitionData(error=error.code)
        except KafkaStorageError as error:
            self.on_storage_failure(partition, error)
            return FetchPartitionData(error=ErrorCode.KAFKA_STORAGE_ERROR)
        except StorageError as error:
            return FetchPartitionData(error=code_of(error))

    def _delayed(self, params: FetchParams, wanted: Wanted, answers: Answers) -> DelayedFetch:
        available = {
            partition.topic_partition: answer.records.size
            for partition, answer in answers
            if answer.records is not None
        }
        return DelayedFetch(
            self.hosted,
            params,
            {partition.topic_partition: info for partition, info in wanted},
            available,
            sum(available.values()),
            lambda partition: self._is_held_back(params, partition),
        )


def _is_enough(params: FetchParams, answers: Answers) -> bool:
    """Whether to answer at once."""
    size = 0
    for _, answer in answers:
        if answer.records is not None:
            size += answer.records.size
        if (
            answer.error is not ErrorCode.NONE
            or answer.diverging_epoch is not None
            or answer.preferred_read_replica >= 0
        ):
            return True
    return size >= params.min_bytes
