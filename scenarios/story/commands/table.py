"""The commands of stories: the cluster, its topics and waiting here, the others in their modules.

    cluster brokers=3 min.insync.replicas=2     first; further keys as in server.properties,
                                                one node's with its name: b2.broker.rack=r2
    cluster brokers=3 controllers=3             not one controller, c, but c3001, c3002, c3003
    cluster brokers=3 combined=3                b1, b2 and b3 are controllers too
    topic t replicas=b1,b2,b3 retention.ms=-1   t-0, led by b1; `/` begins another partition
    configure b1 flush.messages=1               other keys of server.properties, from its next start
    run 500ms                                   let time pass

    wait leader t-0                 until a running broker leads it
    wait isr t-0 b1,b2,b3           until exactly these are in sync
    wait moved t-0                  until its reassignment is done
    wait whole t-0                  until all its replicas are in sync, and it does not move
    wait equal t-0                  until the ISR has all records, and knows them committed
    wait stable t-0                 until no transaction of it is open, and all is committed
    wait controllers                until one decides, and all nodes have what it has committed

    show t-0                        each replica's log, high watermark (HW), log end (LEO)
    fetching t-0                    where each follower fetches, and after which epoch
    events leader_elected t-0       the events of these kinds (of t-0) since the last `events`

    produce   produce, again, answers, load, loaded
    consume   read, poll, fetch, epoch-end, sessions, commit, commits, committed
    clients   producer, send, transact, reader, member, copier, and what becomes of them
    probes    probe-session, probe-producer, probe-transactions,
              probe-quiet-session, probe-group, probe-throttle, probe-expiry,
              probe-join, probe-silent-member
    admin     alter, delete-topic, remake, grow, reassign, elect, delete-records, offsets;
              finalize, quorum, add-voter, remove-voter
    faults    kill, stop, start, pause, power-cut, cut, hold, tear, slow, ..., recover
    disks     wipe, image, restore, swap, lie, fail, misdirect, rot, spoil, lose, stale; jump, drift, speed
    judge     ledger, verify, judge, judge-controllers, judge-rest

The name of a command is that of its function. What depends on the seed is left out of answers:
times, random ids.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import attrs

from replication.config.known import nearest
from replication.controller.rules.reassignment import is_reassigned
from replication.events import BrokerRegistered, Event
from replication.follower.fetcher_manager import ReplicaFetcherManager
from replication.leader.partition import ReplicaSnapshot
from scenarios.story.arguments import (
    Options,
    Words,
    broker_id_of,
    exactly,
    nodes,
    number_of,
    partition_of,
    refuse_any,
    replicas_of,
    seconds_of,
    split,
)
from scenarios.story.client_stage import ClientStage
from scenarios.story.commands import (
    admin,
    clients,
    consume,
    disks,
    faults,
    judge,
    probes,
    produce,
)
from scenarios.story.log_drawing import checkpointed_epochs, draw, readable_batches
from scenarios.story.script import ScriptError
from scenarios.story.stage import Stage
from scenarios.world.cluster import node_name, partition_directory
from storage.types import TopicPartition

Command: TypeAlias = Callable[[Stage, Words, Options], Awaitable[list[str]]]


async def run_command(stage: Stage, line: str) -> list[str]:
    """Run one command; return its answer. Raises ScriptError if there is no such command."""
    refuse_unknown_command(line, COMMANDS)
    verb, words, options = split(line)
    return await COMMANDS[verb](stage, words, options)


def refuse_unknown_command(line: str, known: Iterable[str]) -> None:
    """Raise ScriptError, with the nearest command that is known, unless the command of `line` is."""
    verb, _, _ = split(line)
    if verb not in known:
        near = nearest(verb, known) or f"; there are {', '.join(known)}"
        raise ScriptError(f"unknown command {verb!r}{near}")


# The cluster and its topics.


async def cluster(stage: ClientStage, words: Words, options: Options) -> list[str]:
    refuse_any(words)
    brokers = number_of(options.pop("brokers", "3"))
    controllers = number_of(options.pop("controllers", "1"))
    combined = number_of(options.pop("combined", "0"))
    if combined > brokers:
        raise ScriptError(f"combined={combined}: there are {brokers} brokers")
    await stage.open(
        brokers=brokers,
        controllers=combined or controllers,
        combined=combined > 0,
        properties=options,
    )
    return [f"{' '.join(stage.cluster.names)} are up"]


async def topic(stage: ClientStage, words: Words, options: Options) -> list[str]:
    (name,) = exactly(words, 1)
    replicas = replicas_of(stage, options)
    if "compact" in options.get("cleanup.policy", ""):
        stage.compacted.add(name)
    await stage.client.create_topic(name, replicas, configs=options)
    stage.requests.created(name, len(replicas))
    stage.judge_answered()
    lines = []
    for number in range(len(replicas)):
        partition = TopicPartition(name, number)
        await stage.until_led(partition)
        lines.append(led_line(stage, partition))
    if name in stage.deleted:
        stage.made_again(name)
    return lines


async def configure(stage: Stage, words: Words, options: Options) -> list[str]:
    (name,) = nodes(stage, exactly(words, 1), {})
    stage.cluster.configure(name, options)
    return []


async def run(stage: ClientStage, words: Words, options: Options) -> list[str]:
    (duration,) = exactly(words, 1, options)
    await stage.cluster.clock.sleep(seconds_of(duration))
    return []


# Waiting.

_AWAITED = ("leader", "moved", "whole", "equal", "stable", "isr", "controllers")


async def wait(stage: Stage, words: Words, options: Options) -> list[str]:
    if words == ["controllers"]:
        await judge.until_controllers_agree(stage)
        return []
    if words[:1] == ["stable"]:
        _, where = exactly(words, 2, options)
        partition = partition_of(where)
        await _until_replicas(
            stage,
            partition,
            lambda: _is_stable(stage, partition),
            what=f"no transaction of {partition} is open",
        )
        return []
    return await wait_for(stage, words, options)


async def wait_for(stage: ClientStage, words: Words, options: Options) -> list[str]:
    """Wait for a partition: whatever cluster it is in."""
    match exactly(words, None, options):
        case ["leader", where]:
            partition = partition_of(where)
            await stage.until_led(partition)
        case ["isr", where, members]:
            partition = partition_of(where)
            wanted = {broker_id_of(stage, name) for name in members.split(",")}
            await _until_replicas(
                stage,
                partition,
                lambda: _isr(stage, partition) == wanted,
                what=f"the isr of {partition} is {members}",
            )
        case ["moved", where]:
            partition = partition_of(where)
            await _until_replicas(
                stage,
                partition,
                lambda: _has_moved(stage, partition),
                what=f"the reassignment of {partition} is done",
            )
        case ["whole", where]:
            partition = partition_of(where)
            await _until_replicas(
                stage,
                partition,
                lambda: _is_whole(stage, partition),
                what=f"all replicas of {partition} are in sync",
            )
            return []
        case ["equal", where]:
            partition = partition_of(where)
            await _until_replicas(
                stage,
                partition,
                lambda: stage.is_equal(partition),
                what=f"those in sync of {partition} are equal",
            )
            return []
        case _:
            raise ScriptError(
                "wait leader, moved, whole, equal or stable PARTITION, isr PARTITION BROKER,..., or"
                f" controllers{nearest(' '.join(words[:1]), _AWAITED)}"
            )
    return [led_line(stage, partition)]


async def _until_replicas(
    stage: ClientStage, partition: TopicPartition, predicate: Callable[[], bool], *, what: str
) -> None:
    """Wait until a broker knows the partition, then until `predicate` is true."""
    await stage.until_known(partition)
    why = partial(stage.why_out_of_sync, partition)
    await stage.cluster.until(predicate, what=what, why=why)


def _is_stable(stage: Stage, partition: TopicPartition) -> bool:
    replica = stage.online(stage.cluster.leader(partition) or "").get(partition)
    return replica is not None and replica.log.last_stable_offset == replica.log.log_end_offset


def _isr(stage: ClientStage, partition: TopicPartition) -> set[int]:
    registration = stage.cluster.partition(partition)
    return set() if registration is None else set(registration.isr)


def _has_moved(stage: ClientStage, partition: TopicPartition) -> bool:
    registration = stage.cluster.partition(partition)
    return registration is not None and not is_reassigned(registration)


def _is_whole(stage: ClientStage, partition: TopicPartition) -> bool:
    registration = stage.cluster.partition(partition)
    return (
        registration is not None
        and not is_reassigned(registration)
        and set(registration.isr) == set(registration.replicas)
    )


def _replica(stage: Stage, name: str, partition: TopicPartition) -> ReplicaSnapshot | None:
    replica = stage.online(name).get(partition)
    return None if replica is None else replica.snapshot()


# Looking.


async def show(stage: Stage, words: Words, options: Options) -> list[str]:
    (where,) = exactly(words, 1, options)
    partition = partition_of(where)
    registration = stage.cluster.partition(partition)
    if registration is None:
        raise ScriptError(f"there is no {partition}")
    names = [node_name(broker_id) for broker_id in registration.replicas]
    looks = {name: _look_at_log(stage, name, partition) for name in names}
    width = max(len(look.drawn) for look in looks.values())
    lines = [led_line(stage, partition)]
    for broker_id, name in zip(registration.replicas, names, strict=True):
        replica = _replica(stage, name, partition)
        if replica is None:
            standing = "down"
        else:
            led = "follows" if replica.leader >= 0 else "waits"
            role = "leads" if replica.is_leader else led
            standing = f"HW {replica.high_watermark}  LEO {replica.log_end_offset}  {role}"
            standing += "" if broker_id in registration.isr else ", not in sync"
        look = looks[name]
        lines.append(", ".join([f"{name}  {look.drawn:<{width}}  {standing}", *look.troubles]))
    return lines


class _Look(NamedTuple):
    drawn: str
    troubles: list[str]


def _look_at_log(stage: Stage, name: str, partition: TopicPartition) -> _Look:
    """Draw what can be read of a node's log, and name what cannot be read, by us or by the node."""
    disk = stage.cluster.disk(name)
    directory = partition_directory(disk, name, partition)
    batches, damage = readable_batches(disk, directory)
    replica = stage.online(name).get(partition)
    if replica is None:
        epochs = checkpointed_epochs(disk, directory)
    else:
        epochs = replica.log.leader_epoch_cache.entries
    return _Look(
        draw(batches, epochs),
        [*([damage] if damage else []), *disks.reading_faults(stage, name, directory)],
    )


def led_line(stage: ClientStage, partition: TopicPartition) -> str:
    registration = stage.cluster.partition(partition)
    assert registration is not None, "a partition that is led exists"
    leader = stage.cluster.leader(partition) or "nobody"
    led = f"{partition}: {leader} leads in epoch {registration.leader_epoch}"
    out_of_sync = [each for each in registration.replicas if each not in registration.isr]
    groups = {"osr": out_of_sync, "elr": registration.elr}
    others = [f", {name} {_names(members)}" for name, members in groups.items() if members]
    return "".join([led, f", isr {_names(registration.isr) or 'nobody'}", *others])


def _names(brokers: Iterable[int]) -> str:
    return " ".join(map(node_name, brokers))


async def fetching(stage: Stage, words: Words, options: Options) -> list[str]:
    (where,) = exactly(words, 1, options)
    partition = partition_of(where)
    lines = []
    for name, manager in stage.cluster.replica_managers.items():
        fetchers = manager.roles.fetchers
        assert isinstance(fetchers, ReplicaFetcherManager), "a broker's fetchers are the real ones"
        state = fetchers.fetch_state(partition)
        if state is not None:
            last = state.last_fetched_epoch
            after = "no record" if last is None else f"a record of epoch {last}"
            lines.append(
                f"{name} fetches from {state.fetch_offset} on in epoch {state.current_leader_epoch},"
                f" after {after}"
            )
    return lines


async def events(stage: Stage, words: Words, options: Options) -> list[str]:
    refuse_any([], options)
    partitions = [word for word in words if re.search(r"-\d+$", word)]
    kinds = [word for word in words if word not in partitions]
    if not kinds:
        raise ScriptError("events KIND... PARTITION...")
    _refuse_unknown_kinds(kinds)
    entries = stage.world.trace.entries[stage.events_shown :]
    _refuse_unknown_partitions(stage, partitions)
    stage.events_shown += len(entries)
    named = [entry for entry in entries if entry.event.name in kinds]
    return [
        f"{entry.node}: {_shown_event(entry.event)}"
        for entry in named
        if not partitions or str(getattr(entry.event, "partition", "")) in partitions
    ]


def _refuse_unknown_kinds(kinds: Sequence[str]) -> None:
    known = sorted(kind.name for kind in Event.__subclasses__())
    for kind in kinds:
        if kind not in known:
            near = nearest(kind, known) or "."
            raise ScriptError(f"there is no event {kind!r}{near} There are {', '.join(known)}")


def _refuse_unknown_partitions(stage: Stage, partitions: Sequence[str]) -> None:
    """Refuse a partition that neither exists nor ever did."""
    for word in partitions:
        reported = any(
            str(getattr(entry.event, "partition", "")) == word
            for entry in stage.world.trace.entries
        )
        if not reported and stage.cluster.partition(partition_of(word)) is None:
            raise ScriptError(f"there is no {word}")


def _shown_event(event: Event) -> str:
    """Return an event's text without what depends on the seed: random ids, times, and which broker
    registered first.
    """
    facts: Mapping[str, object] = attrs.asdict(event, recurse=False)
    shown = [
        f"{name}={value}"
        for name, value in facts.items()
        if not isinstance(value, bytes) and not name.endswith(("_ms", "broker_epoch", "session_id"))
    ]
    if isinstance(event, BrokerRegistered) and event.broker_epoch == event.previous_broker_epoch:
        shown.append("broker_epoch=previous_broker_epoch")
    return " ".join([event.name, *shown])


COMMANDS: Mapping[str, Command] = {
    command.__name__.replace("_", "-"): command
    for command in (
        *(cluster, topic, configure, run, wait, show, fetching, events),
        *(produce.produce, produce.again, produce.answers, produce.load, produce.loaded),
        *(consume.read, consume.poll, consume.fetch, consume.epoch_end, consume.sessions),
        *(consume.commit, consume.commits, consume.committed),
        *(clients.producer, clients.send, clients.transact, clients.reader, clients.member),
        *(clients.copier, clients.seek, clients.given, clients.errors, clients.leave),
        *(clients.drain, clients.judge_clients, clients.judge_groups),
        *(probes.probe_session, probes.probe_producer, probes.probe_transactions),
        *(probes.probe_quiet_session, probes.probe_group, probes.probe_throttle),
        *(probes.probe_expiry, probes.probe_join, probes.probe_silent_member),
        *(admin.alter, admin.delete_topic, admin.remake, admin.delete_records, admin.grow),
        *(admin.reassign, admin.elect, admin.offsets),
        *(admin.finalize, admin.quorum, admin.add_voter, admin.remove_voter),
        *(faults.kill, faults.power_cut, faults.stop, faults.start, faults.pause, faults.resume),
        *(faults.cut, faults.mute, faults.unmute, faults.hold, faults.heal, faults.tear),
        *(faults.slow, faults.late, faults.recover),
        *(disks.wipe, disks.image, disks.restore, disks.swap, disks.lie, disks.fail),
        *(
            disks.misdirect,
            disks.rot,
            disks.spoil,
            disks.lose,
            disks.stale,
            disks.jump,
            disks.drift,
            disks.speed,
        ),
        *(judge.ledger, judge.verify, judge.judge, judge.judge_controllers, judge.judge_rest),
    )
}
