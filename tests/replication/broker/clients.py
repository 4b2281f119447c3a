"""A client of few words, for clusters in tests: it speaks the wire and retries nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs

from replication.errors import ErrorCode
from replication.net.rpc import RpcClient
from replication.net.seams import Seams
from replication.wire.apis import api_of
from replication.wire.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from replication.wire.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from replication.wire.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from replication.wire.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from storage.batch.record_batch import walk
from storage.batch.records import Record, decode_batch, encode_batch
from storage.types import TopicId


@attrs.define
class Client:
    """Connects for each request; every broker is asked by its `host:port`."""

    seams: Seams
    timeout_ms: int = 30_000

    @asynccontextmanager
    async def connected(self, address: str) -> AsyncIterator[RpcClient]:
        """One connection, for several requests."""
        host, _, port = address.rpartition(":")
        client = await RpcClient.connect(
            self.seams.transport,
            host,
            int(port),
            client_id="test",
            clock=self.seams.clock,
            timeout_ms=self.timeout_ms,
        )
        try:
            yield client
        finally:
            client.close()

    async def ask(self, address: str, request: Any, *, version: int | None = None) -> Any:
        newest = api_of(type(request)).named_until
        async with self.connected(address) as client:
            return await client.call(
                request,
                version=newest if version is None else version,
                timeout_ms=self.timeout_ms,
            )

    async def create_topic(
        self, address: str, name: str, *, partitions: int = 1, replicas: int = 3, **configs: str
    ) -> TopicId:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            configs=[
                CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        response = await self.ask(address, CreateTopicsRequest(topics=[topic]))
        (result,) = response.topics
        assert result.error_code == ErrorCode.NONE, result
        topic_id: TopicId = result.topic_id
        return topic_id

    async def metadata(self, address: str, *topics: str, version: int = 12) -> MetadataResponse:
        wanted = [MetadataRequestTopic(name=topic) for topic in topics]
        request = MetadataRequest(topics=wanted or None, allow_auto_topic_creation=False)
        response = await self.ask(address, request, version=version)
        assert isinstance(response, MetadataResponse)
        return response

    async def produce(
        self, address: str, topic: str, *values: bytes, partition: int = 0, acks: int = -1
    ) -> PartitionProduceResponse:
        records = [
            Record(offset=-1, timestamp=1000 + index, key=None, value=value)
            for index, value in enumerate(values)
        ]
        data = PartitionProduceData(index=partition, records=encode_batch(records))
        request = ProduceRequest(
            acks=acks,
            timeout_ms=self.timeout_ms,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        response = await self.ask(address, request)
        answer = response.responses[0].partition_responses[0]
        assert isinstance(answer, PartitionProduceResponse)
        return answer

    async def fetch(
        self, address: str, topic_id: TopicId, *, partition: int = 0, offset: int = 0
    ) -> PartitionData:
        asked = FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        request = FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            topics=[FetchTopic(topic_id=topic_id, partitions=[asked])],
        )
        response = await self.ask(address, request)
        answer = response.responses[0].partitions[0]
        assert isinstance(answer, PartitionData)
        return answer

    async def read_all(self, address: str, topic_id: TopicId, *, partition: int = 0) -> list[bytes]:
        """Every committed value, from the first."""
        values: list[bytes] = []
        offset = 0
        while True:
            answer = await self.fetch(address, topic_id, partition=partition, offset=offset)
            assert answer.error_code == ErrorCode.NONE, answer
            assert isinstance(answer.records, memoryview | None)
            if not answer.records:
                return values
            for position, header in walk(answer.records):
                batch = answer.records[position : position + header.size]
                values += [
                    record.value or b"" for record in decode_batch(batch) if record.offset >= offset
                ]
                offset = header.next_offset
