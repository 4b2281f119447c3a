"""A failing run is made shorter, and goes wrong as it did."""

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from replication.cli.scenario import command
from scenarios.story.runner import run_story
from scenarios.story.script import parse
from scenarios.swarm.runner import play, rule_of, run_seed
from scenarios.swarm.shrinking import as_script, shrink, simpler
from tests.mutants.planting import planted

# A leader dies with a record that only it has, and others have many faults meanwhile.
NOISY = """\
cluster brokers=4 min.insync.replicas=2 num.replica.fetchers=2
topic t replicas=b1,b2,b3/b2,b3,b4
produce t-0 acks=all v0 v1 &
kill b4
produce t-1 acks=1 v2 &
run 1s
cut b1 b2 b3
produce t-0 acks=all timeout.ms=2000 v3 v4 &
slow b3 disk=50ms network=50ms
run 500ms
start b4 &
kill b1
run 2s
run 20s
recover
wait isr t-0 b1,b2,b3
judge t-0
"""


@pytest.mark.deep
def test_a_failing_story_is_reported_in_few_words(monkeypatch: pytest.MonkeyPatch) -> None:
    planted("a leader does not commit alone")(monkeypatch)
    run = play(lambda _: NOISY.splitlines(), seed=1)
    shortest = shrink(run, attempts=40)
    assert shortest.rule == run.rule
    assert [line.split()[0] for line in shortest.lines] == ["cluster", "topic", "produce", "run"]


# What has nothing to do with it, before and after; and what is left of it all.
BEFORE = """\
cluster brokers=4 min.insync.replicas=2 b4.broker.rack=r1 num.replica.fetchers=2
topic t replicas=b4,b2,b3/b1,b2,b3
slow b4 disk=50ms network=1ms
run 100ms
produce t-0 as=p1 delivery.timeout.ms=3000 k1:v0 k2:v1 &
jump b3 60s
"""
AFTER = """\
poll t-1 &
run 500ms
recover
wait whole t-1
answers
wait equal t-1
show t-1
judge t-1
"""
DIVERGED = """\
cut b1 b2 b3 c
produce t-1 acks=1 to=b1 v2 &
run 20s
produce t-1 acks=1 v3 v4 &
run 1s
"""


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "fault", "error", "left"),
    [
        (planted("a follower truncates"), DIVERGED, "InvariantViolatedError: .* was given up", 9),
        (
            planted("a follower that has caught up joins the ISR"),
            "kill b3\nrun 12s\nstart b3\n",
            "NotInTimeError: .* in sync",
            7,
        ),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_mistakes_of_any_kind_are_shrunk_to_what_causes_them(
    plant: Any, fault: str, error: str, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    run = play(lambda _: f"{BEFORE}{fault}{AFTER}".splitlines(), seed=1)
    assert re.match(error, run.wrong)
    shortest = shrink(run, attempts=100)
    assert shortest.rule == run.rule
    assert len(shortest.lines) <= left, shortest.lines
    assert "p1" not in str(shortest.lines)
    assert "b4" not in str(shortest.lines)
    with pytest.raises(Exception) as raised:  # noqa: PT011 - of that rule, whatever its type
        run_story(parse(str(as_script(shortest))))
    assert rule_of(raised.value).endswith(run.rule.partition(": ")[2])


@pytest.mark.slow
@pytest.mark.deep
@pytest.mark.parametrize(
    ("plant", "seed", "lines"),
    [
        (planted("a leader does not commit alone"), 4, 8),
        (planted("a follower that has caught up joins the ISR"), 5, 8),
        (planted("a follower that has caught up joins the ISR"), 13, 8),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_planted_mistake_is_shrunk_to_few_lines(
    plant: Any, seed: int, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    run = next(run for run in map(run_seed, range(seed, seed + 20)) if run.wrong)
    shortest = shrink(run)
    assert shortest.rule == run.rule
    assert len(shortest.lines) <= lines < len(run.lines), shortest.lines
    story = parse(str(as_script(shortest)))
    assert story.seed == run.seed
    with pytest.raises(Exception) as raised:  # noqa: PT011 - of that rule, whatever its type
        run_story(story)
    assert rule_of(raised.value).endswith(run.rule.partition(": ")[2])
    monkeypatch.undo()
    assert run_story(story).actual.steps[0].commands == shortest.lines, (
        "nothing is wrong without it"
    )


def test_a_partition_that_nobody_knows_is_another_failure() -> None:
    """A story that has lost its topic is no shorter story of replicas that are not in sync."""
    run = play(lambda _: ("cluster brokers=1", "wait whole t-0"), seed=1)
    assert run.rule == "NotInTimeError: not within N s: a broker knows N"


def test_no_simpler_story_lacks_its_topic() -> None:
    lines = ("cluster brokers=2", "topic t replicas=b1", "kill b2", "wait whole t-0")
    assert all(each[1].startswith("topic t replicas=b1") for each in simpler(lines))
    assert ("cluster brokers=1", *lines[1:2], *lines[3:]) in list(simpler(lines))


def test_a_run_that_passes_is_not_shrunk() -> None:
    with pytest.raises(AssertionError, match="only a run that failed"):
        shrink(run_seed(13))


def test_what_is_simpler() -> None:
    lines = (
        "cluster brokers=3 min.insync.replicas=2",
        "topic t replicas=b1,b3/b2,b3",
        "produce t-1 acks=1 v0 v1 &",
        "kill b3",
        "cut b1 b2 b3",
        "wait isr t-0 b1,b3",
        "judge t-1",
    )
    found = list(simpler(lines))
    assert found[0] == (
        "cluster brokers=2 min.insync.replicas=2",
        "topic t replicas=b1/b2",
        "produce t-1 acks=1 v0 v1 &",
        "cut b1 b2",
        "wait isr t-0 b1",
        "judge t-1",
    )
    assert found[1] == (  # without b2: b3 has its name
        "cluster brokers=2 min.insync.replicas=2",
        "topic t replicas=b1/b2",
        "produce t-1 acks=1 v0 v1 &",
        "kill b2",
        "cut b1 b2",
        "wait isr t-0 b1,b2",
        "judge t-1",
    )
    assert (lines[0], "topic t replicas=b1,b3", *lines[3:6]) in found
    assert (
        (  # without t-0: t-1 has its name
            lines[0],
            "topic t replicas=b2,b3",
            "produce t-0 acks=1 v0 v1 &",
            *lines[3:5],
            "judge t-0",
        )
        in found
    )
    assert (lines[0], "topic t replicas=b3/b3", *lines[2:]) in found
    assert (*lines[:2], "produce t-1 acks=1 v1 &", *lines[3:]) in found
    assert (*lines[:2], "produce t-1 v0 v1 &", *lines[3:]) in found
    assert (*lines[:4], "cut b1 b3", *lines[5:]) in found


@pytest.mark.parametrize(
    ("line", "shorter"),
    [
        ("run 2s", "run 20ms"),
        ("produce t-0 as=p1 k1:v0 k2:v1 &", "produce t-0 as=p1 k2:v1 &"),
        ("produce t-0 as=p1 k1:v0 k2:v1 &", "produce t-0 k1:v0 k2:v1 &"),
        ("heal b1 c b2", "heal b1 b2"),
        ("slow b1 disk=1ms network=50ms", "slow b1 network=50ms"),
    ],
)
def test_what_is_shorter(line: str, shorter: str) -> None:
    assert ("cluster brokers=1", shorter) in list(simpler(("cluster brokers=1", line)))


@pytest.mark.deep
def test_the_swarm_writes_the_shortest_story_of_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted("a follower that has caught up joins the ISR")(monkeypatch)
    save = ["--save", str(tmp_path), "--attempts", "0"]
    result = CliRunner().invoke(
        command, ["swarm", "--seeds", "1", "--from", "5", "--jobs", "1", *save]
    )
    assert result.exit_code == 1, result.output
    (path,) = tmp_path.iterdir()
    assert f"understudy scenario run {path}" in result.output
    run = CliRunner().invoke(command, ["run", str(path)])
    assert run.exit_code == 1
    assert "not within 60 s: all replicas" in str(run.exception)
