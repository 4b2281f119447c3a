"""The cause of each event as a sentence: those of `replication.observe`, and those of events that
only a simulation has.
"""

from typing import Final

from replication.observe.sentences import sentence
from scenarios.world.client import BatchAnswered
from scenarios.world.trace import LinkCut, LinkHealed, LinkHeld, PowerCut

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
