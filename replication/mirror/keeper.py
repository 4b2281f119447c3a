"""The writer of `mirror.json`: when the source's metadata changes, and every few seconds."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import attrs

from replication.metadata.rules import MetadataImage
from replication.mirror.source import MirrorSource
from replication.mirror.state import (
    LOG_DIRECTORY,
    STATE_FILE,
    CopiedPartition,
    CopiedTopic,
    CopyState,
    MirrorError,
    PartitionProgress,
    read_state,
    write_state,
)
from replication.net.seams import Seams
from storage.filesystem import make_lasting_directory
from storage.manager.log_directory import partition_of
from storage.types import TopicId, TopicPartition

PAUSE_SECONDS: Final = 5.0


@attrs.define(eq=False, kw_only=True)
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
