"""The data that the page draws: lanes, marks, arrows, logs.

    lanes      client | c | b1 | b2 | b3            one for each node, in this order
    marks      on a lane: an event and its cause    faults, elections, truncations, ...
    arrows     from lane to lane                    messages, with what they say
    logs       the state of each replica, and since when

Marks and arrows have a kind, by which a reader hides some of them: an idle fetch is `idle`, a fetch
of the controller's log is `metadata`, and one of Kafka's own topics `internal`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from replication.metadata.rules.records import METADATA_TOPIC
from replication.observe.cluster_state import INTERNAL_PREFIX
from replication.observe.pages import WORDS
from replication.observe.sentences import FAULT, kind, sentence
from scenarios.story.log_drawing import draw_runs
from scenarios.story.report.messages import Message
from scenarios.story.report.recording import Recording, ReplicaStatus
from scenarios.story.report.turning_point import turning_point, verdict
from scenarios.story.script import Step
from scenarios.world.client import CLIENT, BatchAnswered
from scenarios.world.trace import (
    SIMULATED_FAULTS,
    SIMULATOR,
    LinkCut,
    LinkHealed,
    LinkHeld,
    PowerCut,
    TraceEntry,
)
from storage.types import TopicPartition

cause: Final = sentence


@sentence.register
def _(event: BatchAnswered) -> str:
    return f"{' '.join(event.values)} to {event.partition}, acks={event.acks}: {event.answer}"


@sentence.register
def _(event: PowerCut) -> str:
    return f"the power of {event.node} fails: what it had not synced may be gone"


@sentence.register
def _(event: LinkCut) -> str:
    return f"nothing passes from {event.source} to {event.target}"


@sentence.register
def _(event: LinkHeld) -> str:
    return f"what {event.source} says to {event.target} about {event.api} does not arrive"


@sentence.register
def _(event: LinkHealed) -> str:
    return f"{event.source} reaches {event.target} again"


Facts: TypeAlias = Mapping[str, Any]
"""An object of JSON."""

IDLE, METADATA, DATA, CONTROL, INTERNAL = "idle", "metadata", "data", "control", "internal"

_DATA_APIS = {"Fetch", "Produce", "ListOffsets", "OffsetForLeaderEpoch"}


@attrs.frozen(kw_only=True)
class Scene:
    """The data of a page, all of it JSON; times are virtual seconds."""

    title: str
    seed: int
    trace_hash: str
    virtual_seconds: float
    verdict: Facts
    """The line at the top: `level`, `word` and `text`."""
    turning_point: Facts
    """The moment at which the page opens: `at`, `why` and `partition`."""
    lanes: Sequence[str]
    partitions: Sequence[str]
    steps: Sequence[Facts]
    """The steps of the story: the prose before them, the commands and their answers."""
    commands: Sequence[Facts]
    marks: Sequence[Facts]
    arrows: Sequence[Facts]
    logs: Sequence[Facts]


def scene_of(
    recording: Recording,
    *,
    title: str,
    passages: Iterable[tuple[str, Step]],
    wrong: str = "",
) -> Scene:
    """Return the scene of a run that is over; `wrong` is the rule that it broke, or empty."""
    world = recording.world
    assert world is not None, "a scene is of a run"
    lanes = [CLIENT, *recording.names]
    entries = recording.entries
    found = verdict(recording, wrong=wrong)
    return Scene(
        title=title,
        verdict={"level": found.level, "word": WORDS[found.level], "text": found.text},
        turning_point=attrs.asdict(turning_point(entries, wrong=wrong)),
        seed=world.seed,
        trace_hash=world.trace_hash(),
        virtual_seconds=entries[-1].at if entries else 0.0,
        lanes=lanes,
        partitions=_in_order({each.partition for each in recording.standings}),
        steps=[
            {"prose": prose, "commands": list(step.commands), "answer": list(step.answer)}
            for prose, step in passages
        ],
        commands=[{"at": each.at, "line": each.line} for each in recording.commands],
        marks=[mark for entry in entries for mark in _marks(entry, lanes)],
        arrows=[_arrow(each) for each in recording.messages],
        logs=[_log(each) for each in recording.standings],
    )


def _in_order(partitions: Iterable[TopicPartition]) -> list[str]:
    """Return the names of partitions, that of the metadata log last."""
    return [
        str(each) for each in sorted(partitions, key=lambda it: (it.topic == METADATA_TOPIC, it))
    ]


def _marks(entry: TraceEntry, lanes: Sequence[str]) -> Iterable[Facts]:
    """Yield an event's mark, on the lane of the node that reports it; a fault's, on its victim's."""
    event = entry.event
    lane = entry.node
    if lane == SIMULATOR:
        lane = getattr(event, "node", None) or getattr(event, "source", None) or lanes[0]
    partition = getattr(event, "partition", None)
    yield {
        "at": entry.at,
        "lane": lane,
        "name": event.name,
        "kind": FAULT if type(event) in SIMULATED_FAULTS else kind(event),
        "why": cause(event),
        "partition": None if partition is None else str(partition),
    }


def _arrow(message: Message) -> Facts:
    return {
        "from": message.source,
        "to": message.target,
        "sent": message.sent_at,
        "there": message.received_at,
        "api": message.api + ("" if message.is_request else " answer"),
        "says": message.label,
        "kind": _kind(message),
    }


def _kind(message: Message) -> str:
    if METADATA_TOPIC in message.label:
        return METADATA
    if not message.label:
        return IDLE
    parts = [each for each in message.label.split(", ") if not each.startswith("HW ")]
    if all(each.startswith(INTERNAL_PREFIX) for each in parts):
        return INTERNAL
    return DATA if message.api in _DATA_APIS else CONTROL


def _log(standing: ReplicaStatus) -> Facts:
    return attrs.asdict(standing, recurse=False) | {
        "partition": str(standing.partition),
        "drawn": draw_runs(standing.runs),
    }
