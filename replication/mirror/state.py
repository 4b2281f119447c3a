"""What is known of a copy beside its logs; `mirror.json` in its directory, for people to read too.

    DIR/mirror.json           whose copy it is, what the source had when it was last heard
    DIR/broker-1/log/         the copy: where broker 1 of a cluster of ours would have it
    DIR/controller/log/       once it has been served, or promoted: what that cluster knows

Rule 1: where to go on is in the logs alone. This is what a promotion needs when the source is
gone: what the topics were set to, which epochs there had been, what had not been copied yet.

Rule 2: it is there before the first log is. A directory that holds logs and no such file is
somebody else's, and is left alone; so is a copy that has been promoted.
"""

import json
from collections.abc import Mapping
from typing import Any

import attrs

from replication.mirror.errors import MirrorError
from storage.checkpoint import read_file, replace_file, uuid_bytes, uuid_text
from storage.errors import CheckpointError
from storage.filesystem import FileSystem
from storage.types import LeaderEpoch, Offset, TopicId, TopicPartition

STATE_FILE = "mirror.json"
STATE_BYTES = 256 << 20  # the most that is read of it: a million partitions
LOG_DIRECTORY = "broker-1/log"
CONTROLLER_DIRECTORY = "controller/log"
_VERSION = 1


class CopyStateError(MirrorError):
    """A `mirror.json` that cannot be read, or is not there."""


@attrs.frozen(kw_only=True)
class PartitionState:
    leader_epoch: LeaderEpoch
    """The source's, when it was last heard."""
    log_end_offset: Offset
    """The copy's, then."""
    source_end: Offset | None
    """The source's high watermark, then; None where it had not answered yet."""


@attrs.frozen(kw_only=True)
class TopicState:
    topic_id: TopicId
    configs: Mapping[str, str]
    """What was set for it at the source."""
    partitions: Mapping[int, PartitionState]


@attrs.frozen(kw_only=True)
class CopyState:
    cluster_id: str
    bootstrap_servers: str
    heard_ms: int
    """By the wall clock: when the source last told news."""
    promoted: bool = False
    topics: Mapping[str, TopicState] = attrs.field(factory=dict)

    def partitions(self) -> dict[TopicPartition, PartitionState]:
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


def _topic(values: Mapping[str, Any]) -> TopicState:
    topic_id = uuid_bytes(values["topic_id"])
    if topic_id is None:
        raise ValueError(f"{values['topic_id']} is no topic id")
    return TopicState(
        topic_id=topic_id,
        configs=values["configs"],
        partitions={
            int(number): PartitionState(**each) for number, each in values["partitions"].items()
        },
    )


def read_state(file_system: FileSystem, directory: str) -> CopyState | None:
    """None where there is none."""
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
