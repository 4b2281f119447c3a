"""Clients of coordinators that break their protocol on purpose, and judge the answers.

    probe_transactions    records of a transaction that nobody began, two producers of one
                          transactional id, a producer that is fenced and goes on, one that falls
                          silent, one that is idle for long, a marker of a replaced coordinator
    probe_expiry          producers and transactional ids that are idle, for longer than they are kept
                          or shorter, one of them with its transaction open
    probe_group           a member of a group that names an epoch which it was never given (KIP-848)
    probe_upgrade         a static one that comes back with that protocol, and upgrades its group
    probe_silent_member   one that takes the place of a member which joined once, and fell silent

The first has a topic of its own with two partitions, and transactional ids of its own, so that it
can tell what a coordinator and a leader have to answer (KIP-98, KIP-890). It speaks the versions
of transaction version 1, in which nothing but these checks stands between a zombie and the
transaction of its successor. It yields what is wrong, and ends where it cannot go on.

The file is long because all of these ask the same questions, each in an order of its own.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, NamedTuple

import attrs

from replication.errors import ErrorCode, PeerUnavailableError
from replication.leader.rules.fetch_session import INITIAL_EPOCH
from replication.net.rpc import RpcClient
from replication.wire.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from replication.wire.consumer_group_heartbeat import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    UNCHANGED,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from replication.wire.consumer_protocol import Subscription, encode_subscription
from replication.wire.end_txn import EndTxnRequest
from replication.wire.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from replication.wire.find_coordinator import GROUP, TRANSACTION, FindCoordinatorRequest
from replication.wire.init_producer_id import InitProducerIdRequest
from replication.wire.join_group import NO_MEMBER, JoinGroupProtocol, JoinGroupRequest
from replication.wire.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from replication.wire.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from scenarios.world.client import (
    FETCH_VERSION,
    INIT_PRODUCER_ID_VERSION,
    PRODUCE_VERSION,
    READ_BYTES,
    RETRY_SECONDS,
    Address,
    StoryClient,
    closing,
)
from scenarios.world.probes import ProbedSession, wanted_at
from storage.batch.records import Record, encode_batch
from storage.types import Offset, TopicPartition

ADD_PARTITIONS_VERSION: Final = 3
END_TXN_VERSION: Final = 3
MARKERS_VERSION: Final = 1
HEARTBEAT_VERSION: Final = 1
FIND_COORDINATOR_VERSION: Final = 3
JOIN_GROUP_VERSION: Final = 7
COMMITTED_ONLY: Final = 1

PATIENCE_SECONDS: Final = 30.0
"""How long a coordinator may take for what it has to do by itself."""
LONG_MS: Final = 600_000
SHORT_MS: Final = 1_000
"""Timeouts of transactions: one that never passes here, and one that does."""
LONG_SESSION_MS: Final = 10_000
"""The session of a classic member, and the time that it waits for its group."""
LATER, EARLIER = 5, 4
"""The leader epochs of two coordinators."""

SILENT_GROUP: Final = "silent-group"
PARTITIONS: Final = 2
"""The number of partitions of a probed topic."""

_COMES_LATER: Final = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
)


class _Producer(NamedTuple):
    """A transactional producer, as its coordinator has answered it."""

    name: str
    producer_id: int
    epoch: int


class Expiration(NamedTuple):
    """The settings of the broker that `probe_expiry` speaks to."""

    producer_ms: int
    """The time after which a silent producer is forgotten, and that between two checks."""
    id_ms: int
    """The time for which an idle transactional id is kept."""
    cleanup_ms: int
    """The time between two checks for ids to remove."""


class _NotToldError(Exception):
    """The cluster answers nothing that could be judged."""


@attrs.define(eq=False)
class _Probe:
    story: StoryClient
    topic: str

    # Questions, each asked again until it has an answer that can be judged.

    async def _answer(self, ask: Callable[[], Awaitable[ErrorCode]]) -> ErrorCode:
        clock = self.story.seams.clock
        until = clock.now() + PATIENCE_SECONDS
        while clock.now() < until:
            try:
                error = await ask()
            except PeerUnavailableError:
                error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            if error not in _COMES_LATER:
                return error
            await clock.sleep(RETRY_SECONDS)
        raise _NotToldError

    async def coordinator(self, name: str, kind: int) -> Address:
        async def ask(client: RpcClient) -> Address:
            answer = await client.call(
                FindCoordinatorRequest(key=name, key_type=kind),
                version=FIND_COORDINATOR_VERSION,
                timeout_ms=SHORT_MS,
            )
            if answer.error_code != ErrorCode.NONE:
                raise PeerUnavailableError("there is no coordinator yet")
            return answer.host, answer.port

        return await self.story.ask_somebody(ask)

    async def _to_coordinator(
        self,
        name: str,
        ask: Callable[[RpcClient], Awaitable[ErrorCode]],
        kind: int = TRANSACTION,
    ) -> ErrorCode:
        async def once() -> ErrorCode:
            address = await self.coordinator(name, kind)
            async with closing(await self.story.connect(self.partition(0), address)) as client:
                return await ask(client)

        return await self._answer(once)

    async def _to_leader(
        self, number: int, ask: Callable[[RpcClient], Awaitable[ErrorCode]]
    ) -> ErrorCode:
        async def once() -> ErrorCode:
            async with closing(await self.story.connect(self.partition(number), None)) as client:
                return await ask(client)

        return await self._answer(once)

    def partition(self, number: int) -> TopicPartition:
        return TopicPartition(self.topic, number)

    # What producers ask for.

    async def begin(
        self, name: str, *, timeout_ms: int = LONG_MS, expected: _Producer | None = None
    ) -> _Producer:
        found = []

        async def ask(client: RpcClient) -> ErrorCode:
            answer = await client.call(
                InitProducerIdRequest(
                    transactional_id=name,
                    transaction_timeout_ms=timeout_ms,
                    producer_id=-1 if expected is None else expected.producer_id,
                    producer_epoch=-1 if expected is None else expected.epoch,
                ),
                version=INIT_PRODUCER_ID_VERSION,
                timeout_ms=SHORT_MS,
            )
            found.append(_Producer(name, answer.producer_id, answer.producer_epoch))
            return ErrorCode.of(answer.error_code)

        error = await self._to_coordinator(name, ask)
        if error is not ErrorCode.NONE:
            return _Producer(name, -1, -1)
        return found[-1]

    async def add(self, producer: _Producer, number: int) -> ErrorCode:
        async def ask(client: RpcClient) -> ErrorCode:
            answer = await client.call(
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=producer.name,
                    v3_and_below_producer_id=producer.producer_id,
                    v3_and_below_producer_epoch=producer.epoch,
                    v3_and_below_topics=[
                        AddPartitionsToTxnTopic(name=self.topic, partitions=[number])
                    ],
                ),
                version=ADD_PARTITIONS_VERSION,
                timeout_ms=SHORT_MS,
            )
            (topic,) = answer.results_by_topic_v3_and_below
            return ErrorCode.of(topic.results_by_partition[0].partition_error_code)

        return await self._to_coordinator(producer.name, ask)

    async def end(self, producer: _Producer, *, commit: bool) -> ErrorCode:
        async def ask(client: RpcClient) -> ErrorCode:
            answer = await client.call(
                EndTxnRequest(
                    transactional_id=producer.name,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    committed=commit,
                ),
                version=END_TXN_VERSION,
                timeout_ms=SHORT_MS,
            )
            return ErrorCode.of(answer.error_code)

        return await self._to_coordinator(producer.name, ask)

    async def write(self, producer: _Producer, number: int, sequence: int = 0) -> ErrorCode:
        record = Record(timestamp=self.story.seams.clock.wall_ms(), value=producer.name.encode())
        batch = encode_batch(
            [record],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )

        async def ask(client: RpcClient) -> ErrorCode:
            data = PartitionProduceData(index=number, records=batch)
            answer = await client.call(
                ProduceRequest(
                    transactional_id=producer.name,
                    acks=-1,
                    timeout_ms=SHORT_MS,
                    topic_data=[TopicProduceData(name=self.topic, partition_data=[data])],
                ),
                version=PRODUCE_VERSION,
                timeout_ms=2 * SHORT_MS,
            )
            return ErrorCode.of(answer.responses[0].partition_responses[0].error_code)

        return await self._to_leader(number, ask)

    async def mark(self, producer_id: int, coordinator_epoch: int) -> ErrorCode:
        async def ask(client: RpcClient) -> ErrorCode:
            marker = WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=0,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name=self.topic, partition_indexes=[0])],
                coordinator_epoch=coordinator_epoch,
            )
            answer = await client.call(
                WriteTxnMarkersRequest(markers=[marker]),
                version=MARKERS_VERSION,
                timeout_ms=SHORT_MS,
            )
            return ErrorCode.of(answer.markers[0].topics[0].partitions[0].error_code)

        return await self._to_leader(0, ask)

    async def beat(
        self,
        group: str,
        epoch: int,
        *,
        instance_id: str | None = None,
        owned: list[HeartbeatTopicPartitions] | None = None,
    ) -> ConsumerGroupHeartbeatResponse:
        """Return the answer to a heartbeat of a member of the group, which has `owned`."""
        answers: list[ConsumerGroupHeartbeatResponse] = []
        request = _heartbeat(self.topic, group, epoch, instance_id=instance_id, owned=owned)

        async def ask(client: RpcClient) -> ErrorCode:
            answers.append(
                await client.call(request, version=HEARTBEAT_VERSION, timeout_ms=SHORT_MS)
            )
            return ErrorCode.of(answers[-1].error_code)

        await self._to_coordinator(group, ask, GROUP)
        return answers[-1]

    async def given(self, group: str, *, instance_id: str | None = None) -> list[list[int]]:
        """Join the group, and leave it once the member has every partition, or time is over; return
        those that it has.
        """
        clock = self.story.seams.clock
        until = clock.now() + PATIENCE_SECONDS
        owned: list[HeartbeatTopicPartitions] = []
        epoch = JOIN_EPOCH
        while clock.now() < until and sum(len(each.partitions) for each in owned) < PARTITIONS:
            answer = await self.beat(group, epoch, instance_id=instance_id, owned=owned)
            if answer.error_code != ErrorCode.NONE:
                raise _NotToldError
            epoch = answer.member_epoch
            if answer.assignment is not None:
                owned = answer.assignment.topic_partitions
            await clock.sleep(RETRY_SECONDS)
        await self.beat(group, LEAVE_EPOCH, instance_id=instance_id)
        return [each.partitions for each in owned]

    async def join_classic(self, group: str, instance_id: str) -> ErrorCode:
        subscription = encode_subscription(Subscription(topics=[self.topic]))
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=LONG_SESSION_MS,
            rebalance_timeout_ms=LONG_SESSION_MS,
            member_id=NO_MEMBER,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupProtocol(name="range", metadata=subscription)],
        )

        async def ask(client: RpcClient) -> ErrorCode:
            answer = await client.call(
                request, version=JOIN_GROUP_VERSION, timeout_ms=LONG_SESSION_MS
            )
            return ErrorCode.of(answer.error_code)

        return await self._to_coordinator(group, ask, GROUP)

    # What consumers see.

    async def _seen(self, number: int) -> PartitionData:
        wanted = FetchPartition(partition=number, partition_max_bytes=READ_BYTES)
        request = FetchRequest(
            max_bytes=READ_BYTES,
            isolation_level=COMMITTED_ONLY,
            topics=[FetchTopic(topic=self.topic, partitions=[wanted])],
        )
        found: list[PartitionData] = []

        async def ask(client: RpcClient) -> ErrorCode:
            answer = await client.call(request, version=FETCH_VERSION, timeout_ms=SHORT_MS)
            found.append(answer.responses[0].partitions[0])
            return ErrorCode.of(found[-1].error_code)

        if await self._to_leader(number, ask) is not ErrorCode.NONE:
            raise _NotToldError
        return found[-1]

    async def is_read_on_other_terms(self, offset: Offset) -> bool:
        """Return whether a session that may read up to `offset` reads on once it may read all."""
        async with closing(await self.story.connect(self.partition(0), None)) as client:
            session = ProbedSession(client, self.topic)
            wanted = wanted_at(0, offset)
            opened = await session.ask(INITIAL_EPOCH, wanted, isolation_level=COMMITTED_ONLY)
            session.session_id = opened.session_id
            for epoch in (1, 2):
                answer = await session.ask(epoch, isolation_level=COMMITTED_ONLY)
                if answer.error is not ErrorCode.NONE:
                    return True  # there is no slot
            answer = await session.ask(3)
            return answer.error is not ErrorCode.NONE or bool(answer.partitions)

    async def stable(self, number: int) -> Offset:
        """Return the last stable offset."""
        return (await self._seen(number)).last_stable_offset

    async def committed(self, number: int) -> Offset:
        """Return the high watermark."""
        return (await self._seen(number)).high_watermark

    async def becomes_stable(self, number: int, offset: Offset) -> bool:
        """Return whether the last stable offset reaches `offset` in time."""
        clock = self.story.seams.clock
        until = clock.now() + PATIENCE_SECONDS
        while await self.stable(number) < offset:
            if clock.now() > until:
                return False
            await clock.sleep(RETRY_SECONDS)
        return True


async def probe_transactions(story: StoryClient, topic: str) -> AsyncIterator[str]:
    """Yield what is wrong with the answers to transactional producers that write to `topic`."""
    probe = _Probe(story, topic)
    for part in (_opens, _is_replaced, _is_idle, _is_marked, _falls_silent):
        try:
            async for what in part(probe):
                yield what
        except _NotToldError:
            pass


async def _opens(probe: _Probe) -> AsyncIterator[str]:
    """Open two transactions at once, of which one was not begun at its coordinator at first."""
    first, second = await probe.begin("first"), await probe.begin("second")
    if await probe.write(first, 0) is ErrorCode.NONE:
        yield "a record opens a transaction that its coordinator does not know"
        return
    begins = await probe.committed(0)
    for producer in (first, second):
        await probe.add(producer, 0)
        if await probe.write(producer, 0) is not ErrorCode.NONE:
            return
    if (stable := await probe.stable(0)) > begins:
        yield f"stable up to {stable}, where a transaction is open from {begins} on"
    if not await probe.is_read_on_other_terms(begins):
        yield "a session that waits for what is committed reads nothing else, though it asks for all"
    ends = await probe.committed(0)
    for producer in (first, second):
        await probe.end(producer, commit=True)
    if not await probe.becomes_stable(0, ends):
        yield "both transactions have ended, and the log is not stable"


async def _is_replaced(probe: _Probe) -> AsyncIterator[str]:
    """Give a producer's transactional id to another one while its transaction is open."""
    former = await probe.begin("replaced")
    again = await probe.begin("replaced")
    if again.epoch >= 0 and again.epoch <= former.epoch:
        yield f"two producers begin in epoch {former.epoch}"
        return
    await probe.add(again, 0)
    if await probe.write(again, 0) is not ErrorCode.NONE:
        return
    ends = await probe.committed(0)
    present = await probe.begin("replaced")
    if present.epoch < 0:
        return
    if not await probe.becomes_stable(0, ends):
        yield "an id was given on, and the transaction of the producer before is open"
        return
    if await probe.add(again, 1) is ErrorCode.NONE:
        yield "a producer that was fenced adds a partition"
    if await probe.add(present, 1) is not ErrorCode.NONE:
        return
    if await probe.end(again, commit=True) is ErrorCode.NONE:
        yield "a producer that was fenced ends the transaction of its successor"
    await probe.end(present, commit=False)


async def _is_idle(probe: _Probe) -> AsyncIterator[str]:
    """Come back after some seconds."""
    before = await probe.begin("idle")
    await probe.story.seams.clock.sleep(5 * SHORT_MS / 1000)
    after = await probe.begin("idle", expected=before)
    if before.epoch >= 0 and after.producer_id != before.producer_id:
        yield f"idle for some seconds, a producer is {after} instead of {before}"


async def _is_marked(probe: _Probe) -> AsyncIterator[str]:
    """Send a marker as a coordinator that was replaced."""
    producer_id = await probe.story.init_producer_id()
    if await probe.mark(producer_id, LATER) is not ErrorCode.NONE:
        return
    if await probe.mark(producer_id, EARLIER) is ErrorCode.NONE:
        yield f"a marker of coordinator epoch {EARLIER} is written after one of {LATER}"


async def _falls_silent(probe: _Probe) -> AsyncIterator[str]:
    """Leave a transaction open for longer than it may be."""
    producer = await probe.begin("silent", timeout_ms=SHORT_MS)
    await probe.add(producer, 0)
    if await probe.write(producer, 0) is not ErrorCode.NONE:
        return
    ends = await probe.committed(0)
    if not await probe.becomes_stable(0, ends):
        yield f"a transaction of {SHORT_MS} ms is open after {PATIENCE_SECONDS:.0f} s"


async def probe_expiry(
    story: StoryClient, topic: str, times: Expiration, restart: Callable[[], Awaitable[None]]
) -> AsyncIterator[str]:
    """Yield what is wrong with what a broker keeps of producers that write to partition 0 of `topic`,
    and fall silent. It leads the partition, and coordinates them.

    `restart` restarts it; from then on no id expires.
    """
    try:
        async for what in _expires(_Probe(story, topic), times, restart):
            yield what
    except _NotToldError:
        pass


async def _expires(
    probe: _Probe, times: Expiration, restart: Callable[[], Awaitable[None]]
) -> AsyncIterator[str]:
    clock = probe.story.seams.clock
    unfinished = await probe.begin("unfinished")
    await probe.add(unfinished, 0)
    begins = await probe.committed(0)
    if await probe.write(unfinished, 0) is not ErrorCode.NONE:
        return
    gone, kept = await probe.begin("gone"), await probe.begin("kept")
    idle_ms = (times.cleanup_ms + times.id_ms) // 2
    await clock.sleep(idle_ms / 1000)
    if await probe.add(kept, 0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
        yield f"idle for {idle_ms} ms of {times.id_ms}, a transactional id is forgotten"
    idle_ms = 2 * max(times.producer_ms, times.id_ms + times.cleanup_ms)
    await clock.sleep(idle_ms / 1000)
    if await probe.add(gone, 0) is not ErrorCode.INVALID_PRODUCER_ID_MAPPING:
        yield f"idle for {idle_ms} ms, a transactional id is known"
        return
    if (stable := await probe.stable(0)) > begins:
        yield f"stable up to {stable}, where a transaction is open from {begins} on"
    ends = await probe.committed(0)
    if await probe.end(unfinished, commit=True) is ErrorCode.NONE and not (
        await probe.becomes_stable(0, ends)
    ):
        yield "a transaction of a producer that was silent has ended, and the log is not stable"
    await restart()
    again = await probe.begin("gone")
    if again.producer_id == gone.producer_id >= 0:
        yield f"a transactional id that had expired is back, with producer id {gone.producer_id}"


async def probe_group(story: StoryClient, topic: str) -> AsyncIterator[str]:
    """Yield what is wrong with the answers to a member of a group that reads `topic`."""
    probe = _Probe(story, topic)
    try:
        joined = await probe.beat("probed-group", JOIN_EPOCH)
        if joined.error_code != ErrorCode.NONE:
            return
        epoch = joined.member_epoch
        if (await probe.beat("probed-group", epoch + 1)).error_code == ErrorCode.NONE:
            yield f"a member in epoch {epoch} is answered in epoch {epoch + 1}"
        await probe.beat("probed-group", LEAVE_EPOCH)
    except _NotToldError:
        pass


async def probe_upgrade(story: StoryClient, topic: str) -> AsyncIterator[str]:
    """Yield what is wrong with a classic group whose static member comes back as one of KIP-848 before
    it has been given a partition.
    """
    probe = _Probe(story, topic)
    try:
        if await probe.join_classic("upgraded-group", "one") is not ErrorCode.NONE:
            return
        has = await probe.given("upgraded-group", instance_id="one")
    except _NotToldError:
        return
    if sum(map(len, has)) < PARTITIONS:
        yield f"a member upgraded its group, and after {PATIENCE_SECONDS:.0f} s it has {has}"


async def join_once(story: StoryClient, topic: str) -> None:
    """Send the first heartbeat of a member that reads `topic`, which is silent from then on, whatever
    the answer is.
    """
    probe = _Probe(story, topic)
    address = await probe.coordinator(SILENT_GROUP, GROUP)
    request = _heartbeat(topic, SILENT_GROUP, JOIN_EPOCH, member_id="silent-member")
    async with closing(await story.connect(probe.partition(0), address)) as client:
        await client.call(request, version=HEARTBEAT_VERSION, timeout_ms=SHORT_MS)


async def probe_silent_member(story: StoryClient, topic: str) -> AsyncIterator[str]:
    """Yield what is wrong with the group of `join_once`: the next member gets both partitions."""
    try:
        has = await _Probe(story, topic).given(SILENT_GROUP)
    except _NotToldError:
        return
    if sum(map(len, has)) < PARTITIONS:
        yield f"a member fell silent, and after {PATIENCE_SECONDS:.0f} s the next one has {has}"


def _heartbeat(
    topic: str,
    group: str,
    epoch: int,
    *,
    member_id: str = "probed-member",
    instance_id: str | None = None,
    owned: list[HeartbeatTopicPartitions] | None = None,
) -> ConsumerGroupHeartbeatRequest:
    joins = epoch == JOIN_EPOCH
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        instance_id=instance_id,
        rebalance_timeout_ms=LONG_MS if joins else UNCHANGED,
        subscribed_topic_names=[topic] if joins else None,
        topic_partitions=[] if joins else owned,
    )
