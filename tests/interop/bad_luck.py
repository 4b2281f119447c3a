"""Nodes of a cluster are killed and frozen, one after another, each until all is in sync again."""

import random
import time
from collections.abc import Callable
from typing import Final

import attrs

from replication.cli.probe import fetch_metadata
from tests.interop.kafka import HOST, Kafka

PATIENCE_SECONDS: Final = 180.0


@attrs.define(eq=False)
class BadLuck:
    """Kills or freezes one node at a time, and waits until all replicas are in sync again."""

    kafka: Kafka
    chance: random.Random
    meanwhile: Callable[[], None]
    happened: list[str] = attrs.field(factory=list)

    def strike(self) -> None:
        node = self.chance.choice(self.kafka.node_ids)
        freezes = self.chance.random() < 0.4
        self.happened.append(f"{'freeze' if freezes else 'kill'} {node}")
        if freezes:
            self.kafka.freeze(node)
        else:
            self.kafka.kill(node)
        self.go_on(self.chance.uniform(0.5, 8.0))
        if freezes:
            self.kafka.thaw(node)
        else:
            self.kafka.spawn(node)
        self.wait_until_in_sync()
        self.go_on(self.chance.uniform(0.0, 3.0))

    def go_on(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.meanwhile()

    def wait_until_in_sync(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while short := out_of_sync(self.kafka):
            assert time.monotonic() < deadline, f"{short} after {self.happened}"
            self.meanwhile()


def out_of_sync(kafka: Kafka) -> dict[str, list[int]]:
    """Return the partitions that lack a leader or a replica, as any broker sees it, or what failed."""
    found: dict[str, list[int]] = {}
    for broker in kafka.broker_ids:
        host, port = kafka.address(broker).split(":")
        assert host == HOST
        try:
            metadata = fetch_metadata(host, int(port))
        except OSError as error:
            return {f"broker {broker}: {error}": []}
        for topic in metadata.topics:
            for each in topic.partitions:
                if len(each.isr_nodes) < len(each.replica_nodes) or each.leader_id < 0:
                    found[f"{topic.name}-{each.partition_index}"] = sorted(each.isr_nodes)
    return found
