"""How long a request takes through `understudy proxy`, beside the same request at the broker.

    direct    client ────────────> leader ──> followers
    proxied   client ──> proxy ──> leader ──> followers

Three brokers and the proxy are processes. One record of 100 bytes at a time with acks=all, and one
Metadata request, whose response the proxy decodes and writes anew. Batches of either way are taken in
turn, the one that begins alternates, and the percentiles are over all of a kind.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from replication.cli.isolated import IsolatedCluster
from replication.wire.frames import encode_request
from replication.wire.metadata import MetadataRequest
from tests.bench.acks import (
    TURNS,
    WARM_UP,
    Asker,
    acknowledged,
    create_topic,
    leader_address,
    percentile,
    produce_frame,
)
from tests.bench.figures import Figure
from tests.clients.proxied import proxy_process

REQUESTS: Final = 100
START_SECONDS: Final = 120.0


def run() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as scratch, ExitStack() as stack:
        cluster = stack.enter_context(IsolatedCluster(Path(scratch), brokers=3))
        cluster.wait_until_ready(START_SECONDS)
        create_topic(cluster.bootstrap_servers)
        proxy = stack.enter_context(proxy_process(cluster.bootstrap_servers))
        host, _, port = proxy.bootstrap_servers.split(",")[0].rpartition(":")
        for name, frame in (("acks=all", produce_frame()), ("Metadata", metadata_frame())):
            direct = stack.enter_context(Asker(*leader_address(cluster), frame))
            proxied = stack.enter_context(Asker(host, int(port), frame))
            if name == "acks=all":
                direct.wait_until(acknowledged)
            for asker in (proxied, direct):
                asker.times(WARM_UP)
            ours: list[float] = []
            floor: list[float] = []
            ways = [(proxied, ours), (direct, floor)]
            for _ in range(TURNS):
                for asker, taken in ways:
                    taken.extend(asker.times(REQUESTS))
                ways.reverse()
            for label, percent in (("p50", 50), ("p99", 99)):
                yield Figure(
                    f"{name} through a proxy, {label}",
                    percentile(ours, percent) * 1e6,
                    percentile(floor, percent) * 1e6,
                    "us",
                )


def metadata_frame() -> bytes:
    parts = encode_request(
        MetadataRequest(topics=None), version=12, correlation_id=1, client_id="bench"
    )
    return b"".join(bytes(part) for part in parts if isinstance(part, bytes | memoryview))
