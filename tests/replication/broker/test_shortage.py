"""A cluster whose nodes cannot open files for a while goes on where it can, and entirely after."""

import errno
from typing import Any

import pytest

from replication.errors import ErrorCode
from replication.events import LogDirectoryFailed, PartitionFailed
from scenarios.world.world import World
from storage.testing import Fault
from tests.replication.broker.stage import Stage, name_of, played, staged

MANY_SEGMENTS: dict[str, Any] = {"segment_bytes": "150", "retention_ms": "-1"}
OFTEN: dict[str, Any] = {
    "log_initial_task_delay_ms": "0",
    "replica_high_watermark_checkpoint_interval_ms": "500",
    "log_flush_offset_checkpoint_interval_ms": "500",
    "metadata_log_max_record_bytes_between_snapshots": "500",
}
SECONDS = 20


async def produced(stage: Stage, value: bytes, *, times: int) -> int:
    """Ask `times` times to append `value`; how often it was."""
    done = 0
    for _ in range(times):
        leader = stage.cluster.leader("t", 0)
        assert leader is not None
        answer = await stage.client.produce(stage.address(leader), "t", value)
        assert answer.error_code in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
        done += answer.error_code == ErrorCode.NONE
    return done


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@played
async def test_what_could_not_be_opened_for_a_while_is_nobody_s_failure(
    world: World, error: int
) -> None:
    async with staged(world, **OFTEN) as stage:
        topic_id = await stage.client.create_topic(stage.address(1), "t", **MANY_SEGMENTS)
        leader = await stage.leader("t")
        done = await produced(stage, b"before, and of some length", times=10)
        assert done == 10
        faults = [Fault(operation="open", error=error, times=None) for _ in range(4)]
        for node, fault in enumerate(faults):
            world.disk(name_of(node)).faults.append(fault)
        done += await produced(stage, b"meanwhile, and of some length", times=10)
        clock = stage.client.seams.clock
        await clock.sleep(SECONDS)
        assert done < 20, "a segment cannot be rolled without a file"
        for node, fault in enumerate(faults):
            world.disk(name_of(node)).faults.remove(fault)
        await stage.until_in_sync("t", 3)
        again = await produced(stage, b"after, and of some length", times=10)
        assert again == 10
        await clock.sleep(2)
        for broker in stage.cluster.brokers.values():
            assert not broker.replica_manager.hosted.offline
            (directory,) = broker.logs.directories
            assert directory.failure is None
            assert max(directory.recovery_points.values()) > 0
        values = await stage.client.read_all(
            stage.address(stage.cluster.leader("t", 0) or leader), topic_id
        )
        assert len(values) == done + again
        await stage.client.create_topic(stage.address(1), "u")
        failed = (LogDirectoryFailed, PartitionFailed)
        assert [each for each in world.trace.entries if isinstance(each.event, failed)] == []
