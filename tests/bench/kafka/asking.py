"""One request to a broker over a blocking socket, again until it answers as wished.

No client's patience is in what is measured: a broker that is not there yet, or does not yet
know what it leads, is asked again after some milliseconds.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka.admin import AdminClient

from replication.cli.probe import fetch_metadata
from replication.errors import ErrorCode
from replication.wire.apis import ApiKey
from replication.wire.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from replication.wire.frames import decode_response, encode_request
from tests.bench.acks import Asker, acknowledged, produce_frame
from tests.bench.kafka.sides import BROKERS, RivalCluster

AGAIN_SECONDS = 0.005
PATIENCE_SECONDS = 180.0
CREATE_VERSION = 5

Address = tuple[str, int]


def addresses(bootstrap_servers: str) -> list[Address]:
    return [
        (host, int(port))
        for host, port in (each.split(":") for each in bootstrap_servers.split(","))
    ]


def create_topic(address: Address, name: str, replicas: list[list[int]]) -> None:
    """Create a topic with these replicas, as soon as the cluster can."""
    assignments = [
        CreatableReplicaAssignment(partition_index=number, broker_ids=brokers)
        for number, brokers in enumerate(replicas)
    ]
    topic = CreatableTopic(
        name=name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=[]
    )
    parts = encode_request(
        CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False),
        version=CREATE_VERSION,
        correlation_id=1,
        client_id="bench",
    )
    frame = b"".join(
        bytes(part) for part in parts if isinstance(part, bytes | bytearray | memoryview)
    )
    _until(_created, [address], frame)


def _created(answer: bytes) -> bool:
    _, response = decode_response(
        memoryview(answer), api_key=ApiKey.CREATE_TOPICS, version=CREATE_VERSION
    )
    assert isinstance(response, CreateTopicsResponse), "an answer decodes as what was asked"
    return response.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


def write(brokers: Iterable[Address], topic: str) -> None:
    """One record with acks=all, acknowledged by whichever of them leads partition 0."""
    _until(acknowledged, brokers, produce_frame(topic))


def make_topic(clusters: Mapping[str, RivalCluster], name: str, replicas: list[list[int]]) -> None:
    """Create a topic at each cluster, with a first record in it."""
    for cluster in clusters.values():
        brokers = addresses(cluster.bootstrap_servers)
        create_topic(brokers[0], name, replicas)
        write(brokers, name)


def delete_topic(cluster: RivalCluster, name: str) -> None:
    """Delete a topic, and wait until none of its files is left; RuntimeError if some stay."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.delete_topics([name])[name].result(30)
    began = time.monotonic()
    while left := [
        str(path) for broker in BROKERS for path in cluster.log_dir(broker).glob(f"{name}-*")
    ]:
        if time.monotonic() - began > PATIENCE_SECONDS:
            raise RuntimeError(f"{name} is deleted, and {left} are left")
        time.sleep(AGAIN_SECONDS)  # files that other processes remove


def _until(good: Callable[[bytes], bool], brokers: Iterable[Address], frame: bytes) -> None:
    began = time.monotonic()
    for host, port in itertools.cycle(brokers):
        last: object = None
        try:
            with Asker(host, port, frame) as asker:
                last = asker.ask()
                if good(last):
                    return
        except OSError as error:
            last = error  # not there yet, or no more
        if time.monotonic() - began > PATIENCE_SECONDS:
            raise RuntimeError(f"{host}:{port} after {PATIENCE_SECONDS:g} s: {last!r}")
        time.sleep(AGAIN_SECONDS)  # a real process that starts


def leader_of(address: Address, topic: str) -> int:
    """Return the leader of partition 0."""
    for each in fetch_metadata(*address).topics:
        if each.name == topic:
            return each.partitions[0].leader_id
    raise RuntimeError(f"no topic {topic}")


def wait_until_in_sync(address: Address, topic: str, replicas: set[int]) -> None:
    """Every partition of it, with exactly these in its ISR."""
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE_SECONDS:
        for each in fetch_metadata(*address).topics:
            if each.name == topic and all(
                set(partition.isr_nodes) == replicas for partition in each.partitions
            ):
                return
        time.sleep(10 * AGAIN_SECONDS)  # real followers that catch up
    raise RuntimeError(f"{topic} is not in sync")
