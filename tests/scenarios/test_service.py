"""A user's program in the simulated world: the seed that loses a record is found, and replays."""

from pathlib import Path

import pytest
import trio

from replication.errors import ErrorCode, KafkaError
from scenarios import ServiceNode, simulate
from scenarios.service import Records, Simulation
from storage.types import TopicPartition

ORDERS = [b"%d" % number for number in range(30)]


async def copy(node: ServiceNode) -> None:
    orders = node.consumer(
        "orders", group_id="copy", auto_offset_reset="earliest", enable_auto_commit=False
    )
    async with orders, node.producer() as producer:
        while True:
            records = await orders.poll(1000)
            for record in records:
                await producer.send("prices", record.value)
            await orders.commit()


def everything(records: Records) -> None:
    missing = {each.value for each in records["orders"]} - {
        each.value for each in records["prices"]
    }
    assert not missing


def run(service: object, seed: int = 1, **how: object) -> Simulation:
    defaults = {"topics": {"orders": 1, "prices": 1}, "inputs": {"orders": ORDERS}}
    return simulate(service, seed=seed, **defaults | how)  # type: ignore[arg-type]


def test_a_sound_program_passes_and_replays() -> None:
    first, again = (run(copy, check=everything, faults=3) for _ in range(2))
    first.check()
    assert [each.value for each in first.records["orders"]] == ORDERS
    assert first.happened
    assert first.trace_hash == again.trace_hash
    assert first.happened != run(copy, seed=2, faults=3).happened


@pytest.mark.deep
def test_a_group_has_time_to_miss_the_lives_that_were_killed() -> None:
    run(copy, seed=3, check=everything).check()


def test_a_failed_check_names_the_seed_and_the_faults() -> None:
    def never(_: Records) -> None:
        raise AssertionError("lost")

    with pytest.raises(AssertionError, match="lost") as raised:
        run(copy, check=never, faults=2).check()
    assert raised.value.__notes__[0].startswith("seed 1: ")


def test_a_kill_reaches_nobody_and_begins_another_life() -> None:
    lives, seen = list[int](), list[str]()

    async def service(node: ServiceNode) -> None:
        lives.append(node.life)
        try:
            async with node.producer() as producer:
                await producer.send("prices", b"begun")
                await node.sleep(3600)
        finally:
            try:
                async with node.producer() as producer:
                    await producer.send("prices", b"too late")
            except BaseException as error:
                seen.append(type(error).__name__)
                raise

    records = run(service, faults=12).records["prices"]
    assert lives == list(range(1, len(lives) + 1))
    assert len(lives) > 1
    assert seen
    assert {each.value for each in records} == {b"begun"}


def test_an_error_of_kafka_begins_another_life_and_any_other_ends_the_run() -> None:
    lives = list[int]()

    async def service(node: ServiceNode) -> None:
        lives.append(node.life)
        if node.life == 1:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(crash)
        raise ValueError("a mistake")

    async def crash() -> None:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)

    failed = run(service)
    assert lives == [1, 2]
    assert isinstance(failed.failure, ValueError)


def test_a_program_that_returns_is_not_started_again() -> None:
    lives = list[int]()

    async def service(node: ServiceNode) -> None:
        lives.append(node.life)

    run(service, faults=1).check()
    assert lives == [1]


def test_the_report_is_of_the_same_run(tmp_path: Path) -> None:
    run(copy, faults=1).write_report(tmp_path / "page.html")
    assert "Seed 1" in (tmp_path / "page.html").read_text()


def test_a_run_ends_once_the_program_has_caught_up() -> None:
    async def never_commits(node: ServiceNode) -> None:
        async with node.consumer("orders", auto_offset_reset="earliest") as orders:
            orders.assign([TopicPartition("orders", 0)])
            while True:
                await orders.poll(1000)

    done = run(copy, faults=1, settle_seconds=1000, check=everything)
    done.check()
    assert done.virtual_seconds < 200
    assert run(never_commits, faults=1, settle_seconds=300).virtual_seconds > 300
