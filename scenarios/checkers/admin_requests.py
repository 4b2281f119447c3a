"""The answers to administrators, and the metadata that must follow from them.

    alter t key=1     answered          key is 1
    alter t key=2     no answer         key is 1 or 2, from now on and for ever
    alter t key=3     answered          key is 3 or 2: a request without an answer may come late
    alter t key=4     answered when it was sent for the second time: the first may still come late

A topic that was created has at least as many partitions as it was given. A topic that is deleted
is forgotten before the request is sent; an answer about the partitions of the former topic that
comes later says nothing about a new one of that name.

A request counts from its answer on: then the newest metadata that is committed must contain it.
"""

from collections import Counter
from collections.abc import Iterator

import attrs

from replication.metadata.rules.image import MetadataImage
from scenarios.checkers.observed import Wrong

ANSWERED = "a request that was answered is in the metadata"


@attrs.define
class _Key:
    """A configuration key of a topic, with the values that it may have."""

    answered: str | None = None
    unanswered: Counter[str] = attrs.field(factory=Counter)
    """The number of attempts of each value that may still come."""


@attrs.define(eq=False)
class AdminRequests:
    """The requests of a story for its topics."""

    _keys: dict[tuple[str, str], _Key] = attrs.field(factory=dict, init=False)
    _partitions: dict[str, int] = attrs.field(factory=dict, init=False)
    _deletions: Counter[str] = attrs.field(factory=Counter, init=False)

    def asked(self, topic: str, key: str, value: str) -> None:
        """Note a request before it is sent, each time that it is."""
        self._keys.setdefault((topic, key), _Key()).unanswered[value] += 1

    def answered(self, topic: str, key: str, value: str) -> None:
        known = self._keys.get((topic, key))
        if known is not None:  # the topic may have been deleted meanwhile
            known.unanswered[value] -= 1
            known.answered = value

    def created(self, topic: str, partitions: int) -> None:
        self._partitions[topic] = max(partitions, self._partitions.get(topic, 0))

    def deletions(self, topic: str) -> int:
        """Return how often deleting the topic has been asked for."""
        return self._deletions[topic]

    def grown(self, topic: str, partitions: int, *, deletions: int) -> None:
        """Note that a topic was given partitions, asked after so many `deletions` of it."""
        if self._deletions[topic] == deletions:
            self.created(topic, partitions)

    def deleted(self, topic: str) -> None:
        self._deletions[topic] += 1
        self._partitions.pop(topic, None)
        for each in [each for each in self._keys if each[0] == topic]:
            del self._keys[each]

    def missing(self, image: MetadataImage) -> Iterator[Wrong]:
        """Yield what was answered, and is not in the committed metadata."""
        for topic, partitions in self._partitions.items():
            known = image.topics.get(topic)
            count = 0 if known is None else len(known.partitions)
            if count < partitions:
                yield Wrong(ANSWERED, f"{topic} was given {partitions} partitions, and has {count}")
        for (topic, key), values in self._keys.items():
            known = image.topics.get(topic)
            value = None if known is None else known.configs.get(key)
            if known is None or values.answered is None:
                continue
            if value != values.answered and values.unanswered[value or ""] <= 0:
                yield Wrong(ANSWERED, f"{key}={values.answered} was answered: {topic} has {value}")
