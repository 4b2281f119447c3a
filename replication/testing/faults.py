"""Fault rules of a cluster that runs in another thread: every call goes there and comes back."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import attrs

from replication.cluster.cluster import Cluster
from replication.faults import AddedRule, FaultRule, Hit

WAIT_SECONDS = 30.0


class Elsewhere(Protocol):
    """Where the cluster is."""

    def with_cluster(self, do: Callable[[Cluster], Awaitable[Any]]) -> Any:
        """What `do` returns there."""


@attrs.frozen
class ThreadedRule:
    """A rule that was added, and what became of it."""

    added: AddedRule = attrs.field(repr=str)
    _there: Elsewhere = attrs.field(repr=False)

    @property
    def rule(self) -> FaultRule:
        """What it says."""
        return self.added.rule

    @property
    def calls(self) -> int:
        """How many requests it has matched."""
        return self._checked.calls

    @property
    def hits(self) -> int:
        """To how many of them it was applied."""
        return self._checked.hits

    @property
    def observed(self) -> list[Hit]:
        """The last thousand of them: api, parts, client_id, wall_ms, answer."""

        async def read(_: Cluster) -> list[Hit]:
            return [attrs.evolve(hit) for hit in self._checked.observed]

        seen: list[Hit] = self._there.with_cluster(read)
        return seen

    @property
    def _checked(self) -> AddedRule:
        """What its `when` has raised is raised here."""
        if self.added.mistake is not None:
            raise self.added.mistake
        return self.added

    def wait_for_hits(self, hits: int = 1, *, timeout: float = WAIT_SECONDS) -> None:
        """Until it was applied so often in all; NotHitError where it never is. Seconds."""

        async def wait(cluster: Cluster) -> None:
            await cluster.faults.wait_for_hits(self.added, hits, timeout=timeout)

        self._there.with_cluster(wait)

    def remove(self) -> None:
        """What it has counted can still be read; twice is harmless."""

        async def remove(cluster: Cluster) -> None:
            cluster.faults.remove(self.added)

        self._there.with_cluster(remove)


@attrs.frozen
class ThreadedFaults:
    """The rules of one cluster."""

    _there: Elsewhere

    def add(self, rule: FaultRule | None = None, /, **words: Any) -> ThreadedRule:
        """A `FaultRule`, or its words; FaultRuleError where it cannot be."""
        assert rule is None or not words, "a rule, or what it says"
        wanted = FaultRule(**words) if rule is None else rule

        async def add(cluster: Cluster) -> AddedRule:
            return cluster.faults.add(wanted)

        return ThreadedRule(self._there.with_cluster(add), self._there)

    @property
    def rules(self) -> list[ThreadedRule]:
        """Those in force, the oldest first."""

        async def read(cluster: Cluster) -> list[AddedRule]:
            return list(cluster.faults.rules.values())

        return [ThreadedRule(added, self._there) for added in self._there.with_cluster(read)]

    def clear(self) -> None:
        """Remove every rule; whom they hold is let go."""

        async def clear(cluster: Cluster) -> None:
            cluster.faults.clear()

        self._there.with_cluster(clear)
