"""Each row of the swarm's table can be drawn, and its lines are a story's."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from functools import cache

import attrs
import pytest

from scenarios.story.stage import Stage
from scenarios.swarm.faults import (
    COMBINED_FAULTS,
    EXAMINATIONS,
    FAULTS,
    FETCH_VERSION,
    GROUP_FAULTS,
    HARDWARE_FAULTS,
    LAST_FAULTS,
    PROTOCOL_FAULTS,
    QUORUM_FAULTS,
    FaultKind,
)
from scenarios.swarm.generator import RunGenerator, drawn_run
from scenarios.swarm.runner import play, run_seed
from scenarios.swarm.settings import (
    CONTEST,
    KINDS,
    LONG_RUN,
    NOT_WITH_CLIENTS,
    TAKE_PART,
    TRANSACTIONAL,
    RunPlan,
    drawn_plan,
)
from scenarios.swarm.situation import Situation, newcomer, settled
from scenarios.world.world import World
from storage.types import TopicPartition
from tests.deep import one_in

IN_NO_FRACTION = {"brokers", "copies", "partitions", "racks", "throttle", "compacted"}

BEFORE = {
    "start": "kill b2",
    "disk-replaced": "kill b2",
    "checkpoint-rots": "kill b2",
    "index-rots": "produce t-0 acks=all more",
    "resume": "pause b2",
    "heal": "cut b1 b2",
    "client-starts": "kill r1",
    "client-resumes": "pause r1",
    "kill-controller-asked": "hold b1 c ALTER_PARTITION;cut b1 b2;produce t-0 acks=1 x &;run 3s",
}
"""What has to happen first, so that somebody is in the state for a fault."""


WITH_SPARES = (
    "b1.log.dirs=/b1/log,/b1/spare b3.log.dirs=/b3/log,/b3/spare log.index.interval.bytes=1 "
)


@cache
def plans() -> list[RunPlan]:
    return [drawn_plan(random.Random(seed)) for seed in range(400)]


@cache
def contests() -> list[RunPlan]:
    return [plan for plan in plans() if plan.is_contest]


@cache
def long_runs() -> list[RunPlan]:
    return [plan for plan in plans() if not plan.is_contest]


def with_all_clients() -> RunPlan:
    return next(plan for plan in contests() if plan.clients.kinds == tuple(KINDS))


def test_names_are_unique() -> None:
    names = [
        fault.name
        for fault in (
            *(FAULTS + GROUP_FAULTS + QUORUM_FAULTS + COMBINED_FAULTS),
            *(HARDWARE_FAULTS + PROTOCOL_FAULTS + LAST_FAULTS + EXAMINATIONS),
        )
    ]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("fault", "controllers"),
    [
        *one_in(9, [(each, "") for each in (*FAULTS, *LAST_FAULTS)]),
        *one_in(2, [(each, "") for each in (*GROUP_FAULTS, *PROTOCOL_FAULTS)]),
        *one_in(3, [(each, WITH_SPARES) for each in HARDWARE_FAULTS]),
        *one_in(9, [(each, "controllers=3 ") for each in QUORUM_FAULTS]),
        *one_in(2, [(each, "combined=3 ") for each in COMBINED_FAULTS]),
    ],
    ids=lambda each: each.name if isinstance(each, FaultKind) else each.strip(),
)
def test_the_lines_of_a_fault_are_a_story(fault: FaultKind, controllers: str) -> None:
    drawn: list[str] = []

    def plot(stage: Stage) -> Iterator[str]:
        plan = attrs.evolve(with_all_clients(), steps=0, controller_fails=True, faults={fault: 1})
        generator = RunGenerator(stage, random.Random(7), plan)
        brokers = 4 if fault.needs is newcomer else 3
        yield f"cluster brokers={brokers} {controllers}{CALM}"
        generator.situation.untrusted = "b2"
        yield "topic t replicas=b1,b2,b3/b2,b3,b1 "
        yield from generator.clients_begin(["b1", "b2", "b3"])
        yield "produce t-0 acks=all before"
        yield "send p1 t-0 sent"
        yield "run 5s"
        yield from filter(None, BEFORE.get(fault.name, "").split(";"))
        for _ in range(40):
            if not drawn:
                for line in generator.lines_of(fault):
                    drawn.append(line)
                    yield line
        yield "recover"

    run = play(plot, seed=1)
    assert not run.wrong, run.traceback
    assert drawn


def test_an_examined_run_ends_with_every_examination() -> None:
    """A run with one batch in a fetch, which names no epoch, where nobody has asked for a group or a
    transaction.
    """
    plan = attrs.evolve(contests()[0], steps=0, faults={}, is_examined=True, topic={})
    plan = attrs.evolve(plan, clients=attrs.evolve(plan.clients, kinds=()), partitions=1)
    settings = {"replica.fetch.max.bytes": 100, "min.insync.replicas": 1, FETCH_VERSION: 6}
    plan = attrs.evolve(plan, settings=settings, compacted=False, racks=())

    def plot(stage: Stage) -> Iterator[str]:
        return RunGenerator(stage, random.Random(7), plan).lines()

    run = play(plot, seed=1)
    assert not run.wrong, run.traceback
    verbs = {line.split()[0] for line in run.lines}
    wanted = {each.split()[0] for fault in EXAMINATIONS for each in fault.lines.strip().split("\n")}
    assert {each for each in wanted if each.startswith(("probe", "judge"))} <= verbs
    ends = {fault.lines.strip().splitlines()[-1].strip() for fault in EXAMINATIONS}
    assert {each for each in ends if each.startswith("wait")} <= set(run.lines)


CALM = (
    "min.insync.replicas=2 replica.lag.time.max.ms=500 offsets.topic.num.partitions=1"
    " transaction.state.log.num.partitions=1 group.initial.rebalance.delay.ms=0"
)


def test_every_fault_is_in_some_runs_and_not_in_all() -> None:
    for drawn_plans, column in ((long_runs(), 0), (contests(), 1)):
        drawn = Counter(fault.name for plan in drawn_plans for fault in plan.faults)
        for fault in FAULTS:
            count = drawn[fault.name]
            if not fault.weight[column]:
                assert count == 0, fault.name
            elif fault.always:
                assert count == len(drawn_plans), fault.name
            else:
                assert 0.1 * len(drawn_plans) < count < 0.6 * len(drawn_plans), fault.name


def test_a_run_has_the_settings_that_its_faults_need() -> None:
    for plan in plans():
        for fault in plan.faults:
            for key, values in fault.settings.items():
                least = min(2, plan.copies)
                has = least if key == "min.insync.replicas" else plan.settings.get(key)
                if key == "partitions":
                    has = plan.partitions
                assert has in (*values, least), (fault.name, key)


@pytest.mark.parametrize(("draw", "choices"), [(long_runs, LONG_RUN), (contests, CONTEST)])
def test_every_value_of_a_setting_is_drawn(
    draw: Callable[[], list[RunPlan]], choices: object
) -> None:
    assert isinstance(choices, dict)
    for key, values in choices.items():
        if key not in IN_NO_FRACTION:
            found = {plan.settings.get(key) for plan in draw()}
            assert {value for value in values if value is not None} <= found, key
    assert {plan.copies for plan in long_runs()} == {1, 2, 3, 4, 5}
    assert any(plan.racks for plan in long_runs())
    assert any("follower.replication.throttled.rate" in plan.settings for plan in long_runs())


def test_runs_differ_in_how_their_clients_produce() -> None:
    ways = {plan.ways for plan in long_runs()}
    assert any("as=p1" in way for way in ways)
    assert any("delivery.timeout.ms" in way and "as=" not in way for way in ways)
    assert any("delivery.timeout.ms" not in way for way in ways)
    assert any(plan.compacted for plan in long_runs())


def test_some_runs_have_our_clients() -> None:
    with_clients = [plan for plan in plans() if plan.clients.kinds]
    assert TAKE_PART * 300 < len(with_clients) < TAKE_PART * 500
    assert {kind for plan in with_clients for kind in plan.clients.kinds} == set(KINDS)
    for plan in with_clients:
        assert not {fault.name for fault in plan.faults} & set(NOT_WITH_CLIENTS)
        assert not (plan.compacted and set(TRANSACTIONAL) & set(plan.clients.kinds))
    nobody = next(plan.clients for plan in plans() if not plan.clients.kinds)
    assert nobody.settings(3, 2) == {}
    assert not [*nobody.beginning(random.Random(1), ["b1"]), *nobody.judgement()]


@pytest.mark.deep
def test_a_run_with_all_of_our_clients() -> None:
    seed = next(seed for seed in range(1, 400) if clients_of(seed) == tuple(KINDS))
    run = run_seed(seed)
    assert not run.wrong, run.traceback
    verbs = {line.split()[0] for line in run.lines}
    assert {"producer", "reader", "member", "copier", "drain", "judge-clients"} <= verbs


def clients_of(seed: int) -> tuple[str, ...]:
    plans: list[RunPlan] = []

    def plot(stage: Stage) -> Iterator[str]:
        chance = stage.world.chance("swarm")
        chance.random()
        plans.append(drawn_plan(chance))
        return iter(())

    play(plot, seed=seed)
    return plans[0].clients.kinds


def test_a_copy_loop_is_replaced_while_its_transaction_is_open() -> None:
    """Whatever is held up of it is held before it stops, and it wakes up in the end."""
    [fault] = [each for each in LAST_FAULTS if each.name == "copier-taken-over"]
    lines: list[str] = []

    def plot(stage: Stage) -> Iterator[str]:
        plan = attrs.evolve(with_all_clients(), steps=0, faults={})
        generator = RunGenerator(stage, random.Random(7), plan)
        yield f"cluster brokers=3 {CALM}"
        yield "topic t replicas=b1,b2,b3"
        yield "topic u replicas=b1,b2,b3"
        generator.situation.client_lines["w1"] = line = "copier w1 h t u-0"
        yield line
        yield "produce t-0 acks=all before"
        yield "run 5s"
        for line in generator.lines_of(fault):
            lines.append(line)
            yield line

    assert not play(plot, seed=1).wrong
    [replaced] = [line.split()[1] for line in lines if line.startswith("pause")]
    [held] = [number for number, line in enumerate(lines) if line.startswith(f"hold {replaced}")]
    assert held < lines.index(f"pause {replaced}") < lines.index(f"resume {replaced}")


def test_a_client_that_is_leaving_begins_again_to_read_the_rest() -> None:
    lines: list[str] = []

    def plot(stage: Stage) -> Iterator[str]:
        member = "member m1 g t session.timeout.ms=6000"
        situation = Situation(stage, random.Random(1), client_lines={"m1": member})
        clients = attrs.evolve(with_all_clients().clients, kinds=("member",), protocols="classic")
        yield "cluster brokers=1 offsets.topic.num.partitions=1 offsets.topic.replication.factor=1"
        yield from ("topic t replicas=b1", member, "run 5s", "leave m1 &")
        for line in clients.draining(situation):
            lines.append(line)
            yield line

    assert not play(plot, seed=1).wrong
    assert lines[-3:] == ["leave m1", "member m1 g t session.timeout.ms=6000", "drain"]


def test_no_topic_is_made_again_while_the_last_broker_is_on_its_way_down() -> None:
    found = []

    def plot(stage: Stage) -> Iterator[str]:
        situation = Situation(stage, random.Random(1))
        yield from ("cluster brokers=1", "topic t replicas=b1")
        found.append(settled(situation))
        yield "stop b1 &"
        found.append(settled(situation))

    assert not play(plot, seed=1).wrong
    assert found == [{"assigned": "b1"}, None]


def test_no_topic_is_made_again_where_nobody_knows_its_replicas() -> None:
    found = []

    def plot(stage: Stage) -> Iterator[str]:
        situation = Situation(stage, random.Random(1))
        yield from ("cluster brokers=1", "topic t replicas=b1")
        situation.partition = TopicPartition("t", 7)
        found.append(settled(situation))

    assert not play(plot, seed=1).wrong
    assert found == [None]


@pytest.mark.parametrize("leaves", ["stop b2 &", "fail b2 write names=*.log error=ENOSPC skip=3"])
def test_a_topic_is_not_made_again_on_a_broker_alone_that_leaves(leaves: str) -> None:
    found: set[str] = set()

    def plot(stage: Stage) -> Iterator[str]:
        situation = Situation(stage, random.Random(1))
        yield from ("cluster brokers=2", "topic t replicas=b2", leaves)
        found.update(roles["assigned"] for _ in range(20) if (roles := settled(situation)))

    assert not play(plot, seed=1).wrong
    assert found == {"b1"}


def test_a_line_that_cannot_be_carried_out_is_left_out() -> None:
    allowed: dict[str, bool] = {}
    lines = (
        (
            "kill b1",
            "stop b1 &",
            "pause b1",
            "start b2 &",
            "wipe b2",
            "resume b3",
            "image b1 of-b1",
        ),
        (
            "kill b2",
            "stop b3",
            "start b1",
            "wipe b1",
            "resume b1",
            "restore b2 of-b2",
            "hold c c X",
            "pause",
            "resume",
        ),
    )

    def plot(stage: Stage) -> Iterator[str]:
        situation = Situation(stage, random.Random(1), client_lines={"p1": "producer p1"})
        yield from ("cluster brokers=3", "kill b2", "pause b3")
        allowed.update({line: situation.allows(line) for group in lines for line in group})
        allowed["send p1 t-0 a"] = situation.allows("send p1 t-0 a")

    assert not play(plot, seed=1).wrong
    assert [line for line, is_allowed in allowed.items() if is_allowed] == list(lines[0])


def test_everything_recovers_where_a_rotten_log_is_damaged_before_that() -> None:
    lines = (
        *("cluster brokers=1", "topic t replicas=b1", "produce t-0 one"),
        *("stop b1", "rot b1 t-0 0", "spoil b1 t-0/*.log", "recover"),
    )
    assert not play(lambda _: lines, seed=1).wrong


def test_a_seed_gives_its_lines() -> None:
    first, again = (run_seed(17).lines for _ in range(2))
    assert first == again
    assert first != run_seed(13).lines


def test_a_run_is_drawn_without_its_story_being_told() -> None:
    stage = Stage(world=World(3), stack=AsyncExitStack())
    assert next(iter(drawn_run(stage))).startswith("cluster brokers=")
