"""What a program gives a client, where it would otherwise be taken for something else, or fail
somewhere else: a text for a list of its letters, a topic that is a number.
"""

from collections.abc import Iterable

from replication.client.errors import InvalidTopicError
from storage.batch.records import Header
from storage.types import TopicPartition


def list_of_names(given: Iterable[str]) -> list[str]:
    """TypeError where that is one name, or where something is none."""
    if isinstance(given, str):
        raise TypeError(f"{given!r} is one name: give a list, [{given!r}]")
    names = list(given)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{name!r} is no name")
    return names


def as_partitions(given: Iterable[TopicPartition | tuple[str, int]] | str) -> list[TopicPartition]:
    """Pairs of a topic and a number are partitions too; TypeError of what is neither."""
    if isinstance(given, str):
        raise TypeError(f"{given!r} is no list of partitions: give [({given!r}, 0)]")
    return [as_partition(each) for each in given]


def as_partition(given: TopicPartition | tuple[str, int]) -> TopicPartition:
    """The same of one."""
    match given:
        case (str(), int()):
            return TopicPartition(*given)
    raise TypeError(f"{given!r} is no partition: give a topic and a number, ('orders', 0)")


def as_headers(given: Iterable[Header]) -> tuple[Header, ...]:
    """TypeError of what is no pair of a name and bytes."""
    headers = tuple(given)
    for each in headers:
        match each:
            case (str(), bytes() | bytearray() | memoryview() | None):
                pass
            case _:
                raise TypeError(f"{each!r} is no header: give a name and bytes, ('name', b'value')")
    return headers


def as_topic(given: str) -> str:
    """TypeError of what is no text, InvalidTopicError of an empty one: no broker answers for that."""
    if not isinstance(given, str):
        raise TypeError(f"{given!r} is no name of a topic")
    if not given:
        raise InvalidTopicError([given])
    return given


def as_timestamp(given: int) -> int:
    """TypeError of what is no whole number of milliseconds."""
    if not isinstance(given, int):
        raise TypeError(f"timestamp_ms={given!r}: expected a whole number")
    return given
