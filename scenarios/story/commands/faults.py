"""The faults of nodes and links, and how they end.

    kill b1        stop b1 (in good order)      start b1 (or: start b1 &)
    power-cut b1   power-cut b1 leaving=nothing (of what was not synced)
    power-cut b1 at=rename names=*.log after=2    once two changes of its disk are done, from the
                                                  next rename of such a file on
    pause b1       resume b1        cut b1 b2 b3 (b1 from both)   heal
    mute b1 b2 (b2 no longer hears b1)        unmute b1 b2 (and again)
    slow b1 disk=500ms network=200ms cpu=5ms  (for each piece of bytes that it receives)
    late b1 b2 200ms                          messages from b1 to b2 take so long
    hold b1 c ALTER_PARTITION                 mute b1 to c, on connections for that API
    hold b1 b2 FETCH after=1                  the same, once one more message has passed
    heal b1 b2 c                              the links between b1 and these two only
    tear b1 b2                                the next message from b1 to b2 breaks off
    tear c b1 ALTER_PARTITION                 the next one for that API, once c has acted
    recover                         heal, resume and speed up all, start all that are down, and
                                    start again who has lost a log directory

Each of several controllers is named as brokers are: `kill c3001`.
The story waits for a start or a stop, unless it ends in `&`: a node may be killed while it starts,
or never come up.
"""

from replication.errors import UnderstudyError
from replication.wire.apis import ApiKey
from scenarios.story.arguments import (
    Options,
    Words,
    background,
    exactly,
    machines,
    nodes,
    number_of,
    refuse_any,
    running_nodes,
    seconds_of,
)
from scenarios.story.client_stage import ClientStage
from scenarios.story.commands.disks import (
    OPERATIONS,
    READING,
    end_lie,
    put_back_misdirected,
    repair_checkpoints,
    repair_flipped_bits,
)
from scenarios.story.script import ScriptError
from scenarios.story.stage import Stage
from scenarios.world.client import CLIENT
from storage.errors import StorageError
from storage.testing import DiskCosts
from storage.testing.disk import Fate

_CHANGES = [each for each in OPERATIONS if each not in READING]
_FATES = {fate.name.lower().replace("_", "-"): fate for fate in Fate}


async def kill(stage: ClientStage, words: Words, options: Options) -> list[str]:
    for name in running_nodes(stage, words, options):
        await stage.kill(name)
    return []


async def power_cut(stage: Stage, words: Words, options: Options) -> list[str]:
    leaving, operation = options.pop("leaving", None), options.pop("at", None)
    if leaving not in (None, *_FATES) or operation not in (None, *_CHANGES):
        raise ScriptError(
            f"power-cut NODE... leaving={'|'.join(_FATES)} at={'|'.join(_CHANGES)} names=*.log after=2"
        )
    fate = None if leaving is None else _FATES[leaving]
    if operation is None:
        for name in nodes(stage, words, options):
            await stage.cluster.cut_power(name, fate)
        return []
    names, after = options.pop("names", "*"), number_of(options.pop("after", "0"))
    for name in nodes(stage, words, options):
        stage.cluster.let_power_fail(name, fate, operation=operation, names=names, after=after)
    return []


async def stop(stage: ClientStage, words: Words, options: Options) -> list[str]:
    words, in_background = background(words)
    for name in nodes(stage, running_nodes(stage, words, options), {}):
        if in_background:
            stage.start_or_stop_in_background(name, stage.cluster.stop)
        else:
            await stage.cluster.stop(name)
    return []


async def start(stage: ClientStage, words: Words, options: Options) -> list[str]:
    words, in_background = background(words)
    refused = []
    for name in nodes(stage, words, options):
        if stage.cluster.is_running(name):
            raise ScriptError(f"{name} is up")
        if in_background:
            stage.start_or_stop_in_background(name, stage.cluster.start)
        else:
            try:
                await stage.cluster.start(name)
            except (UnderstudyError, StorageError) as error:
                refused.append(f"{name} does not start: {error}")
    return refused


async def pause(stage: ClientStage, words: Words, options: Options) -> list[str]:
    for name in running_nodes(stage, words, options):
        stage.pause(name)
    return []


async def resume(stage: ClientStage, words: Words, options: Options) -> list[str]:
    for name in running_nodes(stage, words, options):
        stage.resume(name)
    return []


async def cut(stage: ClientStage, words: Words, options: Options) -> list[str]:
    name, *others = _at_least_two(stage, words, options)
    for other in others:
        stage.network.cut(name, other)
    return []


async def mute(stage: ClientStage, words: Words, options: Options) -> list[str]:
    name, *others = _at_least_two(stage, words, options)
    for other in others:
        stage.network.cut(name, other, one_way=True)
    return []


async def unmute(stage: ClientStage, words: Words, options: Options) -> list[str]:
    name, *others = _at_least_two(stage, words, options)
    for other in others:
        stage.network.heal(name, other, one_way=True)
    return []


def _at_least_two(stage: ClientStage, words: Words, options: Options) -> Words:
    if len(machines(stage, words, options)) < 2:
        raise ScriptError("takes two nodes at least")
    return words


async def tear(stage: ClientStage, words: Words, options: Options) -> list[str]:
    if len(words) == 2:
        name, other = machines(stage, words, options)
        stage.network.tear(name, other)
    else:
        name, other, api = exactly(words, 3, options)
        machines(stage, [name, other], {})
        stage.network.tear(name, other, _api(api))
    return []


async def hold(stage: ClientStage, words: Words, options: Options) -> list[str]:
    after = number_of(options.pop("after", "0"))
    name, other, api = exactly(words, 3, options)
    machines(stage, [each for each in (name, other) if each != CLIENT], {})
    stage.network.hold(name, other, _api(api), after=after)
    return []


def _api(name: str) -> ApiKey:
    if name not in ApiKey.__members__:
        raise ScriptError(f"there is no API {name!r}: FETCH is one")
    return ApiKey[name]


async def heal(stage: ClientStage, words: Words, options: Options) -> list[str]:
    network = stage.network
    if not words:
        refuse_any(words, options)
        network.heal_all()
        return []
    name, *others = machines(stage, words, options)
    if not others:
        raise ScriptError("heal, or heal NODE OTHER...")
    for other in others:
        network.heal(name, other)
    return []


async def slow(stage: Stage, words: Words, options: Options) -> list[str]:
    parts = ("disk", "network", "cpu")
    slowness = {key: seconds_of(options.pop(key)) for key in parts if key in options}
    if not slowness:
        raise ScriptError("slow NODE... disk=500ms network=200ms cpu=5ms")
    for name in nodes(stage, words, options):
        if "disk" in slowness:
            stage.world.disk(name).costs = DiskCosts(sync=slowness["disk"])
        if "network" in slowness:
            slow_network(stage, name, slowness["network"])
        if "cpu" in slowness:
            stage.world.clock(name).processor_seconds = slowness["cpu"]
    return []


def slow_network(stage: ClientStage, name: str, seconds: float) -> None:
    """Delay what a node and the others send to each other."""
    half = seconds / 2
    for other in _others(stage, name):
        stage.network.set_delay(name, other, least=half, mean_extra=half)


async def late(stage: ClientStage, words: Words, options: Options) -> list[str]:
    *ends, duration = exactly(words, 3, options)
    source, target = machines(stage, ends, {})
    half = seconds_of(duration) / 2
    stage.network.set_delay(source, target, least=half, mean_extra=half, one_way=True)
    return []


async def recover(stage: Stage, words: Words, options: Options) -> list[str]:
    refuse_any(words, options)
    cluster, world = stage.cluster, stage.world
    world.network.heal_all()
    repair_flipped_bits(stage)
    repair_checkpoints(stage)
    for name in [*cluster.names, *stage.programs.running]:
        if world.clock(name).paused:
            world.resume(name)
    for name in cluster.names:
        world.clock(name).processor_seconds = 0.0
        world.clock(name).run_at(1.0)
        world.disk(name).costs = DiskCosts()
        end_lie(world.disk(name))
        world.disk(name).faults.clear()
        put_back_misdirected(world.disk(name))
        least, mean_extra = world.network.least_delay, world.network.mean_extra_delay
        for other in _others(stage, name):
            world.network.set_delay(name, other, least=least, mean_extra=mean_extra)
    # Without a controller no broker comes up, and it may be stopping itself.
    while not await stage.until_none_starts_or_stops():
        await cluster.nodes.start_controller()
    for name in cluster.short_of_a_directory:
        await cluster.kill(name)
    await cluster.nodes.start()
    return []


def _others(stage: ClientStage, name: str) -> list[str]:
    return [other for other in stage.cluster.names if other != name]
