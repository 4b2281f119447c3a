"""Golden journals: one file per version of the events, kept for ever.

`journal_v1.msgpack` holds one record of each event at its first version, and
`journal_v1.jsonl` what is in it. An event that is new, or has a new version, is added by

    python -m tests.replication.observe.golden

which appends and never rewrites: a journal that was once written must stay readable.
"""

import json
from pathlib import Path
from typing import Any, get_origin

import attrs

from replication.events import EVENTS, Event
from replication.observe.journal import encode_entry
from storage.types import TopicPartition

HERE = Path(__file__).parent


def packed(version: int) -> Path:
    return HERE / f"journal_v{version}.msgpack"


def described(version: int) -> Path:
    return HERE / f"journal_v{version}.jsonl"


def versions() -> list[int]:
    return sorted(int(path.stem.removeprefix("journal_v")) for path in HERE.glob("*.jsonl"))


def descriptions(version: int) -> list[dict[str, Any]]:
    if not described(version).exists():
        return []
    return [json.loads(line) for line in described(version).read_text().splitlines()]


def sample(kind: type[Event]) -> Event:
    """Return an event with a different value in every field."""
    return kind(
        **{
            field.name: _value(field.type, 7 + i, field.name)
            for i, field in enumerate(attrs.fields(kind))
        }
    )


def _value(kind: Any, number: int, name: str) -> Any:
    if kind is TopicPartition:
        return TopicPartition("orders", number)
    if get_origin(kind) is tuple:
        return (number, number + 1)
    return {int: number, str: f"some {name}", bool: True, bytes: bytes(range(16))}[kind]


def plain(event: Event) -> dict[str, Any]:
    """Return the fields in the form of JSON."""
    fields = attrs.asdict(event, recurse=False)
    return {
        name: value.hex()
        if isinstance(value, bytes)
        else list(value)
        if isinstance(value, tuple)
        else value
        for name, value in fields.items()
    }


def missing() -> list[type[Event]]:
    """Return the events without a golden record of their present version."""
    return [
        kind
        for kind in EVENTS
        if kind.name not in {line["name"] for line in descriptions(kind.version)}
    ]


def add_missing() -> None:
    for i, kind in enumerate(missing()):
        event = sample(kind)
        with packed(kind.version).open("ab") as file:
            file.write(encode_entry(event, at_ms=1_700_000_000_000 + i, broker=1 + i % 3))
        line = {"name": kind.name, "at_ms": 1_700_000_000_000 + i, "broker": 1 + i % 3}
        with described(kind.version).open("a") as text:
            text.write(json.dumps(line | {"fields": plain(event)}) + "\n")


if __name__ == "__main__":
    add_missing()
