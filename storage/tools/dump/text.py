"""A dump as kafka-dump-log prints it, word for word: scripts read it.

Contents go to standard output, a line each. Findings go to standard error: those that Kafka
knows when all is dumped, a list for each file, in Kafka's words; damage, at which Kafka's tool
would have ended with an exception, at once and in ours.
"""

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs

from storage.attributes import define, frozen
from storage.batch.compression import Codec
from storage.batch.record_batch import CODEC_MASK, BatchHeader, TimestampType
from storage.batch.records import ControlRecordType, Record
from storage.checkpoint import uuid_text
from storage.tools.dump.entries import (
    AbortedTransactionEntry,
    BatchEntry,
    CheckpointEntry,
    Damage,
    DirectoryMetadata,
    EmptyIndex,
    Entry,
    FileStarted,
    Finding,
    IndexedOffsetNotFound,
    IndexMismatch,
    InvalidBytes,
    LeaderEpochEntry,
    NonConsecutiveOffsets,
    OffsetIndexEntry,
    PartitionMetadata,
    ProducerEntry,
    RecordEntry,
    SanityPassed,
    ShutdownMarker,
    SpareRoom,
    TimeIndexEntry,
    TimestampMismatch,
    TimestampOutOfOrder,
    UnknownFile,
)

TIMESTAMP_NAMES: Final = {
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


# Before the JSON of a control record.
_CONTROL_LABELS: Final[Mapping[int | None, str]] = {
    ControlRecordType.LEADER_CHANGE: "LeaderChange:",
    ControlRecordType.SNAPSHOT_HEADER: "SnapshotHeader",
    ControlRecordType.SNAPSHOT_FOOTER: "SnapshotFooter",
    ControlRecordType.KRAFT_VERSION: "KRaftVersion",
    ControlRecordType.KRAFT_VOTERS: "KRaftVoters",
}


@frozen(kw_only=True)
class TextOptions:
    """The flags of kafka-dump-log that change what is shown of a record.

    The messages in records are not known here: `control_json` returns a control record of a metadata
    log as JSON, None for any other, and `payload_json` any record's value, or a text instead.
    """

    print_data_log: bool = False
    skip_record_metadata: bool = False
    control_json: Callable[[Record], Mapping[str, Any] | None] = lambda _: None
    payload_json: Callable[[Record], Mapping[str, Any] | str] | None = None


def line(entry: Entry, options: TextOptions) -> str | None:
    """Return what standard output shows of `entry`; None where it shows nothing."""
    match entry:
        case FileStarted():
            return _started(entry)
        case BatchEntry():
            return _batch(entry)
        case RecordEntry():
            return _record(entry, options)
        case OffsetIndexEntry(offset, position):
            return f"offset: {offset} position: {position}"
        case TimeIndexEntry(timestamp, offset):
            return f"timestamp: {timestamp} offset: {offset}"
        case SpareRoom(path, _, size):
            return f"{size} bytes of spare room at the end of {os.path.basename(path)}"
        case EmptyIndex(path):
            return f"{path} is empty."
        case SanityPassed(path):
            return f"{path} passed sanity check."
        case InvalidBytes(path, _, size):
            return f"Found {size} invalid bytes at the end of {os.path.basename(path)}"
        case _:
            return _small_file(entry)


def error_line(entry: Entry) -> str | None:
    """Return what standard error shows of `entry` at once."""
    match entry:
        case UnknownFile(path):
            return f"Ignoring unknown file {path}"
        case Damage():
            return str(entry)
        case _:
            return None


@define
class Findings:
    """The findings of a dump, gathered until its end and then listed by kind and file."""

    _found: defaultdict[tuple[type[Finding], str], list[str]] = attrs.field(
        init=False, factory=lambda: defaultdict(list)
    )

    def note(self, entry: Entry) -> None:
        match entry:
            case IndexMismatch(path, index_offset, log_offset):
                text = f"  Index offset: {index_offset}, log offset: {log_offset}"
                # The last comes first, in Kafka's list.
                self._of(IndexMismatch, path).insert(0, text)
            case TimestampMismatch(path, index_time, log_time):
                text = f"  Index timestamp: {index_time}, log timestamp: {log_time}"
                self._of(TimestampMismatch, path).append(text)
            case TimestampOutOfOrder(path, index_time, previous):
                text = f"  Index timestamp: {index_time}, Previously indexed timestamp: {previous}"
                self._of(TimestampOutOfOrder, path).append(text)
            case IndexedOffsetNotFound(path, index_offset, log_offset):
                text = f"Indexed offset: {index_offset}, found log offset: {log_offset}"
                self._of(IndexedOffsetNotFound, path).append(text)
            case NonConsecutiveOffsets(path, previous, offset):
                text = f"  {previous} is followed by {offset}"
                self._of(NonConsecutiveOffsets, path).append(text)
            case _:
                pass

    def lines(self) -> Iterator[str]:
        """Yield what is for standard error, in Kafka's order of kinds."""
        for kind, title in (
            (IndexMismatch, "Mismatches in :{}"),
            (TimestampMismatch, "Found timestamp mismatch in :{}"),
            (TimestampOutOfOrder, "Found out of order timestamp in :{}"),
            (IndexedOffsetNotFound, "The following indexed offsets are not found in the log."),
            (NonConsecutiveOffsets, "Non-consecutive offsets in {}"),
        ):
            for (found_kind, path), texts in self._found.items():
                if found_kind is kind:
                    yield title.format(os.path.abspath(path))
                    yield from texts

    def _of(self, kind: type[Finding], path: str) -> list[str]:
        return self._found[kind, path]


def _started(entry: FileStarted) -> str:
    first = f"Dumping {entry.path}"
    if entry.epoch is not None:
        return f"{first}\nSnapshot end offset: {entry.base_offset}, epoch: {entry.epoch}"
    if entry.path.endswith(".log"):
        return f"{first}\nLog starting offset: {entry.base_offset}"
    return first


def _batch(entry: BatchEntry) -> str:
    header = entry.header
    return " ".join(
        (
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset}",
            f"count: {header.record_count}",
            f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence}",
            f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch}",
            f"partitionLeaderEpoch: {header.leader_epoch}",
            f"isTransactional: {_java(header.is_transactional)}",
            f"isControl: {_java(header.is_control)}",
            f"deleteHorizonMs: {_optional(header.delete_horizon_ms)}",
            f"position: {entry.position}",
            f"{_timestamp_name(header)}: {header.max_timestamp}",
            f"size: {header.size} magic: {header.magic} compresscodec: {codec_name(header)}",
            f"crc: {header.crc} isvalid: {_java(entry.is_valid)}",
        )
    )


def codec_name(header: BatchHeader) -> str:
    """Return the codec's name in `compression.type`; a number that Kafka does not use stays one."""
    number = header.attributes & CODEC_MASK
    return Codec(number).name.lower() if number in tuple(Codec) else str(number)


def _record(entry: RecordEntry, options: TextOptions) -> str:
    parts = [] if options.skip_record_metadata else [_record_metadata(entry, options)]
    if options.print_data_log and not entry.header.is_control:
        parts += _record_contents(entry.record, options)
    return f"| {' '.join(parts)}" if parts else ""


def _record_metadata(entry: RecordEntry, options: TextOptions) -> str:
    record = entry.record
    headers = ",".join(name for name, _ in record.headers)
    text = (
        f"offset: {record.offset} {_timestamp_name(entry.header)}: {record.timestamp}"
        f" keySize: {_size(record.key)} valueSize: {_size(record.value)}"
        f" sequence: {record.sequence} headerKeys: [{headers}]"
    )
    if entry.marker is not None:
        marker = entry.marker
        text += f" endTxnMarker: {marker.type.name} coordinatorEpoch: {marker.coordinator_epoch}"
    elif (message := control_json(entry, options)) is not None:
        text += f" {_CONTROL_LABELS[entry.control_type]} {_compact(message)}"
    elif entry.control_type is not None:
        text += f" controlType: {entry.control_name}({entry.control_type})"
    return text


def control_json(entry: RecordEntry, options: TextOptions) -> Mapping[str, Any] | None:
    """Return the message of a control record as JSON; None of any other record."""
    return options.control_json(entry.record) if entry.control_type in _CONTROL_LABELS else None


def _compact(message: Mapping[str, Any]) -> str:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":"))


def _record_contents(record: Record, options: TextOptions) -> list[str]:
    if options.payload_json is not None:
        payload = options.payload_json(record)
        return [f"payload: {payload if isinstance(payload, str) else _compact(payload)}"]
    named = ("key", record.key), ("payload", record.value)
    return [f"{name}: {data.decode(errors='replace')}" for name, data in named if data is not None]


def _small_file(entry: Entry) -> str | None:
    match entry:
        case ProducerEntry():
            return _producer(entry)
        case AbortedTransactionEntry():
            return (
                f"version: {entry.version} producerId: {entry.producer_id}"
                f" firstOffset: {entry.first_offset} lastOffset: {entry.last_offset}"
                f" lastStableOffset: {entry.last_stable_offset}"
            )
        case CheckpointEntry((topic, partition), offset):
            return f"topic: {topic} partition: {partition} offset: {offset}"
        case LeaderEpochEntry(epoch, start_offset):
            return f"epoch: {epoch} startOffset: {start_offset}"
        case PartitionMetadata(topic_id):
            return f"topicId: {uuid_text(topic_id)}"
        case DirectoryMetadata(properties):
            return (
                f"clusterId: {properties.cluster_id} nodeId: {properties.node_id}"
                f" directoryId: {properties.directory_id}"
            )
        case ShutdownMarker(marker):
            return f"brokerEpoch: {marker.broker_epoch}"
        case _:
            return None


def _producer(entry: ProducerEntry) -> str:
    state = entry.state
    text = (
        f"producerId: {state.producer_id} producerEpoch: {state.producer_epoch}"
        f" coordinatorEpoch: {state.coordinator_epoch}"
        f" currentTxnFirstOffset: {_optional(state.transaction_first_offset)}"
        f" lastTimestamp: {state.last_timestamp}"
    )
    if state.batches:
        batch = state.batches[0]
        text += (
            f" firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence}"
            f" lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta}"
            f" timestamp: {batch.timestamp}"
        )
    return text


def _timestamp_name(header: BatchHeader) -> str:
    return TIMESTAMP_NAMES[header.timestamp_type]


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _java(flag: bool) -> str:  # noqa: FBT001 - it is what is printed
    return "true" if flag else "false"


def _optional(number: int | None) -> str:
    return "OptionalLong.empty" if number is None else f"OptionalLong[{number}]"
