"""Every event is one line of the human log."""

import structlog
from structlog.testing import capture_logs

from replication.events import BugCaught, LeaderElected
from replication.observe.logging import log_sink
from storage.types import TopicPartition


def test_an_event_is_a_line_with_its_name_and_fields() -> None:
    with capture_logs() as lines:
        sink = log_sink(structlog.get_logger().bind(broker=1))
        sink(
            LeaderElected(
                partition=TopicPartition("orders", 3),
                leader=2,
                leader_epoch=5,
                isr=(2, 3),
                cause="clean",
            )
        )
        sink(BugCaught(boundary="fetcher", error="AssertionError"))
    assert lines == [
        {
            "event": "leader_elected",
            "log_level": "info",
            "broker": 1,
            "partition": "orders-3",
            "leader": 2,
            "leader_epoch": 5,
            "isr": [2, 3],
            "cause": "clean",
            "previous_leader": -1,
            "reason": "",
        },
        {
            "event": "bug_caught",
            "log_level": "error",
            "broker": 1,
            "boundary": "fetcher",
            "error": "AssertionError",
        },
    ]
