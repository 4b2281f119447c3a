"""kcat, the tool that people look into a Kafka with: metadata, produce, consume, offsets."""

import json
import shutil
from typing import Any

import pytest

from tests.clients.sample import cluster_for_clients, in_thread
from tests.interop.card.kcat import kcat

pytestmark = [
    pytest.mark.client,
    pytest.mark.skipif(
        shutil.which("kcat") is None, reason="kcat is not installed: apt-get install kcat"
    ),
]

LINES = [f"key {index}:value {index} of many" for index in range(100)]


def read_from_the_beginning(bootstrap_servers: str, topic: str, *arguments: str) -> list[Any]:
    read = kcat(bootstrap_servers, "-C", "-t", topic, "-o", "beginning", "-e", "-J", *arguments)
    return [json.loads(line) for line in read.splitlines()]


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
