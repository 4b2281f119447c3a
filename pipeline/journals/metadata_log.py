"""The metadata log as a journal of its controllers, those of Apache Kafka too.

    snapshot | batch | batch | ...   every node has a copy, in `__cluster_metadata-0`
                 └─ the records of one decision ──> the events that our controller would report

Rule 1: a batch is one decision, and the images before and after it say why there was an election. Why
a broker was fenced is not recorded: it had asked to shut down (and may have died while it did), it was
started again, or its session had expired.

Rule 2: the time is that at which the leading controller appended the batch, and the node is that
controller; it is known from the first LeaderChange on.

Rule 3: what a snapshot contains has no events. The end of a copy may not be committed yet.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from replication.controller.rules.events import events_of
from replication.errors import MetadataError
from replication.events import Event
from replication.metadata.rules.image import MetadataImage, records_beyond
from replication.metadata.rules.records import METADATA_PARTITION
from replication.metadata.snapshots import Snapshots, batches_in
from replication.observe.journal import JournalEntry
from replication.wire.control_records import LeaderChangeMessage, control_records_in
from replication.wire.metadata_records import (
    AbortTransactionRecord,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from storage.batch.record_batch import check_crc, read_header
from storage.filesystem import FileSystem
from storage.log.segment import LOG_SUFFIX

DIRECTORY_NAME: Final = str(METADATA_PARTITION)
NOT_KNOWN: Final = -1  # the controller that led before the first LeaderChange in a copy


def read_metadata_log(files: FileSystem, directory: str) -> Iterator[JournalEntry]:
    """Yield the events of the decisions in one copy of the metadata log, in order.

    Raise MetadataError where it cannot be read, after the events before that. What a crash, or a
    running node, has left at the end of the last segment is passed over.
    """
    snapshot = Snapshots(files, directory).oldest()
    image = MetadataImage() if snapshot is None else snapshot.image
    leader = NOT_KNOWN
    for batch in batches_of(files, directory):
        header = read_header(batch)
        if header.last_offset <= image.offset:
            continue
        if header.base_offset > image.offset + 1:
            raise MetadataError(f"offset {image.offset + 1} is in no segment and no snapshot")
        records: list[MetadataRecord] = []
        if header.is_control:
            leader = _leader_in(batch, leader)
        else:
            records = records_beyond(image, batch)
        after = image.apply_all(
            records, offset=header.last_offset, leader_epoch=header.leader_epoch
        )
        for event in _events(records, image, after):
            yield JournalEntry(header.max_timestamp, leader, event)
        image = after


def batches_of(files: FileSystem, directory: str) -> Iterator[bytes]:
    """Yield the batches of a copy; raise MetadataError where it is damaged before its last segment."""
    names = sorted(name for name in files.list_directory(directory) if name.endswith(LOG_SUFFIX))
    for name in names:
        file = files.open_for_reading(f"{directory}/{name}")
        try:
            yield from _checked(batches_in(file))
        except MetadataError as error:
            if name != names[-1]:
                raise MetadataError(f"{name}: {error}") from error
        finally:
            file.close()


def _checked(batches: Iterator[bytes]) -> Iterator[bytes]:
    for batch in batches:
        if not check_crc(batch):
            raise MetadataError("the checksum of a batch is wrong")
        yield batch


def _leader_in(batch: bytes, known: int) -> int:
    """Return the leader that a control batch names, or the one that is known."""
    messages = control_records_in(batch)
    named = [each.leader_id for each in messages if isinstance(each, LeaderChangeMessage)]
    return named[-1] if named else known


def _events(
    records: Sequence[MetadataRecord], before: MetadataImage, after: MetadataImage
) -> Iterator[Event]:
    """Yield the events of a decision; of a transaction (KIP-868) when it ends."""
    if after.open_transaction is not None:
        return
    if any(isinstance(each, AbortTransactionRecord) for each in records):
        return
    decided = [*(before.open_transaction or ()), *records]
    yield from events_of(decided, before, after, cause=_cause(decided, before))


def _cause(records: Sequence[MetadataRecord], before: MetadataImage) -> str:
    """Return why a broker was fenced, or a partition lost its leader."""
    for record in records:
        match record:
            case RegisterBrokerRecord():
                return "registered again"
            case BrokerRegistrationChangeRecord(fenced=fenced) if fenced > 0:
                broker = before.broker(record.broker_id)
                leaves = broker is not None and broker.in_controlled_shutdown
                return "controlled shutdown" if leaves else "session expired"
            case BrokerRegistrationChangeRecord(in_controlled_shutdown=leaves) if leaves > 0:
                return "controlled shutdown"
            case BrokerRegistrationChangeRecord(log_dirs=directories) if directories:
                return "log directory offline"
            case UnregisterBrokerRecord():
                return "unregistered"
            case _:
                pass
    return "decided by the controller"
