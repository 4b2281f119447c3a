"""The state of a copy beside its logs: `mirror.json` in its directory, which people can read.

    DIR/mirror.json           the source cluster, and its state when it last answered
    DIR/broker-1/log/         the copy: where broker 1 of a cluster of ours would have it
    DIR/controller/log/       the metadata log, if the copy has been served or promoted

Rule 1: the logs alone say where to go on. This file is what a promotion needs if the source is
gone: the topics' configurations, their leader epochs, and what had not been copied yet.

Rule 2: the file exists before the first log. A directory that holds logs and no such file is not a
copy, and is left alone; so is a copy that has been promoted.
"""

import json
from collections.abc import Mapping
from typing import Any

import attrs

from replication.errors import UnderstudyError
from storage.checkpoint import read_file, replace_file, uuid_bytes, uuid_text
from storage.errors import CheckpointError
from storage.filesystem import FileSystem
from storage.types import LeaderEpoch, Offset, TopicId, TopicPartition

STATE_FILE = "mirror.json"
STATE_BYTES = 256 << 20  # the largest file that is read: a million partitions
LOG_DIRECTORY = "broker-1/log"
CONTROLLER_DIRECTORY = "controller/log"
_VERSION = 1


class MirrorError(UnderstudyError):
    """A source and a copy that do not belong together."""


class CopyStateError(MirrorError):
    """A `mirror.json` that is missing or cannot be read."""


@attrs.frozen(kw_only=True)
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


@attrs.frozen(kw_only=True)
class CopiedPartition:
    """The state of one partition when the source last answered."""

    leader_epoch: LeaderEpoch
    """The leader epoch at the source."""
    log_end_offset: Offset
    """The log end offset of the copy."""
    source_end: Offset | None
    """The high watermark at the source; None if it had not answered yet."""


@attrs.frozen(kw_only=True)
class CopiedTopic:
    """The state of one topic when the source last answered."""

    topic_id: TopicId
    configs: Mapping[str, str]
    """The topic's own configuration at the source."""
    partitions: Mapping[int, CopiedPartition]


@attrs.frozen(kw_only=True)
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
