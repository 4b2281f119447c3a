"""Random runs of the real cluster, each grown from its seed, and what must hold in all.

    safety      from the first line to the last, what `scenarios.simulation.checkers` watches
    liveness    once everything is whole again, all replicas are in sync, take a record, and
                are equal byte for byte, within 60 virtual seconds each
    promises    in the end, by the ledger:
        acks=all    what was acked is there
        acks=1      so it is, unless the partition went to another leader, or its leader lost
                    its power
        any         is where the ack said, is there once, and is not there if it was refused
                    before it was written

What `Checkers.is_let_off` names may have lost what was committed: an unclean election, or
one of a last known leader that has been without power (KIP-966). Of these only liveness is
asked, and that nothing is there twice.
"""

import multiprocessing
import traceback
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack

import attrs

from replication.cluster.node_scope import raising_only_one
from replication.errors import ErrorCode
from replication.events import LeaderElected
from replication.verify import Different
from scenarios.commands import carry_out, compare_copies
from scenarios.misfortune import Misfortune
from scenarios.report.recording import Recording
from scenarios.simulation.checkers import Checkers
from scenarios.simulation.client import Acked, ReadRecord, Refused, SentBatch
from scenarios.simulation.cluster import node_name
from scenarios.simulation.ledger import loss_ledger
from scenarios.simulation.trace import PowerCut, TraceEntry
from scenarios.simulation.world import World
from scenarios.stage import Stage
from storage.types import TopicPartition

ACKS_ALL = -1


class CopiesDifferError(AssertionError):
    """Replicas that are in sync and at rest hold other bytes than each other."""


class BrokenPromiseError(AssertionError):
    """A producer was told what is not so."""


@attrs.frozen(kw_only=True)
class SwarmRun:
    """How the run of a seed went. Its lines are a story, which told from `seed` is this run."""

    seed: int
    lines: tuple[str, ...]
    answer: tuple[str, ...]
    """Of all lines."""
    wrong: str
    """What went wrong, in a line; empty where nothing did."""
    traceback: str
    trace: str
    trace_hash: str
    virtual_seconds: float
    elections: int
    may_have_lost: bool

    @property
    def replay_command(self) -> str:
        return f"understudy scenario replay --seed {self.seed}"


def run_seeds(seeds: Iterable[int], *, jobs: int) -> Iterator[SwarmRun]:
    """Their runs, in that order, in as many processes."""
    if jobs == 1:
        yield from map(run_seed, seeds)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as executor:
        yield from executor.map(run_seed, seeds)


def run_seed(seed: int, recording: Recording | None = None) -> SwarmRun:
    """The run of that seed; whatever goes wrong in it ends it, and is told in it."""
    world = World(seed)
    lines: list[str] = []
    answer: list[str] = []
    checkers = Checkers()
    partitions: list[TopicPartition] = []

    async def story(world: World) -> None:
        with raising_only_one():
            async with AsyncExitStack() as stack:
                stage = Stage(world=world, stack=stack, checkers=checkers, recording=recording)
                misfortune = Misfortune(
                    chance=world.chance("misfortune"),
                    operator=world.chance("operator"),
                    stage=stage,
                    partitions=partitions,
                )
                for line in misfortune.lines():
                    lines.append(line)
                    if recording is not None:
                        recording.carried_out(line)
                    answer.extend(await carry_out(stage, line))
                    stage.checkers.look()
                for partition in partitions:
                    _judge(stage, partition)

    failure: Exception | None = None
    try:
        world.run(story)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        failure = error
    # Whoever stumbles over a violation may say something else about it.
    failure = checkers.violation or failure
    entries = world.trace.entries
    return SwarmRun(
        seed=seed,
        lines=tuple(lines),
        answer=tuple(answer),
        wrong=_in_a_line(failure),
        traceback="".join(traceback.format_exception(failure)) if failure else "",
        trace=str(world.trace),
        trace_hash=world.trace_hash(),
        virtual_seconds=entries[-1].at if entries else 0.0,
        elections=sum(isinstance(entry.event, LeaderElected) for entry in entries),
        may_have_lost=any(map(checkers.is_let_off, partitions)),
    )


def _in_a_line(failure: Exception | None) -> str:
    if failure is None:
        return ""
    return f"{type(failure).__name__}: {' '.join(str(failure).split())}"


def _judge(stage: Stage, partition: TopicPartition) -> None:
    parted = [each for each in compare_copies(stage, partition) if isinstance(each, Different)]
    if parted:
        raise CopiesDifferError(str(parted[0]))
    broken = list(
        broken_promises(
            stage.sent_to(partition),
            stage.accounted[partition],
            may_have_lost=stage.checkers.is_let_off(partition),
            may_lose_acks_1=_may_lose_acks_1(stage.world.trace.entries, partition),
        )
    )
    if broken:
        raise BrokenPromiseError(f"{partition}: {'; '.join(broken)}")


def broken_promises(
    batches: Sequence[SentBatch],
    there: Iterable[ReadRecord],
    *,
    may_have_lost: bool,
    may_lose_acks_1: bool,
) -> Iterator[str]:
    """What the producer of `batches` was promised, and is not so."""
    records = list(there)
    ledger = loss_ledger(batches, records)
    if ledger.duplicated:
        yield f"there more than once: {' '.join(ledger.duplicated)}"
    if may_have_lost or ledger.duplicated:
        return
    offsets = {record.value: record.offset for record in records}
    for batch in batches:
        lost = [value for value in batch.values if value not in offsets]
        match batch.outcome:
            case Acked(base_offset):
                if lost and (batch.acks == ACKS_ALL or not may_lose_acks_1):
                    yield f"acked with acks={_acks(batch)} and lost: {' '.join(lost)}"
                promised = enumerate(batch.values, start=base_offset)
                moved = [value for at, value in promised if offsets.get(value, at) != at]
                if moved:
                    yield f"acked at {base_offset} and found elsewhere: {' '.join(moved)}"
            case Refused(ErrorCode.NOT_ENOUGH_REPLICAS) if len(lost) < len(batch.values):
                yield f"refused before they were written, and there: {' '.join(batch.values)}"
            case _:
                pass


def _acks(batch: SentBatch) -> str:
    return "all" if batch.acks == ACKS_ALL else str(batch.acks)


def _may_lose_acks_1(entries: Iterable[TraceEntry], partition: TopicPartition) -> bool:
    """Whether it went to another leader, or one of its leaders lost its power."""
    leaders: set[str] = set()
    without_power: set[str] = set()
    for entry in entries:
        match entry.event:
            case LeaderElected(partition=where, leader=leader) if where == partition:
                leaders.add(node_name(leader))
            case PowerCut(node=node):
                without_power.add(node)
            case _:
                pass
    return len(leaders) > 1 or bool(leaders & without_power)
