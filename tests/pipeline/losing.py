"""A topic that loses what queries are to read: at a broker, or in a log directory.

Both lose the same: retention, a topic that is deleted, one that is made again.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import attrs

from replication.cluster.cluster import Cluster
from replication.testing import ThreadedCluster
from storage.checkpoint import uuid_text
from storage.types import Offset, TopicId, TopicPartition
from tests.pipeline.logs import TOPIC_ID, segments, write_records


class Topic(Protocol):
    """A topic of one partition that loses records."""

    name: str

    @property
    def options(self) -> Mapping[str, str]:
        """How it is read."""

    @property
    def topic_id(self) -> str: ...

    def add(self, count: int) -> None:
        """So many records."""

    def age_out(self) -> Offset:
        """All but the last ones go; where the log begins now."""

    def delete(self) -> None: ...

    def make_again(self, count: int) -> None:
        """Deleted, and there again under the same name, with so many records."""


@attrs.define
class InDirectory:
    """What a broker that has stopped left, with files that go."""

    directory: Path
    name: str
    _id: TopicId = TOPIC_ID

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.name, 0)

    @property
    def options(self) -> Mapping[str, str]:
        # Nobody writes high watermarks down here.
        whence = {"path": str(self.directory), "stopAtHighWatermark": "false"}
        return {**whence, "subscribe": self.name}

    @property
    def topic_id(self) -> str:
        return uuid_text(self._id)

    def add(self, count: int) -> None:
        write_records(self.directory, count, tp=self.tp, topic_id=self._id)

    def age_out(self) -> Offset:
        *old, last = segments(self.directory, self.tp)
        for path in old:
            path.unlink()
        return int(last.stem)

    def delete(self) -> None:
        shutil.rmtree(self.directory / str(self.tp))

    def make_again(self, count: int) -> None:
        self.delete()
        self._id = bytes(reversed(self._id))
        self.add(count)


@attrs.define
class AtBroker:
    """The logs of a running broker, which deletes records on request."""

    cluster: ThreadedCluster
    name: str
    _end: Offset = 0

    def __attrs_post_init__(self) -> None:
        self.cluster.create_topic(self.name)

    @property
    def options(self) -> Mapping[str, str]:
        return {
            "kafka.bootstrap.servers": self.cluster.bootstrap_servers,
            "subscribe": self.name,
        }

    @property
    def topic_id(self) -> str:
        async def found(cluster: Cluster) -> TopicId | None:
            return cluster.image.topic_id(self.name)

        known = self.cluster.with_cluster(found)
        assert known is not None, f"{self.name} is there"
        return uuid_text(known)

    def add(self, count: int) -> None:
        async def produced(cluster: Cluster) -> None:
            async with cluster.producer() as producer:
                for _ in range(count):
                    await producer.send(self.name, b"value", partition=0)

        self.cluster.with_cluster(produced)
        self._end += count

    def age_out(self) -> Offset:
        async def deleted(cluster: Cluster) -> Offset:
            tp = TopicPartition(self.name, 0)
            async with cluster.admin() as admin:
                return (await admin.delete_records({tp: self._end - 10}))[tp]

        return self.cluster.with_cluster(deleted)

    def delete(self) -> None:
        self.cluster.delete_topic(self.name)

    def make_again(self, count: int) -> None:
        self.delete()
        self.cluster.create_topic(self.name)
        self._end = 0
        self.add(count)
