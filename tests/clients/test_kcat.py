"""kcat, the tool that people look into a Kafka with: metadata, produce, consume, offsets."""

import json
import shutil
import subprocess
from typing import Any

import pytest

from storage.batch.compression import Codec
from tests.clients.sample import CODECS, cluster_for_clients, in_thread, stored_codecs, until

pytestmark = [
    pytest.mark.client,
    pytest.mark.skipif(
        shutil.which("kcat") is None, reason="kcat is not installed: apt-get install kcat"
    ),
]

TIMEOUT = 60
LINES = [f"key {index}:value {index} of many" for index in range(100)]


def kcat(bootstrap_servers: str, *arguments: str, given: str = "") -> str:
    done = subprocess.run(
        ["kcat", "-b", bootstrap_servers, *arguments],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_from_the_beginning(bootstrap_servers: str, topic: str, *arguments: str) -> list[Any]:
    read = kcat(bootstrap_servers, "-C", "-t", topic, "-o", "beginning", "-e", "-J", *arguments)
    return [json.loads(line) for line in read.splitlines()]


async def test_metadata_is_listed() -> None:
    def look(bootstrap_servers: str) -> None:
        kcat(bootstrap_servers, "-P", "-t", "t", given="x")
        listed: dict[str, Any] = {}

        def is_told() -> bool:
            """By whoever is asked, who may not have heard of the topic yet."""
            listed.update(json.loads(kcat(bootstrap_servers, "-L", "-J")))
            return bool(listed["topics"])

        until(is_told, lambda: listed)
        addresses = [broker["name"] for broker in listed["brokers"]]
        assert addresses == bootstrap_servers.split(",")
        (topic,) = listed["topics"]
        (partition,) = topic["partitions"]
        assert (topic["topic"], partition["partition"]) == ("t", 0)
        assert partition["leader"] in (1, 2, 3)
        for replicas in (partition["replicas"], partition["isrs"]):
            assert sorted(each["id"] for each in replicas) == [1, 2, 3]

    async with cluster_for_clients() as cluster:
        await in_thread(look, cluster.bootstrap_servers)


@pytest.mark.parametrize("codec", CODECS)
async def test_what_is_produced_is_consumed(codec: str) -> None:
    def produce_and_consume(bootstrap_servers: str) -> None:
        given = "".join(f"{line}\n" for line in LINES)
        arguments = ["-P", "-t", "t", "-K:", "-z", codec, "-H", "a=b", "-X", "acks=all"]
        kcat(bootstrap_servers, *arguments, given=given)
        read = read_from_the_beginning(bootstrap_servers, "t")
        assert [f"{each['key']}:{each['payload']}" for each in read] == LINES
        assert [each["offset"] for each in read] == list(range(len(LINES)))
        assert all(each["headers"] == ["a", "b"] for each in read)
        assert all(each["tstype"] == "create" for each in read)

    async with cluster_for_clients() as cluster:
        await in_thread(produce_and_consume, cluster.bootstrap_servers)
        # librdkafka sends a batch as it is where compression would make it longer.
        assert Codec[codec.upper()] in stored_codecs(cluster)


async def test_each_partition_is_read_alone_and_from_an_offset() -> None:
    def look(bootstrap_servers: str) -> None:
        for partition in range(3):
            given = f"first of {partition}\nsecond of {partition}\n"
            kcat(bootstrap_servers, "-P", "-t", "t", "-p", str(partition), given=given)
        for partition in range(3):
            arguments = ["-C", "-t", "t", "-p", str(partition), "-o", "1", "-c", "1"]
            assert kcat(bootstrap_servers, *arguments) == f"second of {partition}\n"
        assert len(read_from_the_beginning(bootstrap_servers, "t")) == 6

    async with cluster_for_clients(num_partitions="3") as cluster:
        await in_thread(look, cluster.bootstrap_servers)


async def test_nulls_are_nulls() -> None:
    def look(bootstrap_servers: str) -> None:
        kcat(bootstrap_servers, "-P", "-t", "t", "-K:", "-Z", given="gone:\n")
        (tombstone,) = read_from_the_beginning(bootstrap_servers, "t")
        assert (tombstone["key"], tombstone["payload"]) == ("gone", None)

    async with cluster_for_clients() as cluster:
        await in_thread(look, cluster.bootstrap_servers)


async def test_offsets_are_found_by_time() -> None:
    def look(bootstrap_servers: str) -> None:
        kcat(bootstrap_servers, "-P", "-t", "t", given="a\nb\nc\n")
        at = [each["ts"] for each in read_from_the_beginning(bootstrap_servers, "t")]
        asked = {"-2": 0, "-1": 3, "0": 0, str(at[-1]): at.index(at[-1]), str(at[-1] + 1): -1}
        for time, offset in asked.items():
            assert kcat(bootstrap_servers, "-Q", "-t", f"t:0:{time}") == f"t [0] offset {offset}\n"

    async with cluster_for_clients() as cluster:
        await in_thread(look, cluster.bootstrap_servers)
