"""The pages that are made from the code: configuration keys, events, metrics, the museum.

    python -m tests.docs.generated --write     after one of them was added or changed

They are kept beside the others, so that they read well where no site is built; a test compares
them with the code. What a key means is the line that its declaration has; of an event its
docstring, and of a field the comment behind it, or `FIELDS` where the name alone says it.
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, get_type_hints

import attrs

from replication import events
from replication.client.config import ClientConfig, keys_of
from replication.client.consumer import ConsumerConfig
from replication.client.producer import ProducerConfig
from replication.config.broker import BROKER_KEYS
from replication.config.dynamic import is_dynamic
from replication.config.keys import ConfigType, Spec
from replication.config.tls import RELOADABLE
from replication.config.topic import TOPIC_KEYS
from replication.events import Event
from tests.docs.metrics_page import metrics_lines
from tests.docs.museum_page import museum_lines

DOCS: Final = Path(__file__).parents[2] / "docs"
COMMAND: Final = "python -m tests.docs.generated --write"
_MADE: Final = f"<!-- made from the code by `{COMMAND}` -->"

FIELDS: Final = {
    "broker": "its id",
    "broker_epoch": "which of its lives",
    "bytes": "so many",
    "cause": "why",
    "client": "its `client.id`",
    "directory": "which one",
    "end_offset": "the first that is not meant any more",
    "error": "what it said, by its name",
    "first_dirty_offset": "the first that no cleaner had seen",
    "generation": "which agreement of the group",
    "group": "its id",
    "high_watermark": "everything below it is committed, as far as this node knows",
    "host": "where",
    "instance": "its `group.instance.id`",
    "isr": "the in-sync replicas, by broker id",
    "leader": "the leader's broker id",
    "leader_epoch": "leader epoch of the partition; -1 if it is not known",
    "log_end_offset": "the offset that the next record gets",
    "member": "its id in the group",
    "members": "those in the group",
    "partition": "which one",
    "partition_epoch": "which version of leader and ISR (KIP-497)",
    "partitions": "so many",
    "path": "which file or directory",
    "peer": "its address",
    "port": "where",
    "producer_epoch": "which of its lives",
    "producer_id": "its number",
    "recovery_point": "the log below it had been synced",
    "session_id": "its number",
    "topic": "its name",
    "topic_id": "tells it from another of that name (KIP-516)",
    "transactional_id": "whose it is",
}

_TYPES: Final = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.STRING: "text",
    ConfigType.INT: "whole number",
    ConfigType.SHORT: "whole number",
    ConfigType.LONG: "whole number",
    ConfigType.DOUBLE: "number",
    ConfigType.LIST: "list",
    ConfigType.PASSWORD: "secret",
}


# -- configuration


def configuration_page() -> str:
    shared = keys_of(ClientConfig)
    broker = {name: (spec, _of_a_broker(name, spec)) for name, spec in BROKER_KEYS.items()}
    topic = {
        name: (key.spec, f" Broker key: `{key.broker_key}`." if key.broker_key else "")
        for name, key in TOPIC_KEYS.items()
    }
    return _page(
        "Every configuration key",
        [
            "The keys have Kafka's names and Kafka's defaults; keys that only understudy has begin with `understudy.`.",
            "`docs/configuration.md` explains where a value comes from and lists the keys that are accepted without effect.",
            "A default of `-` means that the key is unset or empty.",
            "",
            "## Brokers and controllers",
            "",
            "A key marked *dynamic* can be changed while the broker runs, with IncrementalAlterConfigs or `kafka-configs.sh`.",
            "A key marked *dynamic for one listener* can be changed in that way with the prefix `listener.name.NAME.`.",
            "",
            *_key_table(broker),
            "",
            "## Topics",
            "",
            "A topic that does not set a key takes the value of the broker's key that is named with it.",
            "",
            *_key_table(topic),
            "",
            "## All clients",
            "",
            "In Python, write underscores for dots: `request_timeout_ms=5000`.",
            "",
            *_key_table(_plain(shared)),
            "",
            "## Producers",
            "",
            *_key_table(_plain(keys_of(ProducerConfig), without=shared)),
            "",
            "## Consumers",
            "",
            *_key_table(_plain(keys_of(ConsumerConfig), without=shared)),
        ],
    )


def _of_a_broker(name: str, spec: Spec) -> str:
    also = [f"`{synonym}`" for synonym in spec.synonyms]
    said = f" Other names: {', '.join(also)}." if also else ""
    if spec.topic_key is not None:
        said += f" Topic key: `{spec.topic_key}`."
    if name in RELOADABLE:
        said += " *dynamic for one listener*"
    return said + (" *dynamic*" if is_dynamic(name) else "")


def _plain(keys: Mapping[str, Spec], without: Iterable[str] = ()) -> Mapping[str, tuple[Spec, str]]:
    left_out = set(without)
    return {name: (spec, "") for name, spec in keys.items() if name not in left_out}


def _key_table(keys: Mapping[str, tuple[Spec, str]]) -> Iterator[str]:
    yield "| key | default | allowed | meaning |"
    yield "|---|---|---|---|"
    for name, (spec, more) in sorted(keys.items()):
        default = None if spec.default is None else spec.render(spec.default)
        shown = f"`{default}`" if default else "-"
        yield f"| `{name}` | {shown} | {_allowed(spec)} | {spec.doc}{more} |"


def _allowed(spec: Spec) -> str:
    """Return `Spec.expectation`, short enough for a table."""
    said = spec.expectation.removeprefix("a whole number ")
    if said in ("a text", "words") or re.match(r"of at least -\d{5,}", said):
        return _TYPES[spec.type]
    return re.sub(r"^of at least (\S+)", r"\1 or more", said).removeprefix("from ")


# -- events


def events_page() -> str:
    lines = [
        "An event is a typed, frozen value for a change of state.",
        "The human log, the journal (`docs/pipeline.md` reads it) and the simulator's checkers get the same values.",
        "The name of an event never changes; a new field has a default and increases the version.",
        "A journal has the reporting node and its wall-clock time beside each event.",
    ]
    for about, kinds in event_sections():
        title = re.split("[:,.]", about)[0]
        lines += ["", f"## {title}", "", f"Events of {about[0].lower()}{about[1:]}"]
        for kind in kinds:
            lines += ["", *_event(kind)]
    return _page("Every event", lines)


def event_sections() -> Iterator[tuple[str, list[type[Event]]]]:
    """Yield each comment that opens a section of the module, and the events below it."""
    lines = inspect.getsource(events).splitlines()
    opens = [number for number, line in enumerate(lines) if line.startswith("# ")]
    for first, end in zip(opens, [*opens[1:], len(lines)], strict=True):
        names = re.findall(r"^class (\w+)\(Event\)", "\n".join(lines[first:end]), re.MULTILINE)
        if names:
            yield lines[first].removeprefix("# "), [getattr(events, name) for name in names]


def _event(kind: type[Event]) -> Iterator[str]:
    version = "" if kind.version == 1 else f" (version {kind.version})"
    yield f"### `{kind.name}`{version}"
    yield ""
    yield " ".join((inspect.getdoc(kind) or "").split())
    yield ""
    yield "| field | type | what |"
    yield "|---|---|---|"
    hints = get_type_hints(kind)
    comments = field_comments(kind)
    for field in attrs.fields(kind):
        said = comments.get(field.name) or FIELDS.get(field.name, "")
        yield f"| `{field.name}` | {_type_name(hints[field.name])} | {said} |"


def _type_name(hint: object) -> str:
    named = {"tuple[int, ...]": "integers", "tuple[str, ...]": "texts"}
    plain = {int: "integer", str: "text", bool: "true or false", bytes: "bytes"}
    if isinstance(hint, type) and hint in plain:
        return plain[hint]
    return named.get(str(hint)) or str(getattr(hint, "__name__", hint))


def field_comments(kind: type) -> dict[str, str]:
    """The comment behind each field, where there is one."""
    lines = inspect.getsource(kind).splitlines()
    (body,) = ast.parse("\n".join(lines)).body
    assert isinstance(body, ast.ClassDef)
    return {
        node.target.id: lines[node.lineno - 1].partition("  # ")[2]
        for node in body.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


# -- all of them


def _page(title: str, lines: Iterable[str]) -> str:
    return "\n".join([_MADE, "", f"# {title}", "", *lines, ""])


def metrics_page() -> str:
    return _page("Every metric", metrics_lines())


def museum_page() -> str:
    return _page("A museum of replication bugs", museum_lines())


MADE: Final = {
    "configuration-keys.md": configuration_page,
    "events.md": events_page,
    "metrics.md": metrics_page,
    "museum.md": museum_page,
}


def stale() -> list[str]:
    """Return the pages that differ from what the code says."""
    return [
        name
        for name, make in MADE.items()
        if not (DOCS / name).is_file() or (DOCS / name).read_text() != make()
    ]


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        for name, make in MADE.items():
            (DOCS / name).write_text(make())
    elif found := stale():
        sys.exit(f"stale: {', '.join(found)}; {COMMAND}")
