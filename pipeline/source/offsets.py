"""Offsets as Spark's Kafka source writes them: in options, and in checkpoints.

    {"orders": {"0": 23, "1": -2}, "returns": {"0": -1}}        -2 the earliest, -1 the latest

    {"@topicIds": {"orders": "Xk0b3rQ9T7yP2m1n4o5p6g"},         in a checkpoint: the topics' ids,
     "orders": {"0": 23, "1": 7}}                               and offsets (KIP-516)

Rule 1: equal positions have equal text, with topics and partitions in order: Spark compares
offsets as text.

Rule 2: no topic can be called `@topicIds`. The text of a checkpoint can be given as an option.

(JsonUtils in Spark's Kafka source.)
"""

import json
from collections.abc import Mapping
from typing import Any, Final

import attrs

from pipeline.source.errors import OptionError
from replication.wire.list_offsets import EARLIEST, LATEST
from storage.types import Offset, TopicPartition

_TOPIC_IDS: Final = "@topicIds"

Offsets = Mapping[TopicPartition, Offset]


@attrs.frozen
class Position:
    """The offsets that a stream has reached, and the ids of topics as far as they are known."""

    offsets: Offsets
    topic_ids: Mapping[str, str] = attrs.field(factory=dict)

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Return the position as a checkpoint keeps it; equal positions give equal text."""
        found: dict[str, dict[str, Any]] = {}
        if self.topic_ids:
            found[_TOPIC_IDS] = dict(sorted(self.topic_ids.items()))
        for (topic, partition), offset in sorted(self.offsets.items()):
            found.setdefault(topic, {})[str(partition)] = offset
        return found

    @classmethod
    def from_json(cls, kept: Mapping[str, Mapping[str, Any]]) -> "Position":
        return cls(
            {
                TopicPartition(topic, int(partition)): int(offset)
                for topic, partitions in kept.items()
                if topic != _TOPIC_IDS
                for partition, offset in partitions.items()
            },
            dict(kept.get(_TOPIC_IDS, {})),
        )


def parse_numbers(option: str, text: str) -> dict[TopicPartition, int]:
    """Return the numbers of partitions in the JSON `text` of an option."""
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _parse(option, text).items():
        if topic == _TOPIC_IDS:
            continue
        if not isinstance(partitions, dict):
            raise _not_this(option, text, '{"topic": {"0": 23}}')
        for partition, number in partitions.items():
            if not partition.isdecimal() or type(number) is not int:
                raise _not_this(option, text, '{"topic": {"0": 23}}')
            found[TopicPartition(topic, int(partition))] = number
    return found


def parse_partitions(option: str, text: str) -> tuple[TopicPartition, ...]:
    """Return the partitions that `assign` names: `{"topic": [0, 1]}`."""
    found = set()
    for topic, partitions in _parse(option, text).items():
        if not isinstance(partitions, list) or any(
            type(each) is not int or each < 0 for each in partitions
        ):
            raise _not_this(option, text, '{"topic": [0, 1]}')
        found |= {TopicPartition(topic, each) for each in partitions}
    return tuple(sorted(found))


def _parse(option: str, text: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise OptionError(f"option {option}: {text!r} is no JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise OptionError(f"option {option}: {text!r} is no JSON object")
    return parsed


def _not_this(option: str, text: str, example: str) -> OptionError:
    return OptionError(f"option {option}: {text!r} is not of the form {example}")


def check_same_partitions(option: str, given: Offsets, there: set[TopicPartition]) -> None:
    """Raise OptionError unless the option names exactly the partitions that are read, as in Spark."""
    missing, unknown = sorted(there - given.keys()), sorted(given.keys() - there)
    if missing or unknown:
        said = [f"does not name {', '.join(map(str, missing))}"] if missing else []
        said += [f"names {', '.join(map(str, unknown))}, not to be read"] if unknown else []
        raise OptionError(
            f"option {option} {' and '.join(said)}: name all partitions;"
            f" {LATEST} is the latest offset, {EARLIEST} the earliest"
        )
