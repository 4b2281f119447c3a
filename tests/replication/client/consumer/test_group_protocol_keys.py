"""The configuration keys that belong to one of the two group protocols."""

from typing import Any

import pytest

from replication.client.consumer import Consumer, ConsumerConfig, SubscriptionPattern
from replication.client.errors import IllegalStateError
from replication.errors import ConfigError


def test_keys_of_the_other_protocol_are_refused_as_kafka_refuses_them() -> None:
    def config(**given: Any) -> ConsumerConfig:
        return ConsumerConfig.of(bootstrap_servers="b:1", group_id="g", **given)

    with pytest.raises(
        ConfigError,
        match=r"heartbeat\.interval\.ms, session\.timeout\.ms cannot be set when"
        r" group\.protocol=consumer",
    ):
        config(group_protocol="CONSUMER", session_timeout_ms=9, heartbeat_interval_ms=3)
    with pytest.raises(ConfigError, match=r"partition\.assignment\.strategy cannot"):
        config(group_protocol="consumer", partition_assignment_strategy="range")
    with pytest.raises(ConfigError, match=r"group\.remote\.assignor cannot"):
        config(group_remote_assignor="range")
    assert config(group_protocol="Consumer").uses_consumer_protocol
    consumer = Consumer(group_id="g")
    with pytest.raises(IllegalStateError, match=r"group\.protocol=consumer"):
        consumer.subscribe(pattern=SubscriptionPattern("t"))
