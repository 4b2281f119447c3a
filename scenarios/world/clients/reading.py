"""A program that reads with our Consumer, and notes the records that it receives.

    Reader("r1", partitions=[t-0])              by itself
    Reader("m1", group="g", topics=["t"])       as a member of a group

Rule 1: it polls all the time, with pauses drawn from its chance. It notes an error and polls
again, as a real program would.

Rule 2: without automatic commits (`enable.auto.commit=false`) it commits after some polls what it
has received until then.

Rule 3: in a rack (`client.rack`) it reports each follower that it received records from.
"""

import random
from collections.abc import Collection, Mapping

import attrs

from replication.client.consumer import (
    Consumer,
    ConsumerInterceptor,
    ConsumerRebalanceListener,
    OffsetAndMetadata,
)
from replication.client.consumer.records import ConsumerRecords
from replication.errors import ErrorCode, KafkaError
from replication.net.seams import Seams
from scenarios.world.clients.machine import RETRY_SECONDS, Program
from scenarios.world.clients.witness import Began, Committed, Given, Lost, Witness
from scenarios.world.trace import GroupPartitionsMoved, ReadFromFollower, StaticMemberReturned
from storage.types import Offset, TopicPartition

POLL_MS = 1_000
IDLES, IDLE_SECONDS = 0.2, (0.05, 0.5, 2.0)
COMMITS = 0.5
INSTANCE_ID_IS_TAKEN = (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID)
"""Errors after which a program begins again: a life before has its instance id, until its session
expires; or its coordinator has lost the record of this life, and knows the one before.
"""
LEADER = -1
"""The preferred replica of a fetch whose reader should ask the leader."""


@attrs.define(eq=False, kw_only=True)
class _Commits(ConsumerInterceptor):
    group: str
    witness: Witness

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for partition, at in offsets.items():
            self.witness.note(partition, Committed(group=self.group, offset=at.offset))


@attrs.define(eq=False, kw_only=True)
class _Assigned(ConsumerRebalanceListener):
    reader: "Reader"

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self.reader.begins(partition)
        self.reader.moved("assigned", partitions)

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._gone("revoked", partitions)

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._gone("lost", partitions)

    def _gone(self, how: str, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self.reader.witness.note(partition, Lost(reader=self.reader.name))
        self.reader.moved(how, partitions)


@attrs.define(eq=False, kw_only=True)
class Reader(Program):
    witness: Witness
    chance: random.Random
    partitions: Collection[TopicPartition] = ()
    topics: Collection[str] = ()
    group: str | None = None
    returns: bool = False
    """Whether a program of this name has run before."""
    _seeks: list[tuple[TopicPartition, Offset]] = attrs.field(factory=list, init=False)
    _open: Consumer | None = attrs.field(default=None, init=False)

    def seek(self, partition: TopicPartition, offset: Offset) -> None:
        """Seek to `offset` before the next poll."""
        self._seeks.append((partition, offset))

    @property
    def read_committed(self) -> bool:
        return self.config.get("isolation.level") == "read_committed"

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.config.get("group.protocol") == "consumer"

    @property
    def membership(self) -> tuple[str, frozenset[TopicPartition]] | None:
        """Return its member id and the partitions that it has; None while it has no consumer."""
        if self._open is None:
            return None
        return self._open.group_metadata().member_id, frozenset(self._open.assignment())

    @property
    def _commits(self) -> bool:
        return self.group is not None and self.config.get("enable.auto.commit") == "false"

    async def work(self, seams: Seams) -> None:
        try:
            async with self._consumer(seams) as self._open:
                await self._read(self._open, seams)
        finally:
            self._open = None

    async def _read(self, consumer: Consumer, seams: Seams) -> None:
        if not self.topics:
            consumer.assign(self.partitions)
            for partition in self.partitions:
                self.begins(partition, 0)
        while not self.ending:
            try:
                await self._poll(consumer)
            except KafkaError as error:
                if error.code in INSTANCE_ID_IS_TAKEN:
                    raise
                self.note(error)
                await seams.clock.sleep(RETRY_SECONDS)
            await self._idle(seams)

    def _consumer(self, seams: Seams) -> Consumer:
        hooks = [] if self.group is None else [_Commits(group=self.group, witness=self.witness)]
        consumer = Consumer(
            bootstrap_servers=self.servers,
            seams=seams,
            interceptors=hooks,
            group_id=self.group,
            auto_offset_reset="earliest",
            **self.keywords(),
        )
        if self.topics:
            consumer.subscribe(self.topics, listener=_Assigned(reader=self))
        return consumer

    def begins(self, partition: TopicPartition, at: Offset | None = None) -> None:
        began = Began(reader=self.name, group=self.group, read_committed=self.read_committed, at=at)
        if self._open is not None and self.group is not None:
            known = self._open.group_metadata()
            epoch = known.generation_id if self.uses_consumer_protocol else began.member_epoch
            began = attrs.evolve(began, member_id=known.member_id, member_epoch=epoch)
        self.witness.note(partition, began)

    def moved(self, how: str, partitions: Collection[TopicPartition]) -> None:
        """Report partitions that a member of a consumer group took, gave up, or has lost."""
        if self.uses_consumer_protocol and partitions and self._open is not None:
            if how == "assigned" and self.returns and "group.instance.id" in self.config:
                self.world.sink(self.name)(StaticMemberReturned(member=self.name))
            has = self._open.assignment()
            left = len(has) if how == "assigned" else len(has - set(partitions))
            self.world.sink(self.name)(
                GroupPartitionsMoved(
                    member=self.name, how=how, partitions=len(partitions), left=left
                )
            )

    async def _poll(self, consumer: Consumer) -> None:
        while self._seeks:
            partition, offset = self._seeks.pop(0)
            consumer.seek(partition, offset)
            self.begins(partition, offset)
        records = await consumer.poll(POLL_MS)
        self._given(records)
        if records and "client.rack" in self.config:
            self._report_followers(consumer, records)
        if self._commits and self.chance.random() < COMMITS:
            await consumer.commit(timeout_ms=5_000)

    def _given(self, records: ConsumerRecords) -> None:
        for record in records:
            given = Given(
                reader=self.name,
                offset=record.offset,
                value=(record.value or b"").decode(),
                at=self.world.time.now,
            )
            self.witness.note(record.topic_partition, given)

    def _report_followers(self, consumer: Consumer, records: ConsumerRecords) -> None:
        preferred = {
            TopicPartition(tags["topic"], int(tags["partition"])): int(value)
            for name, value in consumer.metrics().items()
            if name.name == "preferred-read-replica" and (tags := dict(name.tags))
        }
        for partition in records.partitions:
            if (replica := preferred.get(partition, LEADER)) != LEADER:
                self.world.sink(self.name)(ReadFromFollower(partition=partition, replica=replica))

    async def _idle(self, seams: Seams) -> None:
        if not self.ending and self.chance.random() < IDLES:
            await seams.clock.sleep(self.chance.choice(IDLE_SECONDS))
