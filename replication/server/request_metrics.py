"""The number, sizes and times of requests (RequestChannel.RequestMetrics).

    kafka.network:type=RequestMetrics,name=RequestsPerSec,request=<API>,version=<its>
    kafka.network:type=RequestMetrics,name=RequestBytes,request=<API>
    kafka.network:type=RequestMetrics,name=TotalTimeMs,request=<API>       and its parts:

    received ──────────── handler ─────────────────────────── answer ──── sending ──── sent
        RequestQueueTimeMs    LocalTimeMs, RemoteTimeMs    ResponseQueueTimeMs   ResponseSendTimeMs

There are no queues here: the time in which Kafka's request waits for a handler thread is that of
decoding it and admitting its client; the time in which Kafka's answer waits for a network thread is
that of encoding it. Both are measured where other tasks may run meanwhile: for a long message and
for a login. Otherwise they belong to the local time and to that of sending. The remote time is the
handler's wait in purgatories: for followers, for bytes, for deletions. A request whose client
disconnects before the answer is counted, not timed.

Kafka measures a request without its four bytes of length but with its header. The header
contains the client id, so the size of the body is kept beside it: that is the number which fetch
sessions (KIP-227) reduce. As in Kafka, fetches are counted twice: as Fetch, and as FetchFollower
or FetchConsumer.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

import attrs

from replication.leader.purgatory import Waited
from replication.metrics import KEPT, MetricName, MetricsRegistry
from replication.wire.apis import api_numbered
from replication.wire.fetch import FetchRequest
from replication.wire.frames import RequestHeader
from storage.attributes import define, frozen

# JMX attributes of a histogram, and where they are read.
_ATTRIBUTES = {"Count": "count", "Min": "smallest", "Max": "largest", "Mean": "mean"}


@define
class Sizes:
    """The distribution of some sizes, in bytes."""

    count: int = 0
    total: int = 0
    smallest: int = 0
    largest: int = 0
    last: int = 0

    def add(self, size: int) -> None:
        # Called for every request: `min` and `max` would take longer than all the rest.
        if size < self.smallest or not self.count:
            self.smallest = size
        if size > self.largest:  # noqa: PLR1730 - see above
            self.largest = size
        self.count += 1
        self.total += size
        self.last = size

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0


# The times of one request in seconds: received, handler begun, answered, sending begun, sent; and
# how long the handler waited.
Moments: TypeAlias = tuple[float, float, float, float, float, float]


def _remote(moments: Moments) -> float:
    _, handler, answer, _, _, waited = moments
    return min(waited, answer - handler)  # two waits at once are longer than the time they take


# The metrics, computed from these when they are read.
TIMES: Final[Mapping[str, Callable[[Moments], float]]] = {
    "RequestQueueTimeMs": lambda moments: moments[1] - moments[0],
    "LocalTimeMs": lambda moments: moments[2] - moments[1] - _remote(moments),
    "RemoteTimeMs": _remote,
    "ResponseQueueTimeMs": lambda moments: moments[3] - moments[2],
    "ResponseSendTimeMs": lambda moments: moments[4] - moments[3],
    "TotalTimeMs": lambda moments: moments[4] - moments[0],
}


@define
class Stopwatch:
    """The times of the present request, by the node's clock."""

    now: Callable[[], float]
    waited: Waited
    received: float = 0.0
    handler: float = 0.0
    answer: float = 0.0
    sending: float = 0.0

    sent: float = 0.0

    def start(self) -> None:
        self.waited.seconds = 0.0
        self.received = self.handler = self.answer = self.sending = self.now()

    @property
    def moments(self) -> Moments:
        return (
            *(self.received, self.handler, self.answer, self.sending, self.sent),
            self.waited.seconds,
        )


@define
class RequestTimes:
    """The times of one API's requests, kept together so that a request costs one append."""

    count: int = 0
    latest: deque[Moments] = attrs.field(factory=lambda: deque(maxlen=KEPT))


@frozen
class PartOfTimes:
    """One metric of `TIMES`, as a `Distribution` of milliseconds."""

    times: RequestTimes
    seconds: Callable[[Moments], float]

    @property
    def count(self) -> int:
        return self.times.count

    def latest(self) -> Sequence[float]:
        return [1000 * self.seconds(moments) for moments in tuple(self.times.latest)]


@frozen
class Counts:
    """The numbers of one kind of requests."""

    name: str
    bytes: Sizes = attrs.field(factory=Sizes)
    body_bytes: Sizes = attrs.field(factory=Sizes)
    times: RequestTimes = attrs.field(factory=RequestTimes)


@define(eq=False)
class RequestMetrics:
    """Counts, sizes and times by Kafka's request names: Produce, FetchFollower, ..."""

    registry: MetricsRegistry | None = None
    counts: dict[str, Counts] = attrs.field(factory=dict, init=False)
    connections: int = attrs.field(default=0, init=False)
    connections_refused: int = attrs.field(default=0, init=False)
    _requests: Counter[tuple[str, int]] = attrs.field(factory=Counter, init=False)
    _of_kind: dict[object, tuple[Counts, ...]] = attrs.field(factory=dict, init=False)
    """The counts by the class of a request, or for fetches by `_BY_A_FOLLOWER`, `_BY_A_CONSUMER`."""

    def __attrs_post_init__(self) -> None:
        if self.registry is not None:
            self.registry.family(self)
            self.registry.gauge(CONNECTIONS, lambda: self.connections)
            self.registry.gauge(CONNECTIONS_REFUSED, lambda: self.connections_refused)

    def received(
        self, request: object, *, version: int, size: int, header_size: int
    ) -> tuple[Counts, ...]:
        """Count a request of `size` bytes, header included; return what `answered` takes."""
        kind: object = type(request)
        if type(request) is FetchRequest:
            kind = _BY_A_CONSUMER if request.replica.replica_id < 0 else _BY_A_FOLLOWER
        if kind not in self._of_kind:
            self._of_kind[kind] = tuple(map(self._counts_of, _names_of(kind)))
        counts = self._of_kind[kind]
        for each in counts:
            self._requests[each.name, version] += 1
            each.bytes.add(size)
            each.body_bytes.add(size - header_size)
        return counts

    def answered(self, counts: Iterable[Counts], moments: Moments) -> None:
        """Count the times of a request whose answer has been sent."""
        for each in counts:
            each.times.count += 1
            each.times.latest.append(moments)

    # The family of counts, by API and version.

    def names(self) -> list[MetricName]:
        return [requests_metric(*key) for key in self._requests]

    def read(self, name: MetricName) -> float | None:
        tags = dict(name.tags)
        version = tags.get("version", "")
        key = (tags.get("request", ""), int(version) if version.isdigit() else -1)
        ours = key in self._requests and name == requests_metric(*key)
        return self._requests[key] if ours else None

    def snapshot(self) -> Iterator[tuple[MetricName, float]]:
        for key, count in list(self._requests.items()):
            yield requests_metric(*key), count

    def _counts_of(self, request: str) -> Counts:
        if request not in self.counts:
            self.counts[request] = counts = Counts(request)
            if self.registry is not None:
                _register(self.registry, counts)
        return self.counts[request]


def _register(registry: MetricsRegistry, counts: Counts) -> None:
    for part, seconds in TIMES.items():
        times = PartOfTimes(counts.times, seconds)
        registry.distribution(times_metric(part, counts.name), times)
    for metric, sizes in (("RequestBytes", counts.bytes), ("RequestBodyBytes", counts.body_bytes)):
        for attribute, field in _ATTRIBUTES.items():
            name = metric_name(metric, counts.name, attribute)
            registry.gauge(name, partial(getattr, sizes, field))


CONNECTIONS_REFUSED = MetricName("understudy", "Node", "connections_refused_total")
CONNECTIONS = MetricName("kafka.server", "socket-server-metrics", "connection-count")


def requests_metric(request: str, version: int) -> MetricName:
    tags = (("request", request), ("version", str(version)))
    return MetricName("kafka.network", "RequestMetrics", "RequestsPerSec", tags)


def times_metric(part: str, request: str) -> MetricName:
    return MetricName("kafka.network", "RequestMetrics", part, (("request", request),))


def metric_name(metric: str, request: str, attribute: str) -> MetricName:
    """Return the name of one attribute of a request's sizes."""
    tags = (("request", request), ("attribute", attribute))
    return MetricName("kafka.network", "RequestMetrics", metric, tags)


def header_size(header: RequestHeader) -> int:
    """Return the bytes of a request's header."""
    client_id = b"" if header.client_id is None else header.client_id.encode()
    api = api_numbered(header.api_key)
    assert api is not None, "a decoded request has a known API"
    return 10 + len(client_id) + api.is_flexible(header.api_version)


_BY_A_FOLLOWER, _BY_A_CONSUMER = ("Fetch", "FetchFollower"), ("Fetch", "FetchConsumer")


def _names_of(kind: object) -> tuple[str, ...]:
    """Return the names under which requests of that kind are counted."""
    if isinstance(kind, type):
        return (kind.__name__.removesuffix("Request"),)
    assert isinstance(kind, tuple), "a fetch is counted under two names"
    return kind
