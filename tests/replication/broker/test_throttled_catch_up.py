"""A replica that comes back is let in at the rate that was set for it, and no faster (KIP-73)."""

import pytest

from replication.wire.describe_configs import ConfigResourceType
from tests.replication.broker.stage import Stage, played_in, staged
from tests.replication.broker.test_configs import alter, resource

RECORD = 4000
RECORDS = 50
RATE = 20_000
WINDOW_SECONDS = 11  # replication.leader.rules.quota.window.num of a second each


@pytest.mark.parametrize("side", ["leader", "follower"])
@played_in(staged, replica_fetch_max_bytes="1000")
async def test_catching_up_takes_as_long_as_the_rate_says(stage: Stage, side: str) -> None:
    await stage.client.create_topic(stage.address(1), "t")
    leader = await stage.leader("t")
    await stage.until_in_sync("t", 3)
    behind = next(each for each in (1, 2, 3) if each != leader)
    clock = stage.client.seams.clock

    async def catch_up() -> float:
        await stage.cluster.kill_broker(behind)
        await stage.until_in_sync("t", 2)
        began = clock.now()
        for _ in range(RECORDS):
            produced = await stage.client.produce(stage.address(leader), "t", bytes(RECORD))
            assert produced.error_code == 0
        assert clock.now() - began < 1, "a replica in sync is not held back, and acks=all with it"
        await stage.cluster.start_broker(behind)
        started = clock.now()
        await stage.until_in_sync("t", 3)
        return clock.now() - started

    assert await catch_up() < 1, "nothing is set, nothing is held back"
    throttled = {f"{side}_replication_throttled_replicas": "*"}
    rate = {f"{side}_replication_throttled_rate": str(RATE)}
    await alter(
        stage,
        resource(ConfigResourceType.TOPIC, "t", **throttled),
        resource(ConfigResourceType.BROKER, "", **rate),
        broker=leader,
    )
    seconds = await catch_up()
    expected = RECORD * RECORDS / RATE
    # Before the window has filled, what has been sent counts over less time.
    assert 0.8 * expected <= seconds <= 2 * expected + WINDOW_SECONDS
    for name in (throttled, rate):
        kind = ConfigResourceType.TOPIC if name is throttled else ConfigResourceType.BROKER
        gone = resource(kind, "t" if name is throttled else "", **dict.fromkeys(name))
        await alter(stage, gone, broker=leader)
    assert await catch_up() < 1, "and no more"
