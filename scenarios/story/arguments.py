"""The arguments of a command: plain words, and options as KEY=VALUE.

An argument without a meaning is a ScriptError, in one line.
"""

import re
from typing import TypeAlias

from scenarios.story.client_stage import ClientStage
from scenarios.story.script import ScriptError
from scenarios.world.cluster import node_id_of
from storage.types import TopicPartition

Words: TypeAlias = list[str]
Options: TypeAlias = dict[str, str]

_OPTION = re.compile(r"([a-z][a-z0-9.]*)=(.*)")
_DURATION = re.compile(r"(\d+)(ms|s)")


def split(line: str) -> tuple[str, Words, Options]:
    """Return the command, its words and its options."""
    verb, *rest = line.split()
    found = [(word, _OPTION.fullmatch(word)) for word in rest]
    words = [word for word, option in found if not option]
    return verb, words, {option[1]: option[2] for _, option in found if option}


def background(words: Words) -> tuple[Words, bool]:
    """Return the words without a final `&`, and whether there was one: then no answer is awaited."""
    in_background = words[-1:] == ["&"]
    return words[: len(words) - in_background], in_background


def refuse_any(words: Words, options: Options | None = None) -> None:
    if words or options:
        raise ScriptError(f"does not take {' '.join([*words, *(options or {})])}")


def exactly(words: Words, count: int | None, options: Options | None = None) -> Words:
    refuse_any([], options)
    if count is not None and len(words) != count:
        raise ScriptError(f"takes {count} word{'' if count == 1 else 's'}, not {len(words)}")
    return words


def nodes(stage: ClientStage, words: Words, options: Options) -> Words:
    refuse_any([], options)
    unknown = [word for word in words if word not in stage.cluster.names]
    if unknown or not words:
        raise ScriptError(
            f"there is no node {' '.join(unknown)}".rstrip()
            + f"; there are {', '.join(stage.cluster.names)}"
        )
    return words


def machines(stage: ClientStage, words: Words, options: Options) -> Words:
    """Return the words, each of which must name a node or a machine of our clients."""
    others = [word for word in words if word not in stage.programs_running]
    if others or not words:
        nodes(stage, others, options)
    refuse_any([], options)
    return words


def running_nodes(stage: ClientStage, words: Words, options: Options) -> Words:
    """Return the words, each of which must name a running node or a running client of ours."""
    for name in machines(stage, words, options):
        if name not in stage.programs_running and not stage.cluster.is_running(name):
            raise ScriptError(f"{name} is down already")
    return words


def broker_id_of(stage: ClientStage, name: str) -> int:
    if name not in stage.cluster.broker_names:
        brokers = ", ".join(stage.cluster.broker_names)
        raise ScriptError(f"there is no broker {name!r}; there are {brokers}")
    return node_id_of(name)


def replicas_of(stage: ClientStage, options: Options) -> list[list[int]]:
    """Return the brokers of each partition; the first one leads."""
    if "replicas" not in options:
        raise ScriptError("a topic needs replicas=b1,b2,b3; `/` begins another partition")
    assigned = [text.split(",") for text in options.pop("replicas").split("/")]
    return [[broker_id_of(stage, broker) for broker in brokers] for brokers in assigned]


def number_of(text: str) -> int:
    if not text.isdecimal():
        raise ScriptError(f"{text!r} is no number")
    return int(text)


def partition_of(text: str) -> TopicPartition:
    name, separator, number = text.rpartition("-")
    if not separator or not name or not number.isdecimal():
        raise ScriptError(f"{text!r} is no partition: t-0 is")
    return TopicPartition(name, int(number))


def seconds_of(text: str) -> float:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ScriptError(f"{text!r} is no time: 500ms or 2s are")
    return int(found[1]) / (1000 if found[2] == "ms" else 1)
