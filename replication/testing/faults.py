"""Fault rules of a cluster in another thread; every call is made there."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import attrs

from replication.cluster.cluster import Cluster
from replication.faults import AddedRule, FaultRule, Hit
from replication.testing.portal import hides_frames
from storage.attributes import frozen

WAIT_SECONDS = 30.0
__tracebackhide__ = hides_frames


class Elsewhere(Protocol):
    """A cluster in another thread."""

    def with_cluster(self, do: Callable[[Cluster], Awaitable[Any]]) -> Any:
        """Return the result of `do`, called there."""


@frozen
class ThreadedRule:
    """A rule that was added, and its effects so far."""

    added: AddedRule = attrs.field(repr=str)
    _there: Elsewhere = attrs.field(repr=False)

    @property
    def rule(self) -> FaultRule:
        """The rule itself."""
        return self.added.rule

    @property
    def calls(self) -> int:
        """The number of requests that it has matched."""
        return self._checked.calls

    @property
    def hits(self) -> int:
        """The number of requests that it was applied to."""
        return self._checked.hits

    @property
    def observed(self) -> list[Hit]:
        """The last thousand requests that it was applied to: api, parts, client_id, wall_ms,
        answer.
        """

        async def read(_: Cluster) -> list[Hit]:
            return [attrs.evolve(hit) for hit in self._checked.observed]

        seen: list[Hit] = self._there.with_cluster(read)
        return seen

    @property
    def _checked(self) -> AddedRule:
        """The rule, unless its `when` has raised an error: that is raised here."""
        if self.added.mistake is not None:
            raise self.added.mistake
        return self.added

    def wait_for_hits(self, hits: int = 1, *, timeout: float = WAIT_SECONDS) -> None:
        """Wait until it was applied `hits` times in all; raise NotHitError after `timeout` seconds."""

        async def wait(cluster: Cluster) -> None:
            await cluster.faults.wait_for_hits(self.added, hits, timeout=timeout)

        self._there.with_cluster(wait)

    def remove(self) -> None:
        """Remove the rule, if it is still there; its counts can still be read."""

        async def remove(cluster: Cluster) -> None:
            cluster.faults.remove(self.added)

        self._there.with_cluster(remove)


@frozen
class ThreadedFaults:
    """The fault rules of one cluster."""

    _there: Elsewhere = attrs.field(repr=False)

    def add(self, rule: FaultRule | None = None, /, **words: Any) -> ThreadedRule:
        """Add a `FaultRule`, or one of these words; raise FaultRuleError if it is not possible."""
        assert rule is None or not words, "a rule, or what it says"
        wanted = FaultRule(**words) if rule is None else rule

        async def add(cluster: Cluster) -> AddedRule:
            return cluster.faults.add(wanted)

        return ThreadedRule(self._there.with_cluster(add), self._there)

    @property
    def rules(self) -> list[ThreadedRule]:
        """The rules in force, the oldest first."""

        async def read(cluster: Cluster) -> list[AddedRule]:
            return list(cluster.faults.rules.values())

        return [ThreadedRule(added, self._there) for added in self._there.with_cluster(read)]

    def clear(self) -> None:
        """Remove every rule; requests that they hold go on."""

        async def clear(cluster: Cluster) -> None:
            cluster.faults.clear()

        self._there.with_cluster(clear)
