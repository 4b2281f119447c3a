"""The commands by which our own clients (`replication.client`) take part in a story.

producer p1 linger.ms=20                    an idempotent producer, on a machine p1
send p1 t-0 one two                         records, one after the other, and their answers
send p1 t-0 three &                         the same, without waiting
producer x1 transactional.id=x
transact x1 t-0 four five t-1 six           a transaction, and how it ended
transact x1 t-0 seven end=abort &           an aborted one, without waiting

reader r1 t-0 t-1 isolation.level=read_committed     a consumer that goes on polling
member m1 g t enable.auto.commit=false      the same, as a member of the group g
seek r1 t-0 1                               continue at that offset
given m1                                    the records that it has received so far
copier w1 g t u-0                           copies the topic t to u-0, in transactions

errors x1                                   the errors that it has met so far
leave m1 (or: leave m1 &)                   it ends in good order
kill m1   pause m1   resume m1   cut m1 b1  as with nodes
judge-clients                               an error if an answer they received is not true
judge-groups                                an error if a coordinator of groups knows other commits
                                            than its log says
drain                                       wait until all that was sent has an outcome, all is
                                            read and copied, every member of a group has what its
                                            target says, and all our clients have ended
"""

from collections.abc import Callable, Sequence

from replication.client.config import ClientConfig, keys_of
from replication.client.consumer.config import ConsumerConfig
from replication.client.producer.config import ProducerConfig
from replication.cluster.interface import NotInTimeError
from replication.config.known import nearest
from replication.wire.produce import ACKS_ALL
from scenarios.checkers import InvariantViolatedError
from scenarios.story.arguments import Options, Words, background, exactly, number_of, partition_of
from scenarios.story.commands.judge import BrokenPromiseError
from scenarios.story.commands.produce import outcome_of
from scenarios.story.expected_records import (
    everything_is_copied,
    everything_is_read,
    members_that_wait,
    nothing_is_open,
    wrongs,
    wrongs_of_coordinators,
)
from scenarios.story.script import ScriptError
from scenarios.story.stage import Stage
from scenarios.world.client import SentRecords
from scenarios.world.clients.machine import Program
from scenarios.world.clients.reading import Reader
from scenarios.world.clients.sending import SendingClient
from scenarios.world.clients.witness import Given, WitnessedTransaction
from storage.types import TopicPartition

COMMITS = "a coordinator knows the commits that its log has"
ENDS = ("commit", "abort", "drop")
SECONDS_TO_END, LOOK_SECONDS = 120.0, 0.5


async def producer(stage: Stage, words: Words, options: Options) -> list[str]:
    (name,) = exactly(words, 1)
    _refuse_unknown_keys(options, ProducerConfig)
    stage.programs.sender(name, options)
    return []


async def reader(stage: Stage, words: Words, options: Options) -> list[str]:
    name, *partitions = words or [""]
    if not partitions:
        raise ScriptError("reader NAME PARTITION...")
    _refuse_unknown_keys(options, ConsumerConfig)
    stage.programs.reader(name, options, partitions=[partition_of(each) for each in partitions])
    return []


async def member(stage: Stage, words: Words, options: Options) -> list[str]:
    name, group, *topics = words if len(words) > 2 else ["", "", ""]
    if not name:
        raise ScriptError("member NAME GROUP TOPIC...")
    _refuse_unknown_keys(options, ConsumerConfig)
    stage.programs.reader(name, options, group=group, topics=topics)
    return []


async def copier(stage: Stage, words: Words, options: Options) -> list[str]:
    name, group, source, target = exactly(words, 4)
    _refuse_unknown_keys(options, ProducerConfig, ConsumerConfig)
    stage.programs.copier(name, options, group=group, source=source, target=partition_of(target))
    return []


def _refuse_unknown_keys(options: Options, *configs: type[ClientConfig]) -> None:
    known = {key for config in configs for key in keys_of(config)}
    for key in options:
        if key not in known:
            raise ScriptError(f"unknown key {key}{nearest(key, known)}")


async def send(stage: Stage, words: Words, options: Options) -> list[str]:
    words, in_background = background(words)
    name, where, *values = exactly(words, None, options) if len(words) > 2 else ["", "", ""]
    if not name:
        raise ScriptError("send NAME PARTITION VALUE...")
    sender = _sender(stage, name)
    batches = [_new_batch(stage, sender, partition_of(where), value) for value in values]
    sender.send(batches)
    return await _answers(stage, batches, in_background=in_background)


async def transact(stage: Stage, words: Words, options: Options) -> list[str]:
    words, in_background = background(words)
    end = options.pop("end", "commit")
    name, *rest = exactly(words, None, options) or [""]
    sender = _sender(stage, name)
    if end not in ENDS or "transactional.id" not in sender.config:
        raise ScriptError("transact NAME PARTITION VALUE... end=commit|abort|drop")
    where: TopicPartition | None = None
    batches = []
    for word in rest:
        if "-" in word:
            where = partition_of(word)
        elif where is None:
            raise ScriptError("transact NAME PARTITION VALUE...")
        else:
            batches.append(_new_batch(stage, sender, where, word))
    transaction = WitnessedTransaction(producer=name, batches=batches)
    stage.programs.witness.transactions.append(transaction)
    sender.transact(transaction, end)
    if in_background:
        for batch in batches:
            stage.waits_for(batch)
        return []
    await stage.cluster.until(
        lambda: transaction.done or sender.ended.is_set(), what="the transaction has ended"
    )
    return [f"{name}: {transaction.ending.value}"]


def _sender(stage: Stage, name: str) -> SendingClient:
    found = stage.programs.named(name, lambda each: isinstance(each, SendingClient))
    assert isinstance(found, SendingClient), "that was asked for"
    return found


def _new_batch(
    stage: Stage, sender: SendingClient, partition: TopicPartition, value: str
) -> SentRecords:
    batch = stage.new_batch(partition, (value,), ACKS_ALL)
    batch.attempts = 2  # at least: our client does not say
    batch.producer = f"{sender.name}/{stage.programs.lives(sender.name)}"
    return batch


async def _answers(stage: Stage, batches: list[SentRecords], *, in_background: bool) -> list[str]:
    if in_background:
        for batch in batches:
            stage.waits_for(batch)
        return []
    await stage.cluster.until(
        lambda: all(batch.outcome is not None for batch in batches),
        what="our client has an answer",
    )
    return [outcome_of(batch) for batch in batches]


async def seek(stage: Stage, words: Words, options: Options) -> list[str]:
    name, where, offset = exactly(words, 3, options)
    found = stage.programs.named(name, lambda each: isinstance(each, Reader))
    assert isinstance(found, Reader), "that was asked for"
    if found.group is not None:
        raise ScriptError("a member of a group goes on where its group is")
    if partition_of(where) not in found.partitions:
        raise ScriptError(f"{name} does not read {where}")
    found.seek(partition_of(where), number_of(offset))
    return []


async def given(stage: Stage, words: Words, options: Options) -> list[str]:
    name = _known(stage, words, options)
    lines = []
    for partition, happened in sorted(stage.programs.witness.happened.items()):
        values = [
            each.value for each in happened if isinstance(each, Given) and each.reader == name
        ]
        if values:
            lines.append(f"{name}: {partition}: {' '.join(values)}")
    return lines or [f"{name}: nothing"]


def _known(stage: Stage, words: Words, options: Options) -> str:
    (name,) = exactly(words, 1, options)
    if not stage.programs.lives(name):
        raise ScriptError(f"no client of ours is called {name!r}")
    return name


async def errors(stage: Stage, words: Words, options: Options) -> list[str]:
    name = _known(stage, words, options)
    met = dict.fromkeys(
        error for each in stage.programs.all if each.name == name for error in each.errors
    )
    return [f"{name}: {', '.join(met) or 'none'}"]


async def leave(stage: Stage, words: Words, options: Options) -> list[str]:
    words, in_background = background(words)
    (name,) = exactly(words, 1, options)
    program = stage.programs.named(name)
    program.end()
    if not in_background:
        await _have_ended(stage, [program])
    return []


async def drain(stage: Stage, words: Words, options: Options) -> list[str]:
    exactly(words, 0, options)
    programs = stage.programs
    await _have_ended(stage, programs.senders)
    await _eventually(stage, nothing_is_open, "no transaction is open")
    programs.drained |= {each for each in programs.running.values() if not each.ending}
    await _eventually(stage, everything_is_copied, "everything is copied")
    await _eventually(stage, everything_is_read, "our consumers have read everything")
    await _groups_settle(stage)
    await _have_ended(stage, list(programs.running.values()))
    await _end_open_transactions(stage)
    return []


class MemberWaitsError(AssertionError):
    """A member of a group waits although nothing has gone wrong for a long time."""

    rule = "no member of a group waits for ever"


async def _groups_settle(stage: Stage) -> None:
    def are_settled(stage: Stage) -> bool:
        return not members_that_wait(stage)

    try:
        await _eventually(stage, are_settled, MemberWaitsError.rule)
    except NotInTimeError as error:
        raise MemberWaitsError(f"{error}: {'; '.join(members_that_wait(stage))}") from error


async def _end_open_transactions(stage: Stage) -> None:
    """Take over every transactional id, so that no timeout ends a transaction later."""
    ids = {
        each.config.get("transactional.id", each.name) for each in stage.programs.of_transactions
    }
    for transactional_id in sorted(ids):
        stage.programs.sender(f"end-{transactional_id}", {"transactional.id": transactional_id})
    await _have_ended(stage, stage.programs.senders)
    await _eventually(stage, nothing_is_open, "no transaction is open")


async def _have_ended(stage: Stage, programs: Sequence[Program]) -> None:
    for each in programs:
        each.end()

    def have_ended(_: Stage) -> bool:
        return all(each.ended.is_set() for each in programs)

    await _eventually(stage, have_ended, " ".join(["ended:", *(each.name for each in programs)]))


async def _eventually(stage: Stage, ready: Callable[[Stage], bool], what: str) -> None:
    clock = stage.cluster.clock
    with clock.move_on_after(SECONDS_TO_END):
        while not ready(stage):
            await clock.sleep(LOOK_SECONDS)
        return
    raise NotInTimeError(f"not within {SECONDS_TO_END:g} virtual seconds: {what}")


async def judge_groups(stage: Stage, words: Words, options: Options) -> list[str]:
    exactly(words, 0, options)
    if wrong := wrongs_of_coordinators(stage):
        raise InvariantViolatedError(COMMITS, "; ".join(wrong))
    return []


async def judge_clients(stage: Stage, words: Words, options: Options) -> list[str]:
    exactly(words, 0, options)
    for partition, wrong in wrongs(stage):
        if wrong:
            raise BrokenPromiseError(partition, tuple(wrong))
    return []
