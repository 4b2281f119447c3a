"""The same consumer over real sockets: every codec, and a leader killed while it is read."""

import pytest

from replication import open_cluster
from replication.client import Admin, Consumer, Producer
from replication.client.admin import NewTopic
from replication.net.clock import TrioClock
from storage.types import TopicPartition

T0 = TopicPartition("t", 0)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
QUICK = {"broker.heartbeat.interval.ms": "200", "broker.session.timeout.ms": "1500"}


@pytest.mark.slow
async def test_every_codec_and_a_killed_leader_over_tcp() -> None:
    async with open_cluster(brokers=3, properties=QUICK) as cluster:
        servers = cluster.bootstrap_servers
        async with Admin(servers) as admin:
            await admin.create_topics([NewTopic(name="t", partitions=1, replication_factor=3)])
        expected = []
        for codec in CODECS:
            async with Producer[bytes, bytes](servers, compression_type=codec) as producer:
                for each in range(20):
                    value = f"{codec} {each} {'x' * 100}".encode()
                    expected.append((await producer.send("t", value, key=codec.encode())).offset)
        assert expected == list(range(100))
        async with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([T0])
            with TrioClock().move_on_after(60):
                read = [await consumer.getone() for _ in range(70)]
                leader = cluster.leader("t", 0)
                assert leader is not None
                await cluster.kill_broker(leader)
                async with Producer[bytes, bytes](servers, acks="all") as producer:
                    await producer.send("t", b"after")
                while len(read) < 101:
                    read += await consumer.poll(timeout_ms=1000)
            assert [record.offset for record in read] == list(range(101))
            assert [record.key for record in read[:100:20]] == [each.encode() for each in CODECS]
            assert read[-1].value == b"after"
            assert await consumer.end_offsets([T0]) == {T0: 101}
            await the_same_as_columns(consumer, [record.value for record in read])


async def the_same_as_columns(consumer: Consumer, expected: list[bytes]) -> None:
    consumer.seek(T0, 0)
    with pytest.raises(KeyError, match="no column 'valeu'"):
        await consumer.poll_arrow(columns=["offset", "valeu"])
    offsets: list[int] = []
    found: list[bytes] = []
    with TrioClock().move_on_after(60):
        while len(found) < len(expected):
            for tp, table in (await consumer.poll_arrow(1000, columns=["offset", "value"])).items():
                assert tp == T0
                assert table.column_names == ["offset", "value"]
                offsets += table["offset"].to_pylist()
                found += table["value"].to_pylist()
    assert found == expected
    assert offsets == list(range(len(expected)))
    assert await consumer.position(T0) == len(expected)
