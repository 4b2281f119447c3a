"""The view of `understudy top`: which partitions, in which order, with which reasons."""

from collections.abc import Sequence

import attrs
import pytest
from click.testing import CliRunner
from rich.console import Console

from replication.cli import group as understudy
from replication.cli.choosing import Only
from replication.cli.top import filtered, plain_rows, quorum_line, screen, summary
from replication.observe.cluster_state import (
    ClusterState,
    ObservedBroker,
    ObservedPartition,
    ObservedQuorum,
    ObservedQuorumNode,
    ObservedReplica,
    Role,
    Status,
)

LEADER = ObservedReplica(
    broker=1, role=Role.LEADER, in_isr=True, why="in the ISR: it leads", leader_epoch=4,
    log_start_offset=0, log_end_offset=1200, high_watermark=1180, lag=0,
)  # fmt: skip
OUT = ObservedReplica(
    broker=2, role=Role.FOLLOWER, in_isr=False, why="left the ISR: it lacked records",
    log_end_offset=1000, lag=200,
)  # fmt: skip


def partition(topic: str, *, isr: tuple[int, ...] = (1,), min_isr: int = 1) -> ObservedPartition:
    return ObservedPartition(
        topic=topic, partition=0, leader=1, leader_epoch=4, isr=isr, replicas=(LEADER, OUT),
        min_isr=min_isr,
    )  # fmt: skip


WELL = attrs.evolve(
    partition("well", isr=(1, 2)), replicas=(LEADER, attrs.evolve(OUT, in_isr=True, lag=0))
)
BEHIND = partition("behind")
ALONE = attrs.evolve(partition("alone"), leader=None)


def state(*partitions: ObservedPartition) -> ClusterState:
    return ClusterState(
        now_ms=0,
        cluster_id="c",
        controller=1,
        controller_status=Status.UNKNOWN,
        brokers=(
            ObservedBroker(id=1, host="h", port=1, status=Status.UP),
            ObservedBroker(id=2, host="h", port=2, status=Status.UNKNOWN, why="it does not answer"),
        ),
        partitions=partitions,
        number_of_partitions=len(partitions),
    )


def shown(found: ClusterState, *, height: int) -> list[str]:
    text = Console(width=110, force_terminal=False)
    with text.capture() as capture:
        text.print(screen(found, height=height))
    return [line.rstrip() for line in capture.get().splitlines()]


def names(found: ClusterState) -> Sequence[str]:
    return [each.topic for each in found.partitions]


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        pytest.param(Only(), ["alone", "behind", "well"], id="all, those in trouble first"),
        pytest.param(Only(under_replicated=True), ["alone", "behind"], id="under-replicated"),
        pytest.param(Only(unavailable=True), ["alone"], id="without a leader"),
        pytest.param(Only(at_min_isr=True), ["alone", "behind"], id="at the minimum"),
        pytest.param(Only(under_min_isr=True), ["alone"], id="below it, as nobody leads"),
    ],
)
def test_kafkas_filters_choose(only: Only, expected: list[str]) -> None:
    assert names(filtered(state(WELL, BEHIND, ALONE), only)) == expected


def test_each_partition_has_a_row_and_below_it_the_replicas_out_of_sync() -> None:
    lines = shown(state(BEHIND, WELL), height=20)
    assert lines[0] == (
        "1 of 2 brokers up (2: it does not answer) · 2 partitions, 1 under-replicated,"
        " 0 without a leader"
    )
    assert lines[1] == "metadata: no controller is known to lead"
    assert lines[2].split() == [
        "PARTITION", "LEADER", "EPOCH", "LEO", "HW", "LAG", "ISR", "REPLICAS",
    ]  # fmt: skip
    assert lines[3].split() == [
        "behind-0",
        "1",
        "4",
        "1,200",
        "1,180",
        "200",
        "1",
        "of",
        "2",
        "1*",
        "!2",
    ]
    assert lines[4].strip() == "2: 200 behind, left the ISR: it lacked records"
    assert lines[5].split() == [
        "well-0",
        "1",
        "4",
        "1,200",
        "1,180",
        "0",
        "2",
        "of",
        "2",
        "1*",
        "2",
    ]
    assert len(lines) == 6


QUORUM = ObservedQuorum(
    leader=3002,
    leader_epoch=4,
    high_watermark=1498,
    voters=tuple(
        ObservedQuorumNode(id=each, status=Status.UNKNOWN, log_end_offset=end)
        for each, end in ((3001, 300), (3002, 1500), (3003, None))
    ),
    observers=(ObservedQuorumNode(id=1, status=Status.UP, log_end_offset=1500),),
)


@pytest.mark.parametrize(
    ("quorum", "line"),
    [
        pytest.param(
            QUORUM,
            "metadata: 3002 leads in epoch 4, HW 1,498 · voters 3001 (-1,200) 3002* 3003 (?)"
            " · observers 1",
            id="with its lags",
        ),
        pytest.param(
            attrs.evolve(QUORUM, observers=()),
            "metadata: 3002 leads in epoch 4, HW 1,498 · voters 3001 (-1,200) 3002* 3003 (?)"
            " · observers none",
            id="no observers",
        ),
        pytest.param(
            attrs.evolve(QUORUM, leader=1, voters=QUORUM.observers, observers=()),
            "metadata: 1 leads in epoch 4, HW 1,498 · voters 1* · observers none · both roles 1",
            id="a node with both roles",
        ),
        pytest.param(
            attrs.evolve(QUORUM, leader=None),
            "metadata: no controller is known to lead",
            id="no leader",
        ),
    ],
)
def test_the_quorum_is_one_line(quorum: ObservedQuorum, line: str) -> None:
    assert quorum_line(attrs.evolve(state(), quorum=quorum)) == line
    assert shown(attrs.evolve(state(), quorum=quorum), height=20)[1] == line


def test_no_more_rows_are_drawn_than_fit_on_the_screen() -> None:
    many = state(*(attrs.evolve(WELL, partition=number) for number in range(50)))
    lines = shown(many, height=10)
    assert len(lines) == 10
    assert lines[-1] == "44 more"


def test_unknown_values_are_question_marks_and_reasons_are_the_last_column_in_a_pipe() -> None:
    unknown = attrs.evolve(
        LEADER, log_end_offset=None, high_watermark=None, lag=None, is_live=False
    )
    found = attrs.evolve(BEHIND, replicas=(unknown, attrs.evolve(OUT, lag=None)))
    assert plain_rows(state(found)) == [
        (
            "behind-0", "1", "4", "?", "?", "?", "1 of 2", "1* !2",
            "2: left the ISR: it lacked records",
        )
    ]  # fmt: skip
    assert "1 of 2 brokers up" in summary(state(found))


def test_help_names_kafkas_filters() -> None:
    answer = CliRunner().invoke(understudy, ["top", "--help"])
    assert answer.exit_code == 0
    for option in ("--under-replicated-partitions", "--bootstrap-server", "--once", "--output"):
        assert option in answer.output
