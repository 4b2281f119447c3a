"""The messages of a run, with their times: frames read from simulated connections.

    request pipe    |size|key version correlation id ...|size|...      sent @1.002, there @1.003
    response pipe   |size|correlation id ...|                          the responses, in order

Rule 1: a wiretap reads and changes nothing. A run with one has the trace of a run without.

Rule 2: a frame is sent with its first byte and arrives with its last. A frame whose last byte
never came has no arrival, and is drawn as lost.

Rule 3: a peer responds in the order of the requests, so a response belongs to the oldest request
that is open on its connection (`replication.net.rpc`).

A label says what a message contains, in the few words that fit beside an arrow:

    t-0 from 5            a follower or a consumer fetches at offset 5
    t-0 3-4, HW 5         offsets 3 to 4 come, and the leader's high watermark
    t-0 diverges: e0@3    the follower's last epoch ended at 3 on the leader (KIP-595)
    t-0 acks=all          records are produced
    t-0 at 7              they were appended at 7

A message without news (an empty fetch, a heartbeat) has no label, and the page hides it at first.
"""

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import singledispatch

import attrs

from replication.errors import ErrorCode, UnderstudyError
from replication.wire.alter_partition import (
    AlterPartitionData as ProposedIsr,
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from replication.wire.apis import API, ApiKey
from replication.wire.broker_registration import BrokerRegistrationRequest
from replication.wire.fetch import (
    NO_DIVERGENCE,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from replication.wire.frames import decode_request, decode_response
from replication.wire.produce import ProduceRequest, ProduceResponse
from scenarios.world.streams import Pipe
from storage.batch.record_batch import walk
from storage.types import Buffer, TopicId

_LENGTH = struct.Struct(">i")


@attrs.define(eq=False, kw_only=True)
class Message:
    """One frame. Times are virtual seconds; `received_at` is None if it never arrived."""

    source: str
    target: str
    sent_at: float
    api: str
    is_request: bool
    label: str
    received_at: float | None = None


@attrs.define(eq=False)
class _Tapped:
    """One direction of one connection."""

    pipe: Pipe
    is_request: bool
    unanswered: deque[tuple[ApiKey, int]]
    """The requests without a response; both directions share this."""
    sent: int = 0
    received: int = 0
    # The messages on their way, each with its end in the bytes of this direction.
    under_way: deque[tuple[int, Message]] = attrs.field(factory=deque)
    _tail: bytearray = attrs.field(factory=bytearray)
    _tail_began_at: float = 0.0

    def frames(self, chunk: memoryview, now: float) -> Iterator[tuple[float, int, memoryview]]:
        """Yield each frame that `chunk` completes: its begin, its end, its contents."""
        if not self._tail:
            self._tail_began_at = now
        self._tail += chunk
        start, before = 0, self.sent - (len(self._tail) - len(chunk))
        whole = bytes(self._tail)
        while start + _LENGTH.size <= len(whole):
            (size,) = _LENGTH.unpack_from(whole, start)
            end = start + _LENGTH.size + size
            if size < 0 or end > len(whole):
                break
            yield self._tail_began_at, before + end, memoryview(whole)[start + _LENGTH.size : end]
            start, self._tail_began_at = end, now
        del self._tail[:start]
        self.sent += len(chunk)


@attrs.define(eq=False)
class Wiretap:
    """All messages between nodes, in the order in which they were sent."""

    names: dict[TopicId, str] = attrs.field(factory=dict)
    """The names of topics by id; the owner adds those it hears of."""
    messages: list[Message] = attrs.field(factory=list, init=False)
    _tapped: dict[Pipe, _Tapped] = attrs.field(factory=dict, init=False)

    def opened(self, requests: Pipe, responses: Pipe) -> None:
        unanswered: deque[tuple[ApiKey, int]] = deque()
        self._tapped[requests] = _Tapped(requests, True, unanswered)
        self._tapped[responses] = _Tapped(responses, False, unanswered)

    def sent(self, pipe: Pipe, chunk: memoryview, now: float) -> None:
        tapped = self._tapped[pipe]
        for began_at, end, frame in tapped.frames(chunk, now):
            api, said = self._read(tapped, frame)
            message = Message(
                source=pipe.link.source.name,
                target=pipe.link.target.name,
                sent_at=began_at,
                api=api,
                is_request=tapped.is_request,
                label=said,
            )
            self.messages.append(message)
            tapped.under_way.append((end, message))

    def received(self, pipe: Pipe, size: int, now: float) -> list[Message]:
        """Return the messages that are complete with these `size` bytes."""
        tapped = self._tapped[pipe]
        tapped.received += size
        arrived = []
        while tapped.under_way and tapped.under_way[0][0] <= tapped.received:
            _, message = tapped.under_way.popleft()
            message.received_at = now
            arrived.append(message)
        return arrived

    def _read(self, tapped: _Tapped, frame: memoryview) -> tuple[str, str]:
        """Return the API's name and the label of a message; a broken frame has no label."""
        try:
            if tapped.is_request:
                return self._read_request(tapped, frame)
            return self._read_response(tapped, frame)
        except (UnderstudyError, ValueError, IndexError):
            return "?", ""

    def _read_request(self, tapped: _Tapped, frame: memoryview) -> tuple[str, str]:
        header, message = decode_request(frame)
        key = ApiKey(header.api_key)
        if not (isinstance(message, ProduceRequest) and message.acks == 0):
            tapped.unanswered.append((key, header.api_version))
        return _name(key), label(message, self.names)

    def _read_response(self, tapped: _Tapped, frame: memoryview) -> tuple[str, str]:
        key, version = tapped.unanswered.popleft()
        _, message = decode_response(frame, api_key=key, version=version)
        return _name(key), label(message, self.names)


def _name(key: ApiKey) -> str:
    """Return an API's name as Kafka's message files spell it: OffsetForLeaderEpoch."""
    return API[key].name


Names = Mapping[TopicId, str]


@singledispatch
def label(message: object, names: Names) -> str:
    """Return the label of a message; `names` maps the topic ids of the wire to names (KIP-516)."""
    del names
    error = getattr(message, "error_code", ErrorCode.NONE)
    return ErrorCode.of(error).name if error else ""


@label.register
def _(message: FetchRequest, names: Names) -> str:
    return ", ".join(
        f"{_called(topic, names)}-{each.partition} from {each.fetch_offset}"
        for topic in message.topics
        for each in topic.partitions
    )


@label.register
def _(message: FetchResponse, names: Names) -> str:
    answers = (
        _fetched(f"{_called(topic, names)}-{each.partition_index}", each)
        for topic in message.responses
        for each in topic.partitions
    )
    return _sentence(message.error_code, answers)


def _called(topic: FetchTopic | FetchableTopicResponse, names: Names) -> str:
    return topic.topic or names.get(topic.topic_id, "?")


def _fetched(partition: str, data: PartitionData) -> str:
    if data.error_code:
        return f"{partition} {ErrorCode.of(data.error_code).name}"
    if data.diverging_epoch != NO_DIVERGENCE:
        return (
            f"{partition} diverges: e{data.diverging_epoch.epoch}@{data.diverging_epoch.end_offset}"
        )
    records = data.records
    assert isinstance(records, Buffer | None), "what was received is in memory"
    headers = [header for _, header in walk(records or b"")]
    held = f"{headers[0].base_offset}-{headers[-1].last_offset}, " if headers else ""
    return f"{partition} {held}HW {data.high_watermark}"


@label.register
def _(message: ProduceRequest, _names: Names) -> str:
    acks = "all" if message.acks < 0 else message.acks
    return ", ".join(
        f"{topic.name}-{each.index} acks={acks}"
        for topic in message.topic_data
        for each in topic.partition_data
    )


@label.register
def _(message: ProduceResponse, _names: Names) -> str:
    return ", ".join(
        f"{topic.name}-{each.index} {ErrorCode.of(each.error_code).name}"
        if each.error_code
        else f"{topic.name}-{each.index} at {each.base_offset}"
        for topic in message.responses
        for each in topic.partition_responses
    )


@label.register
def _(message: AlterPartitionRequest, _names: Names) -> str:
    return ", ".join(
        f"isr {' '.join(f'b{broker}' for broker in _members(each))}"
        for topic in message.topics
        for each in topic.partitions
    )


def _members(partition: ProposedIsr) -> Iterator[int]:
    """Return the members of an ISR; version 3 has their broker epochs too (KIP-903)."""
    yield from partition.new_isr
    yield from (each.broker_id for each in partition.new_isr_with_epochs)


@label.register
def _(message: AlterPartitionResponse, _names: Names) -> str:
    answers = (
        ErrorCode.of(each.error_code).name if each.error_code else "accepted"
        for topic in message.topics
        for each in topic.partitions
    )
    return _sentence(message.error_code, answers)


@label.register
def _(message: BrokerRegistrationRequest, _names: Names) -> str:
    return f"b{message.broker_id} registers"


def _sentence(error_code: int, answers: Iterable[str]) -> str:
    return ErrorCode.of(error_code).name if error_code else ", ".join(answers)
