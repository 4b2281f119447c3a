"""How fast the simulator is: random runs of the swarm, and the story of one failover.

    simulated seconds   against real ones: the floor is 1
    what happens        bytes that arrive and timers that fall due, by the second of one core,
                        against a bare loop in which as many sleepers wake up and no more
    runs                by the minute of all cores: those of 30 virtual seconds or more in which
                        a partition got another leader; the floor is what we want, 1,000
    three controllers   the same seeds with three controllers and with one, each seed in turn, by
                        the minute of processor time
    a failover story    from its first word to its last, warm; the floor is the bare loop again

The bare loop is trio's, on the same virtual time: below that no simulation can come. What one
core does is measured in its own time, what all do by the clock on the wall.
"""

import os
import statistics
import time
from collections.abc import Iterator
from functools import partial

import trio

from scenarios.story.runner import run_story
from scenarios.story.script import find_story, read_story
from scenarios.swarm.generator import drawn_run
from scenarios.swarm.runner import SwarmRun, play, run_seed, run_seeds
from scenarios.world.clock import VirtualTime, sleep_until
from tests.bench.figures import Figure

ALONE = range(1, 13)
TOGETHER = range(1, 121)
WANTED_RUNS = 1000
WORTHY_SECONDS = 30.0
STORY = "a-leader-killed-while-it-holds-an-unreplicated-record"
STORY_SECONDS_GOAL = 0.05
ROUNDS = 15
SLEEPERS = 50


def run() -> Iterator[Figure]:
    run_seed(0)  # warm
    yield from one_core()
    yield all_cores()
    yield three_controllers()
    yield story()


def one_core() -> Iterator[Figure]:
    runs: list[SwarmRun] = []
    seconds: list[float] = []
    bare: list[float] = []
    for seed in ALONE:
        began = time.process_time()
        runs.append(run_seed(seed))
        seconds.append(time.process_time() - began)
        bare.append(_bare_loop(runs[-1].happenings))
    simulated = sum(each.virtual_seconds for each in runs)
    yield Figure("simulated seconds, one core", simulated / sum(seconds), 1.0, "s/s")
    happenings = sum(each.happenings for each in runs)
    yield Figure("events, one core", happenings / sum(seconds), happenings / sum(bare), "/s")


def all_cores() -> Figure:
    jobs = os.cpu_count() or 1
    began = time.perf_counter()
    worthy = sum(map(is_worthy, run_seeds(TOGETHER, jobs=jobs)))
    minutes = (time.perf_counter() - began) / 60
    return Figure(f"runs with a failover, {jobs} cores", worthy / minutes, WANTED_RUNS, "/min", 1.0)


def three_controllers() -> Figure:
    took = {1: 0.0, 3: 0.0}
    for seed in ALONE:
        for count in took:
            began = time.process_time()
            play(partial(drawn_run, controllers=(count,)), seed=seed)
            took[count] += time.process_time() - began
    one, three = (60 * len(ALONE) / each for each in took.values())
    return Figure("runs with three controllers, one core", three, one, "/min")


def is_worthy(swarm_run: SwarmRun) -> bool:
    return swarm_run.virtual_seconds >= WORTHY_SECONDS and swarm_run.failovers > 0


def story() -> Figure:
    script = read_story(find_story(STORY))
    happenings = run_story(script).happenings
    ours_took: list[float] = []
    bare: list[float] = []
    for seed in range(ROUNDS):
        began = time.process_time()
        run_story(script, seed=seed)
        ours_took.append(time.process_time() - began)
        bare.append(_bare_loop(happenings))
    goal = f"(goal {STORY_SECONDS_GOAL * 1000:.0f} ms)"
    ours, floor = statistics.median(ours_took) * 1000, statistics.median(bare) * 1000
    return Figure(f"a failover story, warm {goal}", ours, floor, "ms")


def _bare_loop(happenings: int) -> float:
    """Seconds for so many alarms to wake somebody each."""
    virtual = VirtualTime()

    async def sleeper(number: int) -> None:
        for turn in range(happenings // SLEEPERS):
            await sleep_until(virtual, turn + number / SLEEPERS)

    async def sleepers() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(SLEEPERS):
                nursery.start_soon(partial(sleeper, number))

    began = time.process_time()
    trio.run(sleepers, clock=virtual)
    return time.process_time() - began
