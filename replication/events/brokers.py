"""Events of brokers: start and stop, registration and fencing."""

from typing import ClassVar

import attrs

from replication.events.event import Event
from storage.types import LeaderEpoch, Offset


@attrs.frozen(kw_only=True)
class BrokerRegistered(Event):
    """A broker has registered (KIP-631); it is fenced until it has caught up."""

    name: ClassVar[str] = "broker_registered"
    broker: int
    broker_epoch: int
    incarnation_id: bytes = b""  # drawn anew by each process
    previous_broker_epoch: int = -1  # of its last clean shutdown; -1: there was none


@attrs.frozen(kw_only=True)
class BrokerFenced(Event):
    """A broker leads no partition and is in no ISR any more, until the controller hears from it."""

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
    """A broker has asked to shut down: other brokers take over its leaderships first."""

    name: ClassVar[str] = "controlled_shutdown_started"
    broker: int
    broker_epoch: int
    leading: int = -1  # partitions it still leads


@attrs.frozen(kw_only=True)
class CertificatesRead(Event):
    """A broker has read its certificates again, because it was altered (KIP-226)."""

    name: ClassVar[str] = "certificates_read"
    broker: int
    refused: str = ""  # why the old ones stay in force; empty if the new ones are


@attrs.frozen(kw_only=True)
class BrokerStarted(Event):
    """A broker has started to listen."""

    name: ClassVar[str] = "broker_started"
    broker: int
    host: str
    port: int


@attrs.frozen(kw_only=True)
class BrokerStopped(Event):
    """A broker has shut down; one that was killed does not report it."""

    name: ClassVar[str] = "broker_stopped"
    broker: int
    clean: bool  # whether it left its logs in good order


@attrs.frozen(kw_only=True)
class MetadataApplied(Event):
    """A node has applied the metadata log up to `offset`."""

    name: ClassVar[str] = "metadata_applied"
    offset: Offset  # exclusive: the next record to apply
    leader_epoch: LeaderEpoch
    records: int  # the number of records applied
