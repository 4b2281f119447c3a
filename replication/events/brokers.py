"""Brokers, and their standing with the controller."""

from typing import ClassVar

import attrs

from replication.events.event import Event
from storage.types import LeaderEpoch, Offset


@attrs.frozen(kw_only=True)
class BrokerRegistered(Event):
    name: ClassVar[str] = "broker_registered"
    broker: int
    broker_epoch: int
    incarnation_id: bytes = b""
    previous_broker_epoch: int = -1


@attrs.frozen(kw_only=True)
class BrokerFenced(Event):
    name: ClassVar[str] = "broker_fenced"
    broker: int
    broker_epoch: int
    cause: str  # "session expired", "registered again", "controlled shutdown", ...
    since_heartbeat_ms: int = -1


@attrs.frozen(kw_only=True)
class BrokerUnfenced(Event):
    name: ClassVar[str] = "broker_unfenced"
    broker: int
    broker_epoch: int


@attrs.frozen(kw_only=True)
class ControlledShutdownStarted(Event):
    name: ClassVar[str] = "controlled_shutdown_started"
    broker: int
    broker_epoch: int
    leading: int = -1  # partitions it still leads


@attrs.frozen(kw_only=True)
class BrokerStarted(Event):
    name: ClassVar[str] = "broker_started"
    broker: int
    host: str
    port: int


@attrs.frozen(kw_only=True)
class BrokerStopped(Event):
    name: ClassVar[str] = "broker_stopped"
    broker: int
    clean: bool


@attrs.frozen(kw_only=True)
class MetadataApplied(Event):
    name: ClassVar[str] = "metadata_applied"
    offset: Offset  # exclusive: the next record to apply
    leader_epoch: LeaderEpoch
    records: int
