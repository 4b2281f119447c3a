"""The state of a copy beside its logs: `mirror.json` in its directory, which people can read.

    DIR/mirror.json           the source cluster, and its state when it last answered
    DIR/broker-1/log/         the copy: where broker 1 of a cluster of ours would have it
    DIR/controller/log/       the metadata log, if the copy has been served or promoted

Rule 1: the logs alone say where to go on. This file is what a promotion needs if the source is
gone: the topics' configurations, their leader epochs, and what had not been copied yet.

Rule 2: the file exists before the first log. A directory that holds logs and no such file is not a
copy, and is left alone; so is a copy that has been promoted.

Rule 3: it is written when the source's metadata changes, and every few seconds.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import attrs

from replication.errors import UnderstudyError
from replication.metadata.rules.image import MetadataImage
from replication.mirror.source import MirrorSource
from replication.net.seams import Seams
from storage.attributes import define, frozen
from storage.checkpoint import read_file, replace_file, uuid_bytes, uuid_text
from storage.errors import CheckpointError
from storage.filesystem import FileSystem, make_lasting_directory
from storage.manager.log_directory import partition_of
from storage.types import LeaderEpoch, Offset, TopicId, TopicPartition

STATE_FILE = "mirror.json"
STATE_BYTES = 256 << 20  # the largest file that is read: a million partitions
LOG_DIRECTORY = "broker-1/log"
CONTROLLER_DIRECTORY = "controller/log"
PAUSE_SECONDS: Final = 5.0
_VERSION = 1


class MirrorError(UnderstudyError):
    """A source and a copy that do not belong together."""


class CopyStateError(MirrorError):
    """A `mirror.json` that is missing or cannot be read."""


@frozen(kw_only=True)
class PartitionProgress:
    """The progress of the copy of one partition."""

    topic_partition: TopicPartition
    leader: int | None
    """The leader at the source; None if it is not known, or the topic is gone."""
    leader_epoch: LeaderEpoch
    log_start_offset: Offset
    log_end_offset: Offset
    lag: int | None
    """The committed records that the copy lacks; None before the source has answered."""
    trouble: str | None = None
    """The reason why it is not followed now."""

    @property
    def source_end(self) -> Offset | None:
        """The source's high watermark when it last answered."""
        return None if self.lag is None else self.log_end_offset + self.lag


@frozen(kw_only=True)
class CopiedPartition:
    """The state of one partition when the source last answered."""

    leader_epoch: LeaderEpoch
    """The leader epoch at the source."""
    log_end_offset: Offset
    """The log end offset of the copy."""
    source_end: Offset | None
    """The high watermark at the source; None if it had not answered yet."""


@frozen(kw_only=True)
class CopiedTopic:
    """The state of one topic when the source last answered."""

    topic_id: TopicId
    configs: Mapping[str, str]
    """The topic's own configuration at the source."""
    partitions: Mapping[int, CopiedPartition]


@frozen(kw_only=True)
class CopyState:
    """The content of `mirror.json`."""

    cluster_id: str
    bootstrap_servers: str
    heard_ms: int
    """The wall clock time at which the source last answered."""
    promoted: bool = False
    topics: Mapping[str, CopiedTopic] = attrs.field(factory=dict)

    def partitions(self) -> dict[TopicPartition, CopiedPartition]:
        return {
            TopicPartition(name, number): state
            for name, topic in sorted(self.topics.items())
            for number, state in sorted(topic.partitions.items())
        }

    def to_json(self) -> bytes:
        topics = {
            name: {
                "topic_id": uuid_text(topic.topic_id),
                "configs": dict(topic.configs),
                "partitions": {
                    str(number): attrs.asdict(state) for number, state in topic.partitions.items()
                },
            }
            for name, topic in self.topics.items()
        }
        values = attrs.asdict(self, recurse=False) | {"version": _VERSION, "topics": topics}
        return json.dumps(values, indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> "CopyState":
        values = json.loads(data)
        if values.pop("version") != _VERSION:
            raise ValueError("written by a newer version")
        topics = {name: _topic(each) for name, each in values.pop("topics").items()}
        return cls(topics=topics, **values)


def _topic(values: Mapping[str, Any]) -> CopiedTopic:
    topic_id = uuid_bytes(values["topic_id"])
    if topic_id is None:
        raise ValueError(f"{values['topic_id']} is no topic id")
    return CopiedTopic(
        topic_id=topic_id,
        configs=values["configs"],
        partitions={
            int(number): CopiedPartition(**each) for number, each in values["partitions"].items()
        },
    )


def read_state(file_system: FileSystem, directory: str) -> CopyState | None:
    """Read `mirror.json`; None if there is none, CopyStateError if it cannot be read."""
    path = f"{directory}/{STATE_FILE}"
    try:
        data = read_file(file_system, path, most=STATE_BYTES)
        return None if data is None else CopyState.from_json(data)
    except CheckpointError as error:
        raise CopyStateError(str(error)) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CopyStateError(f"{path} cannot be read: {error}") from error


def write_state(file_system: FileSystem, directory: str, state: CopyState) -> None:
    replace_file(file_system, f"{directory}/{STATE_FILE}", state.to_json())


@define(eq=False, kw_only=True)
class StateKeeper:
    """The state of one copy, and its file."""

    seams: Seams
    directory: str
    source: MirrorSource
    _state: CopyState | None = attrs.field(init=False, default=None)
    _written: CopyState | None = attrs.field(init=False, default=None)

    async def begin(self) -> str:
        """Write the first state; return the id of the source cluster.

        MirrorError if the directory is not a copy of this cluster.
        """
        cluster_id = self.source.view.cluster_id
        if cluster_id is None:
            raise MirrorError("the source does not say which cluster it is")
        found = await self.seams.offload(self._read)
        self._refuse(found, cluster_id)
        servers = ",".join(
            f"{each.host}:{each.port}" for each in self.source.config.bootstrap_servers
        )
        self._state = CopyState(
            cluster_id=cluster_id,
            bootstrap_servers=servers,
            heard_ms=self.seams.clock.wall_ms(),
            topics={} if found is None else found.topics,
        )
        await self._write()
        return cluster_id

    def _read(self) -> CopyState | None:
        make_lasting_directory(self.seams.file_system, self.directory)
        return read_state(self.seams.file_system, self.directory)

    def _refuse(self, found: CopyState | None, cluster_id: str) -> None:
        if found is None:
            logs = f"{self.directory}/{LOG_DIRECTORY}"
            files = self.seams.file_system
            names = files.list_directory(logs) if files.is_directory(logs) else []
            if any(partition_of(name) is not None for name in names):
                raise MirrorError(
                    f"{logs} holds logs, and there is no {STATE_FILE}: it is not a copy"
                )
        elif found.promoted:
            raise MirrorError(
                f"{self.directory} was promoted: it is a cluster of its own, and follows no other"
            )
        elif found.cluster_id != cluster_id:
            raise MirrorError(
                f"{self.directory} holds a copy of cluster {found.cluster_id}, and the source is"
                f" cluster {cluster_id}"
            )

    async def note_image(self, image: MetadataImage, progress: Sequence[PartitionProgress]) -> None:
        """Write the state after new metadata of the source was applied."""
        assert self._state is not None, "begun first"
        known = self._state.topics
        seen = [name for name, topic in image.topics.items() if topic.partitions]
        new = [
            name
            for name in seen
            if name not in known or known[name].topic_id != image.topics[name].topic_id
        ]
        configs = await self.source.topic_configs(new)
        topics = dict(known)
        for name in seen:
            if name in new:
                topic_id = image.topics[name].topic_id
                topics[name] = CopiedTopic(
                    topic_id=topic_id, configs=configs.get(name, {}), partitions={}
                )
        self._state = attrs.evolve(self._state, topics=topics, heard_ms=self.seams.clock.wall_ms())
        await self.write(progress)

    def topic_ids(self) -> dict[str, TopicId]:
        """Return the ids of all copied topics, by name."""
        assert self._state is not None, "begun first"
        return {name: topic.topic_id for name, topic in self._state.topics.items()}

    async def run(self, progress: Callable[[], Sequence[PartitionProgress]]) -> None:
        while True:
            await self.seams.clock.sleep(PAUSE_SECONDS)
            await self.write(progress())

    async def write(self, progress: Sequence[PartitionProgress]) -> None:
        """Write the progress of the copy, unless it is written already."""
        assert self._state is not None, "begun first"
        by_partition = {each.topic_partition: each for each in progress}
        topics = {
            name: attrs.evolve(topic, partitions=_partitions(name, topic, by_partition))
            for name, topic in self._state.topics.items()
        }
        self._state = attrs.evolve(self._state, topics=topics)
        await self._write()

    async def _write(self) -> None:
        state = self._state
        assert state is not None, "begun first"
        if self._written is None or attrs.evolve(self._written, heard_ms=state.heard_ms) != state:
            await self.seams.offload(
                partial(write_state, self.seams.file_system, self.directory, state)
            )
            self._written = state


def _partitions(
    name: str, topic: CopiedTopic, progress: dict[TopicPartition, PartitionProgress]
) -> dict[int, CopiedPartition]:
    found = dict(topic.partitions)
    for (topic_name, number), each in progress.items():
        if topic_name != name:
            continue
        before = found.get(number)
        known = None if before is None else before.source_end
        found[number] = CopiedPartition(
            leader_epoch=max(each.leader_epoch, -1 if before is None else before.leader_epoch),
            log_end_offset=each.log_end_offset,
            source_end=known if each.source_end is None else each.source_end,
        )
    return dict(sorted(found.items()))
