"""Each election and truncation of a partition with its cause, without Spark."""

from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the Arrow extra is not installed: understudy[arrow]")

from pipeline.journals.changes import NOT_SAID, changes
from pipeline.journals.timeline import Fact
from storage.types import TopicPartition
from tests.pipeline.test_timeline import elected, fact, isr

TP = TopicPartition("t", 0)


def cut(at_ms: int, epoch: int, **fields: Any) -> Fact:
    known = {"from_offset": 9, "to_offset": 5, "high_watermark": 5, "cause": "diverging epoch"}
    return fact("log_truncated", at_ms, leader_epoch=epoch, node=1, **(known | fields))


def test_elections_and_truncations_are_listed_with_what_led_to_them() -> None:
    events = [
        elected(1, 1, 0, 1, 2, cause="created") | {"reason": "created"},
        elected(5, 2, 1, 2) | {"reason": "leader fenced", "previous_leader": 1},
        isr(5, 1, 1, 2),
        cut(7, 1),
        fact("partition_offline", 8, leader_epoch=2, isr=[], cause="session expired"),
        elected(9, 2, 3, 2) | {"reason": "no leader before"},
    ]
    found = list(changes(events, TP))
    assert [(each.at_ms, each.name, each.cause) for each in found] == [
        (1, "leader_elected", "created"),
        (5, "leader_elected", "leader fenced"),
        (7, "log_truncated", "diverging epoch"),
        (8, "partition_offline", "session expired"),
        (9, "leader_elected", "no leader before"),
    ]
    clean = "the first live replica of the in-sync set leads: it has every committed record"
    assert found[1].text == f"b2 leads t-0 in epoch 1 after b1, isr b2: b1 is fenced; {clean}"
    assert found[2].node == 1
    assert found[2].text == (
        "truncates t-0 from 9 to 5 in leader epoch 1: its leader has other records from there on"
        " (KIP-595); its high watermark was 5;"
        f" b2 was elected for this leader epoch: b1 is fenced; {clean}"
    )
    assert found[3].text == "no replica may lead t-0: session expired; isr none"


def test_what_no_journal_explains_is_called_so() -> None:
    events = [elected(5, 2, 4, 2, cause="unclean"), cut(7, 5, cause="offset out of range")]
    found = list(changes(events, TP))
    assert [each.cause for each in found] == [NOT_SAID, NOT_SAID]
    assert "unclean.leader.election.enable" in found[0].text
    assert found[1].text.endswith("; the election of this leader epoch is in no journal")
