"""Log directories and live clusters, compared partition by partition.

    understudy verify A B            A, B: ── DirectoryAtRest, LiveCluster ──> the copies of each partition
                                                                           ──> Comparing, step by step
Rule 1: everything is read once and in order, one partition after the other; a broker's next
response is under way while the last one is compared.

Rule 2: a cluster by itself is compared with itself: the replicas of each partition.

Rule 3: if retention deletes what is being read, that partition begins again at what is left.

Rule 4: a partition that cannot be read, since it has no leader or is deleted faster than it is
read, is reported as such, and delays no other. A cluster that does not answer ends the comparison.
"""

import re
from collections.abc import Callable, Collection, Container, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, Self, TypeAlias

import attrs
import trio

from replication.errors import NO_ANSWER, KafkaError
from replication.net.raising import raising_the_first
from replication.net.seams import Seams
from replication.verify.clusters import (
    FetchedBatches,
    FetchOptions,
    LiveCluster,
    StartMovedError,
    cluster,
)
from replication.verify.comparing import Comparing, PartitionCopy, Rules
from replication.verify.directories import DirectoryAtRest, closing
from replication.verify.results import (
    Alone,
    CannotCompareError,
    Compared,
    Comparison,
    NotCompared,
    Outcome,
    PartitionResult,
)
from replication.wire.list_offsets import EARLIEST, LATEST
from storage.attributes import define, frozen
from storage.types import Offset, TopicPartition

Source: TypeAlias = DirectoryAtRest | LiveCluster

_NO_RECORD: Final = -1
_RESTARTS: Final = 3
_LOOKS: Final = 10
# The steps between two checkpoints.
_STEPS: Final = 64
_END_OF_TIME: Final = 2**63 - 1


@frozen
class PartitionRanges:
    """The numbers of partitions that a text such as `0,3-5` names, kept as ranges."""

    ranges: tuple[range, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the ranges; ValueError for anything but numbers and ranges."""
        ranges = []
        for part in text.split(","):
            first, _dash, last = part.partition("-")
            if not first.isdecimal() or (last and not last.isdecimal()):
                raise ValueError(part)
            ranges.append(range(int(first), int(last or first) + 1))
        return cls(tuple(ranges))

    def __contains__(self, number: object) -> bool:
        return any(number in each for each in self.ranges)


@frozen(kw_only=True)
class PartitionSelection:
    """The partitions to compare; as in Kafka's tools, the pattern matches whole topic names."""

    topics: str = ".*"
    partitions: Container[int] | None = None
    timestamp: int = EARLIEST

    def selects_topic(self, topic: str) -> bool:
        return re.fullmatch(self.topics, topic) is not None

    def selects(self, partition: TopicPartition) -> bool:
        chosen = self.partitions is None or partition.partition in self.partitions
        return chosen and self.selects_topic(partition.topic)


def _nothing(*_: Any) -> None:
    pass


@frozen(kw_only=True)
class ResultListener:
    """Callbacks for each result, and now and then for the progress of the present partition."""

    on_partition: Callable[[Outcome], None] = _nothing
    on_progress: Callable[[TopicPartition, Compared], None] = _nothing
    interval_ms: float = 1000


@frozen(kw_only=True)
class VerificationPlan:
    """A comparison to run, of any number of log directories and bootstrap servers."""

    directories: Sequence[str] = ()
    bootstrap_servers: Sequence[str] = ()
    selection: PartitionSelection = attrs.field(factory=PartitionSelection)
    rules: Rules = attrs.field(factory=Rules)
    fetching: FetchOptions = attrs.field(factory=FetchOptions)
    client_config: dict[str, Any] = attrs.field(factory=dict)
    listener: ResultListener = attrs.field(factory=ResultListener)

    async def run(self, seams: Seams) -> Comparison:
        """Compare; CannotCompareError if that is not possible."""
        with raising_the_first():
            async with AsyncExitStack() as stack:
                try:
                    sources = await self._open(stack, seams)
                    return await _Run(self, sources, seams).compare()
                except (KafkaError, *NO_ANSWER) as error:
                    raise CannotCompareError(str(error)) from error
        raise AssertionError("it returns, or raises")

    async def _open(self, stack: AsyncExitStack, seams: Seams) -> list[Source]:
        sources: list[Source] = [
            DirectoryAtRest.at(seams.file_system, directory) for directory in self.directories
        ]
        alone = len(self.directories) + len(self.bootstrap_servers) == 1
        for servers in self.bootstrap_servers:
            opened = await stack.enter_async_context(
                cluster(
                    servers,
                    seams=seams,
                    options=self.fetching,
                    each_replica=alone,
                    config=self.client_config,
                )
            )
            await opened.survey(
                [each for each in await opened.topics() if self.selection.selects_topic(each)],
                self.selection.selects,
            )
            sources.append(opened)
        return sources


@define(eq=False)
class _Run:
    verification: VerificationPlan
    sources: Sequence[Source]
    seams: Seams
    _report_at: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._report_at = self.seams.clock.now() + self.verification.listener.interval_ms / 1000

    async def compare(self) -> Comparison:
        selects = self.verification.selection.selects
        partitions = sorted(
            {each for source in self.sources for each in held_by(source) if selects(each)}
        )
        names = [source.name for source in self.sources]
        if not partitions:
            raise CannotCompareError(f"no partition in {', '.join(names)} that is selected")
        await self._level_ends()
        starts = await self._starts(partitions)
        results: list[Outcome] = []
        for partition in partitions:
            rules = attrs.evolve(self.verification.rules, start_offset=starts.get(partition, 0))
            results.append(await self._compare(partition, rules))
            self.verification.listener.on_partition(results[-1])
        return Comparison(tuple(names), tuple(results))

    async def _compare(self, partition: TopicPartition, rules: Rules) -> Outcome:
        holders = [each for each in self.sources if partition in held_by(each)]
        # A partition in one place only is reported as that, with or without a leader.
        is_read = len(holders) > 1 or len(self.sources) == 1
        clusters = [each for each in holders if is_read and isinstance(each, LiveCluster)]
        try:
            return await self._compare_until_stable(partition, rules, clusters)
        except CannotCompareError as error:
            names = tuple(each.name for each in holders)
            return NotCompared(partition=partition, directories=names, reason=str(error))

    async def _compare_until_stable(
        self, partition: TopicPartition, rules: Rules, clusters: Sequence[LiveCluster]
    ) -> PartitionResult:
        for each in clusters:
            each.require_leader(partition)
        for _ in range(_RESTARTS):
            try:
                return await self._compare_once(partition, rules)
            except StartMovedError as moved:
                rules = attrs.evolve(rules, start_offset=moved.offset)
            except (KafkaError, *NO_ANSWER):
                for each in clusters:
                    await each.look_for_leaders()
                    each.require_leader(partition)
                raise
        raise CannotCompareError("it is deleted faster than it can be read")

    async def _compare_once(self, partition: TopicPartition, rules: Rules) -> PartitionResult:
        copies = [copy for source in self.sources for copy in source.copies_of(partition)]
        rules = attrs.evolve(rules, copies=self._copies_of(partition))
        with closing(copies):
            comparing = Comparing(partition, copies, rules)
            try:
                return await self._run(comparing, copies)
            finally:
                comparing.close()

    async def _run(self, comparing: Comparing, copies: Sequence[PartitionCopy]) -> PartitionResult:
        streams = [each.stream for each in copies if isinstance(each.stream, FetchedBatches)]
        more, steps = comparing.begin(), 0
        while more:
            for stream in streams:
                if stream.wants_bytes:
                    await stream.fill()
            more, steps = comparing.step(), steps + 1
            if steps % _STEPS == 0:
                await trio.lowlevel.checkpoint()
                self._report(comparing)
        assert comparing.result is not None, "the last step sets it"
        return comparing.result

    def _report(self, comparing: Comparing) -> None:
        listener, now = self.verification.listener, self.seams.clock.now()
        if now >= self._report_at:
            self._report_at = now + listener.interval_ms / 1000
            listener.on_progress(comparing.partition, comparing.compared)

    async def _level_ends(self) -> None:
        """Read the ends again, so that records written between two reads make no cluster lag."""
        clusters = [source for source in self.sources if isinstance(source, LiveCluster)]
        for _ in range(_LOOKS if len(clusters) > 1 else 0):
            furthest: dict[TopicPartition, Offset] = {}
            for each in clusters:
                for partition, end in each.ends.items():
                    furthest[partition] = max(end, furthest.get(partition, 0))
            if not any([await each.look_again(furthest) for each in clusters]):
                return

    def _copies_of(self, partition: TopicPartition) -> int | None:
        """Return the number of copies that there must be, or None.

        For a cluster by itself it is the number of assigned replicas, else the one asked for.
        """
        (only, *others) = self.sources
        if isinstance(only, LiveCluster) and not others:
            return len(only.replicas[partition])
        return self.verification.rules.copies

    async def _starts(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return the offset from which each partition is compared: the lowest for the time asked."""
        timestamp = self.verification.selection.timestamp
        found: dict[TopicPartition, list[Offset]] = {}
        for source in self.sources if timestamp != EARLIEST else ():
            for partition, offset in (await _by_time(source, partitions, timestamp)).items():
                found.setdefault(partition, []).append(offset)
        return {partition: min(offsets) for partition, offsets in found.items()}


def held_by(source: Source) -> Collection[TopicPartition]:
    return (source.replicas if isinstance(source, LiveCluster) else source.partitions).keys()


async def _by_time(
    source: Source, partitions: Sequence[TopicPartition], timestamp: int
) -> dict[TopicPartition, Offset]:
    here = [each for each in held_by(source) if each in partitions]
    if isinstance(source, LiveCluster):
        found = await source.offsets(here, timestamp)
        return {
            partition: source.ends[partition] if offset == _NO_RECORD else offset
            for partition, offset in found.items()
        }
    wanted = _END_OF_TIME if timestamp == LATEST else timestamp
    offsets = {each: source.offset_for_time(each, wanted) for each in here}
    return {partition: offset for partition, offset in offsets.items() if offset is not None}


def nothing_compared(comparison: Comparison) -> bool:
    """Return whether no partition was in two places."""
    return all(isinstance(each, Alone) for each in comparison.partitions)
