"""One seed, one history; a killed node writes and says nothing more."""

import os
import subprocess
import sys
import threading  # noqa: TID251 - another trio, in a thread of its own

import pytest
import trio
from hypothesis import given, strategies as st

from replication.errors import PeerUnavailableError
from replication.net.seams import Connection
from scenarios.world.clock import EPOCH_MS, sleep_until
from scenarios.world.determinism import deterministic_scheduling
from scenarios.world.trace import NodeKilled, NodeStarted, PowerCut
from scenarios.world.world import World
from storage.testing import DetachedError, DiskCosts
from tests.scenarios.toy import Heard, Unheard, trace_of


def test_the_same_seed_tells_the_same_story() -> None:
    first, second = trace_of(7), trace_of(7)
    assert first.trace.entries == second.trace.entries
    assert first.trace_hash() == second.trace_hash()
    assert first.trace_hash() != trace_of(8).trace_hash()


def test_the_toy_story_is_worth_comparing() -> None:
    trace = trace_of(7).trace
    kinds = [type(entry.event) for entry in trace.entries]
    assert kinds.count(Heard) > 100
    assert kinds.count(Unheard) > 5
    assert kinds.count(NodeStarted) == 5
    assert (kinds.count(NodeKilled), kinds.count(PowerCut)) == (1, 1)
    assert trace.received_bytes > 100_000
    assert "node_killed node=b" in str(trace)


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_another_process_with_other_hashes_tells_the_same_story(hash_seed: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tests.scenarios.toy", "7"],
        env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == trace_of(7).trace_hash()


def test_the_order_of_tasks_is_drawn_from_the_seed_and_the_rest_of_trio_left_alone() -> None:
    async def order() -> list[int]:
        ran: list[int] = []

        async def task(i: int) -> None:
            await trio.lowlevel.checkpoint()
            ran.append(i)

        async with trio.open_nursery() as nursery:
            for i in range(20):
                nursery.start_soon(task, i)
        return ran

    def drawn(seed: str) -> list[int]:
        with deterministic_scheduling(seed):
            return trio.run(order)

    state = trio._core._run._r.getstate()
    assert drawn("a") == drawn("a") != drawn("b")
    assert sorted(drawn("a")) == list(range(20))
    assert trio._core._run._r.getstate() == state


def test_another_trio_in_another_thread_draws_nothing_of_ours() -> None:
    ended = threading.Event()

    async def busy() -> None:
        while not ended.is_set():
            await trio.lowlevel.checkpoint()

    alone = trace_of(7).trace_hash()
    beside = threading.Thread(target=trio.run, args=[busy])
    beside.start()
    try:
        assert trace_of(7).trace_hash() == alone
    finally:
        ended.set()
        beside.join()


def test_a_trio_that_cannot_be_seeded_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(trio._core._run, "_r")
    with (
        pytest.raises(RuntimeError, match="cannot be seeded"),
        deterministic_scheduling("a"),
    ):
        raise AssertionError


def test_a_stream_of_chance_is_its_purposes_own() -> None:
    world = World(1)
    assert world.chance("x").random() == World(1).chance("x").random()
    assert world.chance("x").random() != world.chance("y").random()
    assert world.chance("x").random() != World(2).chance("x").random()


def test_a_killed_node_writes_and_says_nothing_more() -> None:
    async def story(world: World) -> None:
        b = world.node("b")
        a = world.node("a")
        listener = await b.transport.listen("b", 9)
        disk = a.file_system

        async def victim(*, task_status: trio.TaskStatus[None]) -> None:
            connection = await a.transport.connect("b", 9)
            file = disk.open("/log", create=True)
            file.write(0, b"appended")
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                with pytest.raises(DetachedError):
                    file.write(8, b" flushed")
                with pytest.raises(DetachedError):
                    disk.open("/clean", create=True)
                with trio.CancelScope(shield=True):
                    with pytest.raises(PeerUnavailableError):
                        await connection.send_buffers([b"goodbye"])
                    with pytest.raises(PeerUnavailableError):
                        await a.transport.connect("b", 9)

        async with trio.open_nursery() as nursery:
            await nursery.start(victim)
            peer = await listener.accept()
            world.kill("a")
            world.kill("a")  # nobody dies twice
            nursery.cancel_scope.cancel()
        assert await peer.receive_into(memoryview(bytearray(10))) == 0
        reborn = world.node("a")
        assert reborn is not a
        assert reborn is world.node("a")
        assert reborn.file_system.list_directory("/") == ["log"]
        # A kill is no power cut: what was written is in the page cache.
        assert reborn.file_system.open("/log").read(0, 100) == b"appended"

    World(1).run(story)


def test_a_power_cut_forgets_what_was_not_synced() -> None:
    async def story(world: World) -> None:
        disk = world.node("a").file_system
        disk.make_directory("/d")
        disk.sync_directory("/")
        kept = disk.open("/d/kept", create=True)
        kept.write(0, b"kept")
        kept.sync()
        disk.sync_directory("/d")
        for i in range(20):
            disk.open(f"/d/unsynced{i}", create=True).write(0, b"x" * 10)
        await trio.lowlevel.checkpoint()
        world.crash_disk("a")
        with pytest.raises(DetachedError):
            kept.read(0, 1)
        after = world.node("a").file_system
        assert after.open("/d/kept").read(0, 10) == b"kept"
        whole = [
            name
            for name in after.list_directory("/d")
            if after.open(f"/d/{name}").read(0, 10) == b"x" * 10
        ]
        assert len(whole) < 20

    World(1).run(story)


def test_a_paused_nodes_wake_ups_are_withheld_and_fall_due_together() -> None:
    async def story(world: World) -> None:
        a, b = world.node("a"), world.node("b")
        listener = await a.transport.listen("a", 9)
        woken: list[tuple[str, float]] = []

        async def sleeper(seconds: float) -> None:
            await a.clock.sleep(seconds)
            woken.append((f"slept {seconds:.0f}", a.clock.now()))

        async def hurried() -> None:
            with a.clock.move_on_after(3) as scope:
                await a.clock.sleep(100)
            assert scope.cancelled_caught
            woken.append(("gave up", a.clock.now()))

        async def reader() -> None:
            connection = await listener.accept()
            await connection.receive_into(memoryview(bytearray(1)))
            woken.append(("read", a.clock.now()))

        async with trio.open_nursery() as nursery:
            for seconds in (1, 2, 30):
                nursery.start_soon(sleeper, seconds)
            nursery.start_soon(hurried)
            nursery.start_soon(reader)
            await b.clock.sleep(1.5)
            world.pause("a")
            await (await b.transport.connect("a", 9)).send_buffers([b"x"])
            nursery.start_soon(sleeper, 4)
            await b.clock.sleep_until(10)
            assert woken == [("slept 1", 1.0)]
            world.resume("a")
        assert sorted(woken[1:]) == [
            ("gave up", 10.0),
            ("read", 10.0),
            ("slept 2", 10.0),
            ("slept 30", 30.0),
            ("slept 4", 10.0),
        ]

    World(1).run(story)


def test_a_node_whose_processor_is_slow_reads_one_message_after_the_other() -> None:
    async def story(world: World) -> None:
        a, b = world.node("a"), world.node("b")
        listener = await a.transport.listen("a", 9)
        world.clock("a").processor_seconds = 0.5
        done: list[tuple[str, float]] = []

        async def read(connection: Connection) -> None:
            await connection.receive_into(memoryview(bytearray(1)))
            done.append(("read", round(world.time.now, 1)))

        async def sleep(seconds: float) -> None:
            await a.clock.sleep(seconds)
            done.append((f"slept {seconds}", round(world.time.now, 1)))

        async with trio.open_nursery() as nursery:
            ends = [await b.transport.connect("a", 9) for _ in range(3)]
            for _ in ends:
                nursery.start_soon(read, await listener.accept())
            nursery.start_soon(sleep, 0.2)
            for end in ends:
                await end.send_buffers([b"x"])
        assert done == [("read", 0.0), ("slept 0.2", 0.5), ("read", 0.5), ("read", 1.0)]

    World(1).run(story)


def test_the_work_of_a_killed_process_keeps_the_next_one_from_nothing() -> None:
    async def story(world: World) -> None:
        a, b = world.node("a"), world.node("b")
        listener = await a.transport.listen("a", 9)
        world.clock("a").processor_seconds = 60.0
        sending = await b.transport.connect("a", 9)
        connection = await listener.accept()
        await sending.send_buffers([b"x"])
        await connection.receive_into(memoryview(bytearray(1)))
        world.kill("a")
        began = world.time.now
        await world.node("a").clock.sleep(1)
        assert world.time.now == pytest.approx(began + 1)

    World(1).run(story)


@given(
    speeds=st.lists(st.tuples(st.floats(0.01, 5), st.floats(0.5, 2)), min_size=1, max_size=6),
    seconds=st.floats(0.001, 20),
)
def test_a_clock_shows_the_sum_of_what_passed_on_it(
    speeds: list[tuple[float, float]], seconds: float
) -> None:
    """The twin adds up virtual time by speed; a sleep never ends before the clock shows its end."""

    async def story(world: World) -> None:
        a = world.node("a")
        ended: list[float] = []

        async def sleep() -> None:
            await a.clock.sleep(seconds)
            ended.append(a.clock.now())

        shown, latest = 0.0, 0.0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleep)
            for duration, speed in speeds:
                world.clock("a").run_at(speed)
                await sleep_until(world.time, world.time.now + duration)
                shown += duration * speed
                assert a.clock.now() == pytest.approx(shown)
                assert a.clock.now() >= latest
                latest = a.clock.now()
        assert ended[0] >= seconds
        assert a.clock.now_ms() == int(a.clock.now() * 1000)

    World(1).run(story)


def test_a_sleep_on_a_clock_that_runs_fast_is_short() -> None:
    async def story(world: World) -> None:
        world.node("a")
        clock = world.clock("a")
        clock.run_at(2.0)
        await clock.sleep(10)
        assert world.time.now == 5.0
        with clock.move_on_after(10) as scope:
            await trio.Event().wait()
        assert scope.cancelled_caught
        assert world.time.now == 10.0
        assert clock.wall_ms() == EPOCH_MS + 20_000

    World(1).run(story)


def test_a_nodes_wall_clock_is_its_own() -> None:
    async def story(world: World) -> None:
        world.node("a")
        world.node("b")
        a, b = world.clock("a"), world.clock("b")
        assert a.wall_ms() == b.wall_ms()
        a.jump_wall(-60_000)
        b.wall_drift = 0.001
        await a.sleep(1000)
        assert a.now() == b.now() == 1000
        assert abs(b.wall_ms() - a.wall_ms() - 61_000) <= 1

    World(1).run(story)


def test_a_slow_disk_is_slow_in_virtual_time() -> None:
    async def story(world: World) -> None:
        a = world.node("a")
        world.disk("a").costs = DiskCosts(sync=7.0)
        file = a.file_system.open("/log", create=True)
        ticks: list[float] = []

        async def tick() -> None:
            while True:
                await a.clock.sleep(1)
                ticks.append(a.clock.now())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(tick)
            await a.offload(file.sync)
            assert a.clock.now() == pytest.approx(7, abs=0.01)
            with trio.CancelScope() as scope:
                scope.cancel()
                await a.clock.sleep(0)
            nursery.cancel_scope.cancel()
        assert len(ticks) in (6, 7), "the node's other tasks ran on"

    World(1).run(story)


def test_the_result_of_offloaded_work_is_not_lost_to_a_cancellation() -> None:
    async def story(world: World) -> None:
        a = world.node("a")
        world.disk("a").costs = DiskCosts(open=5.0)
        opened: list[str] = []

        async def open_it() -> None:
            file = await a.offload(lambda: a.file_system.open("/log", create=True))
            opened.append(file.path)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(open_it)
            await a.clock.sleep(1)
            nursery.cancel_scope.cancel()
        assert opened == ["/log"]
        assert a.clock.now() == pytest.approx(5, abs=0.01)

    World(1).run(story)
