"""The way to a leader, over loopback TCP and Kafka's protocol, with a fake leader behind it."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from replication.errors import ErrorCode, KafkaError, PeerUnavailableError
from replication.events import Event, FetchResponseUnusable
from replication.follower.fetcher import FetcherConfig
from replication.follower.fetcher_manager import RemoteFetcherFactory, ReplicaFetcherManager
from replication.follower.leader_endpoint import (
    LATEST_FETCH_VERSION,
    LATEST_LIST_OFFSETS_VERSION,
    LATEST_OFFSET_FOR_LEADER_EPOCH_VERSION,
    EpochEnd,
    EpochWanted,
    LeaderEndpoint,
    RemoteLeaderEndpoint,
)
from replication.follower.rules.fetch_state import BrokerEndPoint, InitialFetchState
from replication.metrics import MetricsRegistry
from replication.net.clock import TrioClock
from replication.net.framing import FrameReader, send_parts
from replication.net.seams import Connection, Listener
from replication.net.tcp import TcpTransport
from replication.observe.sentences import sentence
from replication.wire import list_offsets
from replication.wire.apis import API, ApiKey
from replication.wire.fetch import FetchRequest, FetchResponse
from replication.wire.frames import RequestHeader, decode_request, encode_response
from replication.wire.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from replication.wire.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from scenarios.world.world import World
from storage.types import OffsetAndEpoch, TopicPartition
from tests.replication.broker.stage import played
from tests.replication.follower.fake_leader import FakeLeader, FakeReplicas
from tests.replication.follower.following import T0, T1
from tests.replication.follower.model_log import ModelLog, drawn

Answer = FetchResponse | ListOffsetsResponse | OffsetForLeaderEpochResponse


@attrs.define
class Served:
    """A fake leader behind a real socket."""

    leader: FakeLeader
    listener: Listener
    requests: list[tuple[RequestHeader, object]] = attrs.field(factory=list)
    connections: list[Connection] = attrs.field(factory=list)
    answers: bool = True
    answers_in: int | None = None
    """The version in which a fetch is answered, if it is another than the request's."""
    cuts_answers: bool = False
    """Whether the connection ends in the middle of each answer."""

    @property
    def broker(self) -> BrokerEndPoint:
        return BrokerEndPoint(1, self.listener.host, self.listener.port)

    async def serve(self) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                connection = await self.listener.accept()
                self.connections.append(connection)
                nursery.start_soon(self._serve_one, connection)

    async def _serve_one(self, connection: Connection) -> None:
        reader = FrameReader(connection)
        try:
            while (frame := await reader.receive_frame()) is not None:
                header, request = decode_request(frame)
                self.requests.append((header, request))
                if not self.answers:
                    continue
                answer = await self._answer(request, header.api_version)
                version = header.api_version if self.answers_in is None else self.answers_in
                parts = encode_response(
                    answer, version=version, correlation_id=header.correlation_id
                )
                if self.cuts_answers:
                    assert len(parts) > 1, "the head, then the records"
                    await send_parts(connection, parts[:-1])
                    break
                await send_parts(connection, parts)
        except PeerUnavailableError:
            pass
        finally:
            connection.close()

    async def _answer(self, request: object, version: int) -> Answer:
        match request:
            case FetchRequest():
                return await self.leader.fetch(request, version=version)
            case ListOffsetsRequest():
                return await self._list_offsets(request)
            case OffsetForLeaderEpochRequest():
                return await self._epoch_ends(request)
            case _:
                raise AssertionError(f"{request!r} is nothing a follower asks")

    async def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        assert request.replica_id == 2
        (topic,) = request.topics
        (asked,) = topic.partitions
        tp = TopicPartition(topic.name, asked.partition_index)
        latest = asked.timestamp == list_offsets.LATEST
        find = self.leader.fetch_latest_offset if latest else self.leader.fetch_earliest_offset
        answer = ListOffsetsPartitionResponse(partition_index=tp.partition)
        try:
            found = await find(tp, asked.current_leader_epoch)
        except KafkaError as error:
            answer.error_code = error.code
        else:
            answer.offset, answer.leader_epoch = found.offset, found.leader_epoch
        return ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name=topic.name, partitions=[answer])]
        )

    async def _epoch_ends(
        self, request: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        wanted = {
            TopicPartition(topic.topic, asked.partition): EpochWanted(
                asked.current_leader_epoch, asked.leader_epoch
            )
            for topic in request.topics
            for asked in topic.partitions
        }
        answers = await self.leader.fetch_epoch_end_offsets(wanted)
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=tp.topic,
                    partitions=[
                        EpochEndOffset(
                            partition=tp.partition,
                            error_code=answer.error,
                            leader_epoch=answer.end.leader_epoch,
                            end_offset=answer.end.offset,
                        )
                    ],
                )
                for tp, answer in answers.items()
            ]
        )


@asynccontextmanager
async def served(leader: FakeLeader | None = None) -> AsyncIterator[Served]:
    it = Served(leader or FakeLeader(), await TcpTransport().listen("127.0.0.1", 0))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(it.serve)
        yield it
        nursery.cancel_scope.cancel()
    it.listener.close()


def endpoint_to(
    broker: BrokerEndPoint, *, request_timeout_ms: int = 10_000
) -> RemoteLeaderEndpoint:
    return RemoteLeaderEndpoint(
        broker=broker,
        replica_id=2,
        client_id="broker-2-fetcher-0",
        transport=TcpTransport(),
        clock=TrioClock(),
        request_timeout_ms=request_timeout_ms,
    )


@pytest.mark.conformance("RF-1")
async def test_the_newest_versions_are_spoken_by_default() -> None:
    # Fetch 18 has a follower's high watermark, in the quorum (KIP-1166): ours have no use for it.
    assert API[ApiKey.FETCH].max_version == LATEST_FETCH_VERSION + 1
    # ListOffsets 10 and 11 are about tiered storage.
    assert API[ApiKey.LIST_OFFSETS].max_version == LATEST_LIST_OFFSETS_VERSION + 2
    assert API[ApiKey.OFFSET_FOR_LEADER_EPOCH].max_version == LATEST_OFFSET_FOR_LEADER_EPOCH_VERSION
    async with served() as it:
        it.leader.lead(T0, drawn((0, 0, 5)))
        endpoint: LeaderEndpoint = endpoint_to(it.broker)
        assert endpoint.supports_truncation_on_fetch
        await endpoint.fetch(FetchRequest(), version=endpoint.fetch_version)
        await endpoint.fetch_latest_offset(T0, 0)
        await endpoint.fetch_epoch_end_offsets({T0: EpochWanted(0, 0)})
        assert [(header.api_key, header.api_version) for header, _ in it.requests] == [
            (ApiKey.FETCH, 17),
            (ApiKey.LIST_OFFSETS, 9),
            (ApiKey.OFFSET_FOR_LEADER_EPOCH, 4),
        ]
        assert {header.client_id for header, _ in it.requests} == {"broker-2-fetcher-0"}
        assert len(it.connections) == 1
        await endpoint.close()


async def test_the_ends_are_the_logs_not_the_high_watermark() -> None:
    async with served() as it:
        log = drawn((0, 0, 5))
        log.move_start_to(2)
        it.leader.lead(T0, log, epoch=3)
        endpoint = endpoint_to(it.broker)
        assert await endpoint.fetch_latest_offset(T0, 3) == OffsetAndEpoch(6, 3)
        assert await endpoint.fetch_earliest_offset(T0, 3) == OffsetAndEpoch(2, 3)
        with pytest.raises(KafkaError) as caught:
            await endpoint.fetch_earliest_offset(T0, 2)
        assert caught.value.code is ErrorCode.FENCED_LEADER_EPOCH
        await endpoint.close()


async def test_epoch_ends_come_by_partition() -> None:
    async with served() as it:
        it.leader.lead(T0, drawn((0, 0, 4), (2, 5, 11), (6, 12, 29)), epoch=6)
        endpoint = endpoint_to(it.broker)
        answers = await endpoint.fetch_epoch_end_offsets(
            {T0: EpochWanted(6, 4), T1: EpochWanted(6, 4)}
        )
        assert answers == {
            T0: EpochEnd(ErrorCode.NONE, OffsetAndEpoch(12, 2)),
            T1: EpochEnd(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        }
        assert await endpoint.fetch_epoch_end_offsets({}) == {}
        await endpoint.close()


@pytest.mark.conformance("RF-3")
async def test_a_leader_that_is_away_is_an_error_of_each_partition_asked_about() -> None:
    listener = await TcpTransport().listen("127.0.0.1", 0)
    endpoint = endpoint_to(BrokerEndPoint(1, listener.host, listener.port))
    listener.close()
    answers = await endpoint.fetch_epoch_end_offsets({T0: EpochWanted(0, 0)})
    assert answers == {T0: EpochEnd(ErrorCode.UNKNOWN_SERVER_ERROR, OffsetAndEpoch(-1, -1))}


async def test_a_lost_connection_is_made_anew_by_the_next_request() -> None:
    async with served() as it:
        endpoint = endpoint_to(it.broker)
        await endpoint.fetch(FetchRequest(), version=12)
        it.connections[0].close()
        with pytest.raises(PeerUnavailableError):
            await endpoint.fetch(FetchRequest(), version=12)
        await endpoint.fetch(FetchRequest(), version=12)
        assert len(it.connections) == 2
        await endpoint.close()


async def test_closing_fails_what_is_in_flight_and_all_that_follows() -> None:
    async with served() as it:
        it.answers = False
        endpoint = endpoint_to(it.broker)
        failed = []

        async def ask() -> None:
            with pytest.raises(PeerUnavailableError):
                await endpoint.fetch(FetchRequest(), version=12)
            failed.append(True)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            while not it.requests:
                await wait_all_tasks_blocked(0.001)
            endpoint.initiate_close()
        await ask()
        assert len(failed) == 2
        assert len(it.connections) == 1


async def test_a_cancelled_request_closes_the_connection_its_answer_would_come_by() -> None:
    async with served() as it:
        it.answers = False
        endpoint = endpoint_to(it.broker)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: endpoint.fetch(FetchRequest(), version=12))
                while not it.requests:
                    await wait_all_tasks_blocked(0.001)
                scope.cancel()
        it.answers = True
        await endpoint.fetch(FetchRequest(), version=12)
        assert len(it.connections) == 2
        await endpoint.close()


@pytest.mark.parametrize("fetch_version", [6, 11, 12, 17])
async def test_a_manager_brings_logs_across_the_network(fetch_version: int) -> None:
    """Divergence, ranges and plain records, through every layer but storage."""
    leader = FakeLeader(sessions=fetch_version >= 7, topic_ids={"t": b"t" * 16})
    replicas, clock, metrics = FakeReplicas(), TrioClock(), MetricsRegistry(TrioClock().now)
    bugs: list[BaseException] = []
    low = drawn((6, 0, 39))
    low.move_start_to(20)
    logs = {
        T0: (drawn((0, 0, 4), (2, 5, 11), (6, 12, 29)), drawn((0, 0, 6), (3, 7, 9), (4, 10, 13))),
        T1: (low, drawn((0, 0, 3))),
    }
    async with served(leader) as it, trio.open_nursery() as nursery:
        manager = ReplicaFetcherManager(
            make_fetcher=RemoteFetcherFactory(
                replicas=replicas,
                config=FetcherConfig(replica_id=2, max_wait_ms=10, backoff_ms=10),
                transport=TcpTransport(),
                clock=clock,
                metrics=metrics,
                on_bug=bugs.append,
                fetch_version=fetch_version,
            ),
            metrics=metrics,
            nursery=nursery,
        )
        for tp, (there, here) in logs.items():
            there.high_watermark = there.log_end_offset
            leader.lead(tp, there, epoch=6)
            replicas.logs[tp] = here
        manager.add_fetcher_for_partitions(
            {
                tp: InitialFetchState(
                    topic_id=b"t" * 16,
                    leader=it.broker,
                    current_leader_epoch=6,
                    init_offset=here.log_end_offset,
                )
                for tp, (_, here) in logs.items()
            }
        )
        while any(there != here for there, here in logs.values()):
            assert not bugs
            assert not manager.failed
            await clock.sleep(0.001)
        await manager.close_all()
    assert metrics.names() == []
    assert {h.api_version for h, _ in it.requests if h.api_key == ApiKey.FETCH} == {fetch_version}
    asked_for_epochs = ApiKey.OFFSET_FOR_LEADER_EPOCH in {h.api_key for h, _ in it.requests}
    assert asked_for_epochs == (fetch_version < 12)


def test_a_model_log_compares_by_what_it_holds() -> None:
    assert drawn((0, 0, 3)) != drawn((0, 0, 4))
    assert ModelLog() == ModelLog()


@pytest.mark.parametrize(
    ("spoilt", "cause"),
    [
        ({"cuts_answers": True}, r"b1:9092 closed the connection after \d+ of \d+ bytes"),
        ({"answers_in": 11}, "responses is null, with"),
        ({"answers_in": 12}, "partitions is of length 40, with"),
    ],
    ids=str,
)
@played
async def test_a_leader_that_breaks_off_or_answers_in_another_version_is_asked_after_a_backoff(
    world: World, spoilt: dict[str, int], cause: str
) -> None:
    seams, replicas = world.node("b2"), FakeReplicas()
    bugs: list[BaseException] = []
    events: list[Event] = []
    there = drawn((0, 0, 40))
    there.high_watermark = there.log_end_offset
    leader = FakeLeader(topic_ids={"t": b"t" * 16}, clock=seams.clock)
    leader.lead(T0, there)
    replicas.logs[T0] = here = ModelLog()
    listener = await world.node("b1").transport.listen("b1", 9092)
    it, metrics = Served(leader, listener), MetricsRegistry(seams.clock.now)
    for name, value in spoilt.items():
        setattr(it, name, value)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(it.serve)
        manager = ReplicaFetcherManager(
            make_fetcher=RemoteFetcherFactory(
                replicas=replicas,
                config=FetcherConfig(replica_id=2, backoff_ms=1000),
                transport=seams.transport,
                clock=seams.clock,
                metrics=metrics,
                on_bug=bugs.append,
                sink=events.append,
            ),
            metrics=metrics,
            nursery=nursery,
        )
        followed = InitialFetchState(
            topic_id=b"t" * 16, leader=it.broker, current_leader_epoch=0, init_offset=0
        )
        manager.add_fetcher_for_partitions({T0: followed})
        await seams.clock.sleep(4.5)
        (said,) = [each for each in events if isinstance(each, FetchResponseUnusable)]
        assert said.leader == it.broker.id
        assert re.search(cause, said.cause)
        assert sentence(said).startswith("cannot use what b1 answers to its fetch: ")
        assert len(it.requests) == len(it.connections) == 5, "one in each second"
        assert (here.log_end_offset, manager.failed) == (0, set())
        it.cuts_answers, it.answers_in = False, None
        await seams.clock.sleep(2)
        assert here.records == there.records
        assert len(it.connections) == 6
        await manager.close_all()
        nursery.cancel_scope.cancel()
    assert not bugs
