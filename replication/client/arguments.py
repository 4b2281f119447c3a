"""Checks of arguments that would otherwise fail elsewhere, or be taken for something else.

A text would be taken for a list of its letters, and a number for the name of a topic.
"""

from collections.abc import Iterable

from replication.client.errors import InvalidTopicError
from storage.batch.records import Header
from storage.types import TopicPartition


def list_of_names(given: Iterable[str]) -> list[str]:
    """Return the names as a list; TypeError for a single name, or for what is no text."""
    if isinstance(given, str):
        raise TypeError(f"{given!r} is one name: give a list, [{given!r}]")
    names = list(given)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{name!r} is not a name")
    return names


def as_partitions(given: Iterable[TopicPartition | tuple[str, int]] | str) -> list[TopicPartition]:
    """Return partitions, which may be given as pairs of a topic and a number; TypeError otherwise."""
    if isinstance(given, str):
        raise TypeError(f"{given!r} is not a list of partitions: give [({given!r}, 0)]")
    return [as_partition(each) for each in given]


def as_partition(given: TopicPartition | tuple[str, int]) -> TopicPartition:
    """Return a partition, which may be given as a pair; TypeError otherwise."""
    match given:
        case (str(), int()):
            return TopicPartition(*given)
    raise TypeError(f"{given!r} is not a partition: give a topic and a number, ('orders', 0)")


def as_headers(given: Iterable[Header]) -> tuple[Header, ...]:
    """Return the headers as a tuple; TypeError unless each is a pair of a name and bytes."""
    headers = tuple(given)
    for each in headers:
        match each:
            case (str(), bytes() | bytearray() | memoryview() | None):
                pass
            case _:
                raise TypeError(
                    f"{each!r} is not a header: give a name and bytes, ('name', b'value')"
                )
    return headers


def as_topic(given: str) -> str:
    """Return the name of a topic; TypeError for what is no text, InvalidTopicError if it is empty."""
    if not isinstance(given, str):
        raise TypeError(f"{given!r} is not the name of a topic")
    if not given:
        raise InvalidTopicError([given])
    return given


def as_timestamp(given: int) -> int:
    """Return a timestamp in milliseconds; TypeError for what is no whole number."""
    if not isinstance(given, int):
        raise TypeError(f"timestamp_ms={given!r}: expected a whole number")
    return given
