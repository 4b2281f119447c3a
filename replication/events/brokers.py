"""Brokers, and their standing with the controller."""

from typing import ClassVar

import attrs

from replication.events.event import Event
from storage.types import LeaderEpoch, Offset


@attrs.frozen(kw_only=True)
class BrokerRegistered(Event):
    """The controller has a broker's registration (KIP-631); it is fenced until it has caught up."""

    name: ClassVar[str] = "broker_registered"
    broker: int
    broker_epoch: int
    incarnation_id: bytes = b""  # drawn anew by each process
    previous_broker_epoch: int = -1  # of its last clean shutdown; -1: there was none


@attrs.frozen(kw_only=True)
class BrokerFenced(Event):
    """A broker leads nothing and is in no ISR any more, until it is heard of again."""

    name: ClassVar[str] = "broker_fenced"
    broker: int
    broker_epoch: int
    cause: str  # "session expired", "registered again", "controlled shutdown", ...
    since_heartbeat_ms: int = -1  # how long it had been silent


@attrs.frozen(kw_only=True)
class BrokerUnfenced(Event):
    """A broker has caught up with the metadata, and may lead."""

    name: ClassVar[str] = "broker_unfenced"
    broker: int
    broker_epoch: int


@attrs.frozen(kw_only=True)
class ControlledShutdownStarted(Event):
    """A broker has asked to leave: its leaderships are taken over first."""

    name: ClassVar[str] = "controlled_shutdown_started"
    broker: int
    broker_epoch: int
    leading: int = -1  # partitions it still leads


@attrs.frozen(kw_only=True)
class CertificatesRead(Event):
    """A broker has read its certificates again, because it was altered (KIP-226)."""

    name: ClassVar[str] = "certificates_read"
    broker: int
    refused: str = ""  # why it goes on with those it had; empty: the new ones are in force


@attrs.frozen(kw_only=True)
class BrokerStarted(Event):
    """A broker listens."""

    name: ClassVar[str] = "broker_started"
    broker: int
    host: str
    port: int


@attrs.frozen(kw_only=True)
class BrokerStopped(Event):
    """A broker is down; not of one that was killed, which tells nobody."""

    name: ClassVar[str] = "broker_stopped"
    broker: int
    clean: bool  # whether it left its logs in good order


@attrs.frozen(kw_only=True)
class MetadataApplied(Event):
    """A node has taken over what the metadata log says up to `offset`."""

    name: ClassVar[str] = "metadata_applied"
    offset: Offset  # exclusive: the next record to apply
    leader_epoch: LeaderEpoch
    records: int  # so many of them
