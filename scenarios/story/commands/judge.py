"""The account of a partition: `ledger t-0`, `verify t-0` and, once the cluster is idle, `judge t-0`.
`judge-controllers` is that of the metadata: every node has it, with all that was answered.
`judge-rest` looks for tasks that are busy while nobody asks for anything: the first one of a story
notes how busy they are, and each later one compares.

The ledger has what the producer was promised, against what consumers read. Loss is counted there,
not judged: acks=1 promises no more than that the leader has it.

    acked and committed    the value was acknowledged, and a consumer reads it
    acked and lost         the value was acknowledged, and no consumer ever reads it
    never acked            the value was refused, or had no answer: it may be there or not
    duplicated             there more than once

The promises that are judged:

    copies      are equal, byte for byte
    acks=all    every acked record is there
    acks=1      the same, unless the partition had another leader, or its leader lost its power
                or its disk
    any         a record is at the offset of its ack, is there once, and is not there if it was
                refused before it was written, or was acked by a former topic of that name

No client's history has an anomaly either (`scenarios.checkers.anomalies`).

A record is lost if it is missing although the log begins before it. Unless records were deleted
on request or by retention, the log begins at 0.

A partition of `Checkers.may_have_lost` may lack committed records, after an unclean election or one
of a last known leader that had lost its power (KIP-966). Its copies must be equal, nothing may be
there twice, and everything above holds for what was sent later.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import TypeVar

import attrs

from replication.cluster.interface import NotInTimeError
from replication.errors import ErrorCode
from replication.events import BecameLeader, LeaderElected
from replication.verify import Different, Outcome, verify_directories
from replication.wire.produce import ACKS_ALL
from scenarios.checkers import InvariantViolatedError
from scenarios.checkers.anomalies import mistakes
from scenarios.checkers.quorum import PROGRESS, PROGRESS_SECONDS, REACHED
from scenarios.story.arguments import Options, Words, exactly, partition_of
from scenarios.story.client_stage import ClientStage
from scenarios.story.log_drawing import batches_of, whole_batches
from scenarios.story.observed import final_operation, sent_operation
from scenarios.story.repeated import repeated_values
from scenarios.story.script import ScriptError
from scenarios.story.stage import Stage
from scenarios.world.client import AckedBatch, ReadRecord, Refused, SentRecords, key_of
from scenarios.world.cluster import node_name, partition_directory
from scenarios.world.history import ClientOperation, History, OperationOutcome, Poll
from scenarios.world.trace import DiskReplaced, PowerCut, TraceEntry
from storage.batch.record_batch import BatchHeader
from storage.batch.records import decode_batch
from storage.types import LeaderEpoch, Offset, TopicPartition

RESTS = "a cluster that nobody asks for anything rests"
REST_SECONDS = 2.0
MORE_PASSES_A_SECOND = 700
"""How many passes of trio's scheduler a second may have more than at the first look.

A task that is due again in each millisecond causes 1,000.
"""
MANY = 20
"""More are not all named."""


@attrs.frozen
class LossLedger:
    """Values, in the order in which they were sent."""

    acked_and_committed: tuple[str, ...]
    acked_and_lost: tuple[str, ...]
    never_acked: tuple[str, ...]
    never_acked_but_there: tuple[str, ...]
    duplicated: tuple[str, ...]

    def lines(self) -> list[str]:
        lines = [
            _line("acked and committed", self.acked_and_committed),
            _line("acked and lost", self.acked_and_lost),
            _line("never acked", self.never_acked),
        ]
        if self.never_acked_but_there:
            lines.append(_line("of these there", self.never_acked_but_there))
        lines.append(_line("duplicated", self.duplicated))
        return lines


def _line(label: str, values: Sequence[str]) -> str:
    shown = values if len(values) <= MANY else (*values[:2], "...", values[-1])
    return f"{label:<20} {len(values)}" + (f"  {' '.join(shown)}" if values else "")


def loss_ledger(batches: Iterable[SentRecords], there: Iterable[ReadRecord]) -> LossLedger:
    """Account for every value that was sent; each value is sent once."""
    times = Counter(record.value for record in there)
    acked: list[str] = []
    never: list[str] = []
    for batch in batches:
        (acked if batch.acked else never).extend(batch.values)
    assert len({*acked, *never}) == len(acked) + len(never), "no value is sent twice"
    assert times.keys() <= {*acked, *never}, "nothing is read that was not sent"
    return LossLedger(
        acked_and_committed=tuple(value for value in acked if times[value]),
        acked_and_lost=tuple(value for value in acked if not times[value]),
        never_acked=tuple(never),
        never_acked_but_there=tuple(value for value in never if times[value]),
        duplicated=tuple(value for value in (*acked, *never) if times[value] > 1),
    )


T = TypeVar("T")


class CopiesDifferError(AssertionError):
    """Replicas that are in sync and idle differ."""

    rule = "copies are equal"


@attrs.define(eq=False)
class BrokenPromiseError(AssertionError):
    """An answer that a producer received is not true."""

    partition: TopicPartition
    broken: tuple[str, ...]

    @property
    def rule(self) -> str:
        return re.sub(r"\d+", "N", self.broken[0].partition(":")[0])

    def __str__(self) -> str:
        return f"{self.partition}: {'; '.join(self.broken)}"


async def judge(stage: Stage, words: Words, options: Options) -> list[str]:
    (where,) = exactly(words, 1, options)
    partition = partition_of(where)
    await stage.until_led(partition)
    await stage.checkers.judge_the_end(partition, alone=not stage.programs.all)
    there = await stage.retry_until_answered(partial(stage.client.read, partition))
    begins = 0
    if partition.topic in stage.trimmed:
        begins = await stage.retry_until_answered(partial(stage.client.begins_at, partition))
    compacted = partition.topic in stage.compacted
    if parted := _differences(stage, partition, begins):
        raise CopiesDifferError(parted[0])
    may_have_lost = stage.checkers.may_have_lost(partition)
    may_lose_acks_1 = had_another_leader(stage.world.trace.entries, partition)
    batches = stage.sent_to(partition)
    repeated = repeated_values(batches, trimmed=partition.topic in stage.trimmed)
    repeated |= {
        value for each in batches if stage.has_unknown_topic(each) for value in each.values
    }
    found = list(
        broken_promises(
            batches,
            there,
            log_start=begins,
            may_have_lost=may_have_lost,
            may_lose_acks_1=may_lose_acks_1,
            repeated=repeated,
            compacted=compacted,
        )
    )
    polls = stage.consumer(partition).polls
    past = {value for batch in stage.sent_to_former_topic(partition) for value in batch.values}
    found += of_former_topic({each.value for each in there}, polls, past)
    if may_have_lost:
        polls = []
    if may_have_lost:
        until = stage.checkers.lost_until(partition)
        batches = [batch for batch in batches if batch.sent_at > until]
        later = {value for batch in batches for value in batch.values}
        there = [record for record in there if record.value in later]
    history = History(
        operations=[
            *(
                sent_operation(
                    batch,
                    may_lose_acks_1=may_lose_acks_1,
                    in_order=partition.topic not in stage.trimmed | stage.remade,
                )
                for batch in batches
            ),
            *(
                ClientOperation(process=each.session, outcome=OperationOutcome.OK, polls=(each,))
                for each in polls
            ),
            final_operation(
                partition, [(each.offset, each.value) for each in there], read_committed=False
            ),
        ],
        log_starts={partition: begins},
        repeated=repeated,
        compacted=[partition] if compacted else [],
        written_by_others=[partition],
    )
    found += map(str, mistakes(history))
    if found:
        raise BrokenPromiseError(partition, tuple(found))
    return [f"{partition}: may have lost what was committed"] if may_have_lost else []


async def until_controllers_agree(stage: Stage) -> None:
    """Wait until a controller decides, and every node has what it had then; so again for its successor.

    Raise InvariantViolatedError where that takes too long: all nodes are up and connected.
    """
    cluster, ends = stage.cluster, dict[LeaderEpoch | None, Offset]()

    def have_all() -> bool:
        active = cluster.controller
        if active is None:
            return False
        end = ends.setdefault(active.log.leading_epoch, active.log.log_end_offset)
        controllers = [each.log.high_watermark for each in cluster.nodes.controllers.values()]
        brokers = [each.metadata.image.offset + 1 for each in cluster.nodes.brokers.values()]
        return min([*controllers, *brokers]) >= end

    try:
        await cluster.until(
            have_all, what="every node has what is committed", seconds=PROGRESS_SECONDS
        )
    except NotInTimeError as error:
        rule = REACHED if ends else PROGRESS
        raise InvariantViolatedError(rule, str(error)) from error


async def judge_rest(stage: Stage, words: Words, options: Options) -> list[str]:
    exactly(words, 0, options)
    time = stage.world.time
    before = time.passes
    await stage.cluster.clock.sleep(REST_SECONDS)
    rate = (time.passes - before) / REST_SECONDS
    if stage.passes_at_rest is None:
        stage.passes_at_rest = rate
    if rate > stage.passes_at_rest + MORE_PASSES_A_SECOND:
        raise InvariantViolatedError(
            RESTS,
            f"{rate:.0f} passes of the scheduler in a second, {stage.passes_at_rest:.0f} before",
        )
    return []


async def judge_controllers(stage: Stage, words: Words, options: Options) -> list[str]:
    exactly(words, 0, options)
    await until_controllers_agree(stage)
    stage.checkers.judge_answered()
    return []


def of_former_topic(
    there: Collection[str], polls: Iterable[Poll], past: Collection[str]
) -> Iterator[str]:
    """Yield the values of a former topic that are found under its name."""
    seen = {*there, *(value for poll in polls for _, value in poll.records)}
    if found := seen.intersection(past):
        yield f"of a topic that is no more, and there: {' '.join(sorted(found))}"


def compare_copies(stage: ClientStage, partition: TopicPartition) -> list[Outcome]:
    """Compare the disks of all replicas; return one result, or none if there is no copy."""
    registration = stage.cluster.partition(partition)
    names = [] if registration is None else [node_name(each) for each in registration.replicas]
    directories = [each for name in names for each in stage.cluster.log_directories(name)]
    comparison = verify_directories(stage.cluster.disks(), directories, copies=len(names) or None)
    return [each for each in comparison.partitions if each.partition == partition]


def _differences(stage: Stage, partition: TopicPartition, begins: Offset) -> list[str]:
    """Return where the copies differ in what they must agree on."""
    if partition.topic in stage.compacted:
        lost = stage.checkers.may_have_lost(partition)
        return differing_latest(stage, partition, may_have_lost=lost)
    if partition.topic in stage.trimmed:
        return differing_from(stage, partition, begins)
    return [str(each) for each in compare_copies(stage, partition) if isinstance(each, Different)]


def differing_from(stage: Stage, partition: TopicPartition, begins: Offset) -> list[str]:
    """Return where replicas differ from the offset `begins` on.

    Below it each may have anything, since the log start is checkpointed only now and then; and each
    deletes by itself what is too old or too much.
    """
    held = _on_all(stage, partition, partial(_batches_from, stage, partition, begins))
    begins = max([begins, *(batches[0].base_offset for _, batches in held if batches)])
    copies = [
        (name, [_drawn(batch) for batch in batches if batch.last_offset >= begins])
        for name, batches in held
        if batches
    ]
    return [
        f"{partition}: from {begins} on {copies[0][0]} has {copies[0][1]} and {name} has {batches}"
        for name, batches in copies[1:]
        if batches != copies[0][1]
    ]


def _drawn(batch: BatchHeader) -> str:
    return f"{batch.base_offset}-{batch.last_offset} e{batch.leader_epoch} {batch.crc:08x}"


def _batches_from(
    stage: Stage, partition: TopicPartition, begins: Offset, name: str
) -> list[BatchHeader]:
    disk = stage.cluster.disk(name)
    batches = batches_of(disk, partition_directory(disk, name, partition))
    return [each for each in batches if each.last_offset >= begins]


def _on_all(
    stage: Stage, partition: TopicPartition, look: Callable[[str], T]
) -> list[tuple[str, T]]:
    registration = stage.cluster.partition(partition)
    assert registration is not None, "a partition that is judged is there"
    return [(name, look(name)) for name in map(node_name, registration.replicas)]


def differing_latest(stage: Stage, partition: TopicPartition, *, may_have_lost: bool) -> list[str]:
    """Return where replicas of a compacted topic differ: in a record that both have, or in the last
    one of a key. Each replica compacts its own log.

    A replica may have cleaned away a key's record for a later one, which an election then lost.
    """
    first, *others = _on_all(stage, partition, partial(_records_on, stage, partition))
    return [
        f"{partition}: {of} is {one} on {first[0]} and {another} on {name}"
        for name, records in others
        for of, one, another in differences(first[1], records, may_have_lost=may_have_lost)
    ]


def _records_on(stage: Stage, partition: TopicPartition, name: str) -> dict[Offset, str]:
    disk = stage.cluster.disk(name)
    return {
        each.offset: (each.value or b"").decode()
        for _, batch in whole_batches(disk, partition_directory(disk, name, partition))
        for each in decode_batch(batch)
    }


def differences(
    one: Mapping[Offset, str], other: Mapping[Offset, str], *, may_have_lost: bool = False
) -> Iterator[tuple[str, str, str]]:
    for offset in sorted(one.keys() & other.keys()):
        if one[offset] != other[offset]:
            yield f"offset {offset}", one[offset], other[offset]
    latest, latest_of_other = (
        {key_of(value): value for _, value in sorted(each.items())} for each in (one, other)
    )
    either, both = latest.keys() | latest_of_other.keys(), latest.keys() & latest_of_other.keys()
    for key in sorted(map(str, both if may_have_lost else either)):
        here, there = latest.get(key, "absent"), latest_of_other.get(key, "absent")
        if here != there:
            yield f"the last of {key}", here, there


def broken_promises(
    batches: Sequence[SentRecords],
    there: Iterable[ReadRecord],
    *,
    log_start: Offset = 0,
    may_have_lost: bool,
    may_lose_acks_1: bool,
    repeated: Collection[str] = (),
    compacted: bool = False,
) -> Iterator[str]:
    """Yield the promises to the producer of `batches` that are broken."""
    records = list(there)
    duplicated = [v for v in loss_ledger(batches, records).duplicated if v not in repeated]
    if duplicated:
        yield f"there more than once: {' '.join(duplicated)}"
    if may_have_lost or duplicated:
        return
    offsets: dict[str, set[Offset]] = defaultdict(set)
    for record in records:
        offsets[record.value].add(record.offset)
    last_of_keys = {key_of(record.value): record.offset for record in records} if compacted else {}
    for batch in batches:
        lost = [value for value in batch.values if value not in offsets]
        match batch.outcome:
            case AckedBatch(base_offset):
                ends_before = batch.values[: max(0, log_start - base_offset)]
                lost = [value for value in lost if value not in ends_before]
                if compacted:  # a record may be gone once its key has a later one
                    at = dict(zip(batch.values, count(base_offset), strict=False))
                    lost = [v for v in lost if last_of_keys.get(key_of(v), -1) <= at[v]]
                if lost and (batch.acks == ACKS_ALL or not may_lose_acks_1):
                    acks = "all" if batch.acks == ACKS_ALL else batch.acks
                    yield f"acked with acks={acks} and lost: {' '.join(lost)}"
                promised = enumerate(batch.values, start=base_offset)
                moved = [value for at, value in promised if at not in offsets.get(value, {at})]
                if moved:
                    yield f"acked at {base_offset} and found elsewhere: {' '.join(moved)}"
            case Refused(ErrorCode.NOT_ENOUGH_REPLICAS) if len(lost) < len(batch.values):
                yield f"refused before they were written, and there: {' '.join(batch.values)}"
            case _:
                pass


def had_another_leader(entries: Iterable[TraceEntry], partition: TopicPartition) -> bool:
    """Return whether a partition had another leader, or one that lost its power."""
    leaders: set[str] = set()
    without_power: set[str] = set()
    for entry in entries:
        match entry.event:
            case LeaderElected(partition=where, leader=leader) if where == partition:
                leaders.add(node_name(leader))
            case BecameLeader(partition=where) if where == partition:  # perhaps without a report
                leaders.add(entry.node)
            case PowerCut(node=node) | DiskReplaced(node=node):
                without_power.add(node)
            case _:
                pass
    return len(leaders) > 1 or bool(leaders & without_power)


async def ledger(stage: ClientStage, words: Words, options: Options) -> list[str]:
    (where,) = exactly(words, 1, options)
    partition = partition_of(where)
    await stage.until_led(partition)
    there = stage.accounted[partition] = await stage.retry_until_answered(
        partial(stage.client.read, partition)
    )
    found = {record.value for record in there}
    past = [
        each for each in stage.sent_to_former_topic(partition) if found.intersection(each.values)
    ]
    return loss_ledger([*past, *stage.sent_to(partition)], there).lines()


async def verify(stage: ClientStage, words: Words, options: Options) -> list[str]:
    (where,) = exactly(words, 1, options)
    partition = partition_of(where)
    if stage.cluster.partition(partition) is None:
        raise ScriptError(f"there is no {partition}")
    return [str(each) for each in compare_copies(stage, partition)]
