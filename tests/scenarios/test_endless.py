"""A run that would not end by itself is given up, with its seed and with what was waited for."""

import signal
import threading  # noqa: TID251 - where no signal arrives
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from click.testing import CliRunner

from replication.cli.scenario import command
from scenarios.story.commands import table as commands
from scenarios.story.stage import Stage
from scenarios.swarm import runner as swarm
from scenarios.swarm.runner import play
from scenarios.swarm.shrinking import shrink
from scenarios.world.endless import EndlessRunError, limit_cpu_time
from scenarios.world.world import StuckError, World

LOOP = "run 1ms"


async def wait_for_ever(_: World) -> None:
    await trio.sleep_forever()


async def go_round(_: World) -> None:
    while True:
        await trio.lowlevel.checkpoint()


async def ask_again_and_again(world: World) -> None:
    world.node("b1")
    while True:
        await world.clock("b1").sleep(1.0)


@pytest.mark.parametrize(
    ("story", "limit", "complaint"),
    [
        (wait_for_ever, 60.0, "not done after 60 virtual seconds; seed 3: .* wait_for_ever"),
        (ask_again_and_again, 60.0, "not done after 60 virtual seconds; seed 3: .*sleep_until"),
        (go_round, 60.0, "not done after 1000 passes of the scheduler, at 0.000 .* go_round"),
    ],
)
def test_a_story_without_an_end_says_who_waits_and_where(
    story: Any, limit: float, complaint: str
) -> None:
    with pytest.raises(StuckError, match=complaint):
        World(3).run(story, limit=limit, passes=1000)


def test_tasks_that_stand_at_one_place_are_counted() -> None:
    async def many(world: World) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(wait_for_ever, world)

    with pytest.raises(StuckError, match=r"wait_for_ever \(3 tasks\)"):
        World(3).run(many, limit=1.0)


def spin(*_: object) -> None:
    while True:
        pass


def one_line(stage: Stage) -> Iterator[str]:
    yield "cluster brokers=1"
    yield LOOP


def plant(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(*_: object) -> list[str]:
        spin()
        return []

    monkeypatch.setitem(commands.COMMANDS, "run", run)


def test_a_loop_that_awaits_nothing_ends_the_run_and_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    run = play(one_line, seed=4, patience=0.3)
    assert run.is_endless
    assert run.rule == "EndlessRunError: a run has an end"
    assert "0.3 s of the processor's time" in run.wrong
    assert "in spin" in run.wrong
    assert f"(while it did: {LOOP})" in run.wrong
    assert run.lines[-1] == LOOP
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
    assert shrink(run, attempts=5) is run


def test_a_shorter_story_without_an_end_is_the_last_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_: Stage) -> Iterator[str]:
        yield "cluster brokers=1"
        yield "run 1s"
        yield "no such command"

    run = play(broken, seed=4)
    played: list[int] = []

    def endless(*_: Any, **__: Any) -> Any:
        played.append(1)
        raise_once = play(one_line, seed=4, patience=0.2)
        assert raise_once.is_endless
        return raise_once

    plant(monkeypatch)
    monkeypatch.setattr("scenarios.swarm.shrinking.play", endless)
    assert shrink(run, attempts=50).rule == run.rule
    assert played == [1]


def test_a_loop_that_takes_every_exception_for_its_own_is_ended_too() -> None:
    caught = []

    def go_on() -> None:
        while True:
            try:
                spin()
            except Exception as error:  # noqa: BLE001 - what a task of ours might do
                caught.append(error)

    with pytest.raises(EndlessRunError), limit_cpu_time(0.2):
        go_on()
    assert not caught


def test_runs_within_their_limit_are_left_alone() -> None:
    with limit_cpu_time(60.0):
        pass
    with pytest.raises(KeyError), limit_cpu_time(60.0):
        raise KeyError
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_in_another_thread_nothing_is_bounded() -> None:
    ran = []

    def work() -> None:
        with limit_cpu_time(60.0):
            ran.append(signal.getitimer(signal.ITIMER_VIRTUAL))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ran == [(0.0, 0.0)]


def test_a_swarm_goes_on_after_a_seed_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(stage: Stage, *_: object) -> list[str]:
        if stage.world.seed == 5:
            spin()
        return []

    monkeypatch.setitem(commands.COMMANDS, "run", run)
    monkeypatch.setattr(swarm, "drawn_run", one_line)
    monkeypatch.setattr(swarm, "limit_cpu_time", lambda _: limit_cpu_time(0.3))
    result = CliRunner().invoke(command, ["swarm", "--seeds", "2", "--from", "5", "--jobs", "1"])
    assert result.exit_code == 1
    assert "seed 5: EndlessRunError: not done after 0.3 s of the processor's time" in result.output
    assert "understudy scenario replay --seed 5" in result.output
    assert "2 seeds from 5, 1 failed" in result.output
