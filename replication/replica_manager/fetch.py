"""Fetch: read every partition of a request, or wait until there is enough to read.

    read ── enough, or an error, or a divergence, or no time ──────────────> answer
      └── wait in the purgatory until enough, moved away, or the time is up ── read again ──┘

Rule 1: partitions are read in the order of the request, and share its byte limit. The first one
with records gives at least one batch, however large, so that every reader makes progress.

Rule 2: a follower's position is noted once, when its request arrives. The read after the wait
says nothing new about the follower.

Rule 3: the records of the answer are file regions taken at that moment; nothing is pinned
while a request waits.

Rule 4: a follower out of sync gets no records of a throttled partition while the leader's rate
is exceeded (KIP-73), and no error: its fetch waits as if there were none.

Rule 5: after the wait a partition is read again only if it has moved since its first read,
possibly by this very fetch, or had records then.

Rule 6: a partition that is settled in the session is neither read nor watched: the session
reports that it has moved, and only then it is watched in the purgatory.

Rule 7: at most `READ_AT_ONCE` partitions are read in one turn. A fetch of more is watched from
its first read on, because what it has read may move while it reads the rest; and in a pause its
session may end, or another request may change its terms: then nothing more is settled in it.
"""

from collections.abc import Callable, Collection, Hashable
from functools import partial
from typing import TypeAlias

import attrs
import trio

from replication.errors import ErrorCode, KafkaError
from replication.leader.partition import Partition
from replication.leader.purgatory import Purgatory
from replication.leader.rules.fetch_data import (
    Answers,
    FetchInfo,
    FetchParams,
    FetchPartitionData,
    TopicIdPartition,
    Wanted,
)
from replication.leader.rules.fetch_session.session import (
    CachedPartition,
    FetchSession,
    partition_key,
)
from replication.leader.rules.quota import ReplicationQuota
from replication.net.pace import in_steps
from replication.net.seams import NodeClock
from replication.replica_manager.hosted import HostedPartitions
from replication.replica_manager.results import code_of
from replication.replica_manager.topic_meters import TopicMeters
from replication.steps import STEP, Steps, at_once
from storage.attributes import define
from storage.errors import KafkaStorageError, StorageError
from storage.types import NO_TOPIC_ID, TopicPartition

AskedPartition: TypeAlias = tuple[TopicIdPartition, FetchInfo]
FEW_PARTITIONS = 64
"""The most partitions of a fetch, and of its session, that waits without a task."""
READ_AT_ONCE = 128
"""The partitions that are read in one turn of the loop; with records they take a few milliseconds."""

Known: TypeAlias = dict[AskedPartition, FetchPartitionData]
"""The answers that a waiting fetch keeps for the partitions that do not move meanwhile."""


@define
class _Room:
    """The bytes that the next partitions of one answer may have (Rule 1)."""

    limit: int
    min_one: bool

    def take(self, size: int) -> None:
        self.min_one = self.min_one and size == 0
        self.limit = max(0, self.limit - size)


@define(eq=False)
class DelayedFetch:
    """A wait for `params.min_bytes`, which looks again only at partitions that have moved."""

    path: "FetchPath"
    params: FetchParams
    asked: Wanted
    session: FetchSession | None
    wanted: dict[TopicPartition, FetchInfo] = attrs.field(factory=dict)
    available: dict[TopicPartition, int] = attrs.field(factory=dict)
    total: int = 0
    known: Known = attrs.field(factory=dict)
    moved: set[TopicPartition] = attrs.field(factory=set)
    unsettled: dict[TopicPartition, CachedPartition] = attrs.field(factory=dict)
    """The partitions that were settled in the session when the fetch came, and are not any more."""

    @property
    def woken(self) -> Wanted:
        """The partitions that were settled in the session and have moved, with their fetch infos."""
        return [cached.wanted for each, cached in self.unsettled.items() if each in self.moved]

    @property
    def is_short(self) -> bool:
        """Whether no task need wait: what is read after the wait is little."""
        session = self.session
        return len(self.asked) <= FEW_PARTITIONS and (
            session is None or len(session.partitions) <= FEW_PARTITIONS
        )

    def listen(self) -> None:
        """Let the session say which of its settled partitions have moved."""
        if self.session is not None:
            self.session.listeners.append(self.on_unsettled)

    def stop_listening(self) -> None:
        if self.session is not None:
            self.session.listeners.remove(self.on_unsettled)

    def note(self, wanted: Wanted, answers: Answers) -> None:
        """Note what the first read of these partitions has found."""
        for pair, (asked, answer) in zip(wanted, answers, strict=True):
            topic_partition = asked.topic_partition
            self.wanted[topic_partition] = pair[1]
            if answer.records is not None:
                self.available[topic_partition] = answer.records.size
                self.total += answer.records.size
            elif self.path.may_keep(self.params, topic_partition, answer):
                self.known[pair] = answer

    def on_unsettled(self, cached: CachedPartition) -> None:
        """Watch a partition that was settled in the session as soon as it has moved (Rule 6)."""
        topic_partition = cached.wanted[0].topic_partition
        if topic_partition not in self.wanted:
            self.unsettled[topic_partition] = cached
            self.wanted[topic_partition] = cached.wanted[1]
            self.path.purgatory.watch(self, topic_partition)

    def satisfied(self) -> bool:
        # The first read has just found too little.
        return False

    def satisfied_by(self, key: TopicPartition, /) -> bool:
        self.moved.add(key)
        partition = self.path.hosted.find(key)
        if partition is None:
            return True
        before = self.available.get(key, 0)
        others = self.total - before
        now = partition.available_bytes(
            self.params, self.wanted[key], enough=self.params.min_bytes - others
        )
        if now is None:
            return True
        if now and self.path.quota.throttles and self.path.is_held_back(self.params, partition):
            now = 0
        self.available[key] = now
        self.total = others + now
        return self.total >= self.params.min_bytes


@define(eq=False, kw_only=True)
class FetchPath:
    """The path of Fetch requests, which wait for records in `purgatory`."""

    hosted: HostedPartitions
    purgatory: Purgatory[TopicPartition]
    clock: NodeClock
    quota: ReplicationQuota
    meters: TopicMeters
    on_storage_failure: Callable[[Partition, KafkaStorageError], None]

    async def fetch(
        self, params: FetchParams, wanted: Wanted, session: FetchSession | None = None
    ) -> Answers:
        """Read every wanted partition, after waiting for `params.min_bytes` if need be.

        Return one answer per partition, in the order of `wanted`; each of them has a name. In a
        session `wanted` is what is not settled there, and settled partitions that move meanwhile
        are answered too, in the session's order.
        """
        found = await self.begin(params, wanted, session)
        return await self.wait(found) if isinstance(found, DelayedFetch) else found

    async def begin(
        self, params: FetchParams, wanted: Wanted, session: FetchSession | None
    ) -> Answers | DelayedFetch:
        """Read as `fetch` does; where there is not enough, return the wait, to be begun at once."""
        delayed = DelayedFetch(self, params, wanted, session)
        if len(wanted) > READ_AT_ONCE:
            answers = await self._fetch_many(delayed)
        else:
            room = _Room(params.max_bytes, not params.hard_max_bytes)
            answers = self._read_some(params, wanted, room, session=session, known=None)
            self.meters.fetch_has_come(answers)
            if not self._is_final(params, wanted, session, answers):
                delayed.note(wanted, answers)
                return delayed
            await trio.lowlevel.checkpoint()
        return await self._counted(params, answers)

    async def wait(self, delayed: DelayedFetch) -> Answers:
        """Return the answers after the wait."""
        delayed.listen()
        try:
            await self.purgatory.wait(
                delayed, delayed.wanted, timeout_ms=delayed.params.max_wait_ms
            )
        finally:
            delayed.stop_listening()
        return await self._counted(delayed.params, await in_steps(self._read_again(delayed)))

    def call_when_enough(
        self, delayed: DelayedFetch, done: Callable[[Callable[[], Answers]], object]
    ) -> Callable[[], object]:
        """Call `done` after the same wait, if it `is_short`; return a function that gives it up.

        `done` takes the function that reads the answers, without a wait.
        """

        def finish() -> None:
            delayed.stop_listening()
            done(partial(self._finished, delayed))

        def give_up() -> None:
            if self.purgatory.give_up(delayed):
                delayed.stop_listening()

        delayed.listen()
        self.purgatory.call_when_done(
            delayed, delayed.wanted, timeout_ms=delayed.params.max_wait_ms, done=finish
        )
        return give_up

    def _finished(self, delayed: DelayedFetch) -> Answers:
        session = delayed.session
        if session is not None and len(session.partitions) > FEW_PARTITIONS:
            return []  # it has grown; the next fetch reads all of it
        answers = at_once(self._read_again(delayed))
        self._count(delayed.params, answers)
        return answers

    async def _counted(self, params: FetchParams, answers: Answers) -> Answers:
        for start in range(0, len(answers), STEP):
            if start:
                await trio.lowlevel.checkpoint()
            self._count(params, answers[start : start + STEP])
        return answers

    def _count(self, params: FetchParams, answers: Answers) -> None:
        self.meters.fetched(answers, by_follower=params.from_follower)
        if params.from_follower and self.quota.throttles:
            sizes = {asked.topic_partition: answer.records_size for asked, answer in answers}
            self.quota.record(sizes, now_ms=self.clock.now_ms())

    def terms(self, params: FetchParams) -> Hashable:
        """Return what every answer to such a fetch depends on, beside the partitions."""
        return (
            params.replica_id,
            params.replica_epoch,
            self.hosted.metadata().broker_epoch(params.replica_id),
            params.isolation,
            params.client_metadata,  # its rack: which replica is preferred
        )

    async def _fetch_many(self, delayed: DelayedFetch) -> Answers:
        """Answer a fetch of many partitions, which are read in steps (Rule 7)."""
        params, wanted, session = delayed.params, delayed.asked, delayed.session
        delayed.listen()
        try:
            with self.purgatory.watching(delayed):
                answers = await in_steps(
                    self._read(params, wanted, session=session, delayed=delayed)
                )
                if self._is_final(params, wanted, session, answers):
                    return answers
                del answers
                await self.purgatory.wait_watched(delayed, timeout_ms=params.max_wait_ms)
        finally:
            delayed.stop_listening()
        return await in_steps(self._read_again(delayed))

    def _is_final(
        self,
        params: FetchParams,
        wanted: Wanted,
        session: FetchSession | None,
        answers: Answers,
    ) -> bool:
        """Return whether to answer without a wait."""
        nothing = not wanted and not (session is not None and session.any_settled)
        return params.max_wait_ms <= 0 or nothing or _is_enough(params, answers)

    def may_keep(
        self, params: FetchParams, topic_partition: TopicPartition, answer: FetchPartitionData
    ) -> bool:
        """Return whether `answer`, just read and without records, holds until its partition moves."""
        partition = self.hosted.find(topic_partition)
        return partition is None or (
            # This very fetch may have moved it after the read.
            partition.log.high_watermark == answer.high_watermark
            and not (self.quota.throttles and self.is_held_back(params, partition))
        )

    def _read_again(self, delayed: DelayedFetch) -> Steps[Answers]:
        """Read what `delayed` knows no answer of, or has moved since, after the wait."""
        params, wanted, session = delayed.params, delayed.asked, delayed.session
        known = delayed.known
        if session is not None and session.terms != self.terms(params):
            # The follower has registered again meanwhile (KIP-903): no answer is what it was, and
            # the position in this fetch is that of a process which is gone.
            wanted, known = session.everything(), {}
        elif session is not None and delayed.unsettled:
            wanted = yield from session.in_order(wanted + delayed.woken)
        if len(wanted) > READ_AT_ONCE:
            return (yield from self._read(params, wanted, known=known, moved=delayed.moved))
        room = _Room(params.max_bytes, not params.hard_max_bytes)
        return self._read_some(params, wanted, room, session=None, known=known, moved=delayed.moved)

    def is_held_back(self, params: FetchParams, partition: Partition) -> bool:
        """Return whether a partition is throttled, where any is (shouldLeaderThrottle in Kafka)."""
        if not params.from_follower:
            return False
        now_ms = self.clock.now_ms()
        return (
            self.quota.holds_back(partition.topic_partition, now_ms=now_ms)
            and params.replica_id not in partition.isr
        )

    def _read(
        self,
        params: FetchParams,
        wanted: Wanted,
        *,
        session: FetchSession | None = None,
        delayed: DelayedFetch | None = None,
        known: Known | None = None,
        moved: Collection[TopicPartition] = (),
    ) -> Steps[Answers]:
        """Read the partitions that have no answer in `known`, or are in `moved`.

        On arrival (`known` is None) note the follower's position too, settle in `session` the
        partitions that have nothing new, and watch each for `delayed`, if given, from its read on.
        """
        room = _Room(params.max_bytes, not params.hard_max_bytes)
        answers: Answers = []
        for start in range(0, len(wanted), READ_AT_ONCE):
            if start and session is not None and not session.may_settle(self.terms(params)):
                session = None
            some = wanted[start : start + READ_AT_ONCE]
            read = self._read_some(params, some, room, session=session, known=known, moved=moved)
            if known is None:
                self.meters.fetch_has_come(read)
            if delayed is not None:
                delayed.note(some, read)
                for asked, _ in read:
                    self.purgatory.watch(delayed, asked.topic_partition)
            answers += read
            yield STEP * len(some) // READ_AT_ONCE
        return answers

    def _read_some(
        self,
        params: FetchParams,
        wanted: Wanted,
        room: _Room,
        *,
        session: FetchSession | None,
        known: Known | None,
        moved: Collection[TopicPartition] = (),
    ) -> Answers:
        answers: Answers = []
        for pair in wanted:
            asked = pair[0]
            topic_partition = asked.topic_partition
            answer = None
            if known is not None and topic_partition not in moved:
                answer = known.get(pair)
            if answer is None:
                answer = self._read_one(
                    params,
                    pair,
                    topic_partition,
                    room,
                    session=session,
                    note=known is None,
                )
            if answer.records is not None:
                room.take(answer.records.size)
            answers.append((asked, answer))
        return answers

    def _read_one(
        self,
        params: FetchParams,
        pair: AskedPartition,
        topic_partition: TopicPartition,
        room: _Room,
        *,
        session: FetchSession | None,
        note: bool,
    ) -> FetchPartitionData:
        """Read one partition, and settle it in `session` if it has nothing new."""
        asked, info = pair
        try:
            partition = self.hosted.get(topic_partition)
        except KafkaError as error:
            return FetchPartitionData(error=error.code)
        if asked.topic_id not in (NO_TOPIC_ID, partition.topic_id):
            return FetchPartitionData(error=ErrorCode.INCONSISTENT_TOPIC_ID)
        held_back = self.quota.throttles and self.is_held_back(params, partition)
        try:
            answer = partition.fetch(
                params,
                info,
                max_bytes=0 if held_back else min(info.max_bytes, room.limit),
                min_one=room.min_one and not held_back,
                note=note,
            )
        except KafkaError as error:
            return FetchPartitionData(error=error.code)
        except KafkaStorageError as error:
            self.on_storage_failure(partition, error)
            return FetchPartitionData(error=ErrorCode.KAFKA_STORAGE_ERROR)
        except StorageError as error:
            return FetchPartitionData(error=code_of(error))
        if session is not None and partition.may_settle(params, info, answer):
            cached = session.partitions.get(partition_key(asked))
            if cached is not None:  # None: forgotten in a pause
                partition.settle(cached, params)
        return answer


def _is_enough(params: FetchParams, answers: Answers) -> bool:
    """Return whether to answer at once."""
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
