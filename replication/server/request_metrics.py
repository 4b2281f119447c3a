"""The number, sizes and times of requests (RequestChannel.RequestMetrics).

    kafka.network:type=RequestMetrics,name=RequestsPerSec,request=<API>,version=<its>
    kafka.network:type=RequestMetrics,name=RequestBytes,request=<API>
    kafka.network:type=RequestMetrics,name=TotalTimeMs,request=<API>       and its parts:

    received ──────────── handler ─────────────────────────── answer ──── sending ──── sent
        RequestQueueTimeMs    LocalTimeMs, RemoteTimeMs    ResponseQueueTimeMs   ResponseSendTimeMs

There are no queues here: the time in which Kafka's request waits for a handler thread is that of
decoding it and admitting its client; the time in which Kafka's answer waits for a network thread
is that of encoding it. The remote time is the handler's wait in purgatories: for followers, for
bytes, for deletions. A request whose client disconnects before the answer is counted, not timed.

Kafka measures a request without its four bytes of length but with its header. The header
contains the client id, so the size of the body is kept beside it: that is the number which fetch
sessions (KIP-227) reduce. As in Kafka, fetches are counted twice: as Fetch, and as FetchFollower
or FetchConsumer.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Final, TypeAlias

import attrs

from replication.leader.purgatory import Waited
from replication.metrics import KEPT, MetricName, MetricsRegistry
from replication.wire.apis import api_numbered
from replication.wire.fetch import FetchRequest
from replication.wire.frames import RequestHeader

# JMX attributes of a histogram, and where they are read.
_ATTRIBUTES = {"Count": "count", "Min": "smallest", "Max": "largest", "Mean": "mean"}


@attrs.define
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


@attrs.define
class Stopwatch:
    """The times of the present request, by the node's clock."""

    now: Callable[[], float]
    waited: Waited
    received: float = 0.0
    handler: float = 0.0
    answer: float = 0.0
    sending: float = 0.0

    def start(self) -> None:
        self.waited.seconds = 0.0
        self.received = self.handler = self.answer = self.sending = self.now()

    def stop(self) -> Moments:
        """Note that the answer is sent; return all times."""
        sent = self.now()
        return self.received, self.handler, self.answer, self.sending, sent, self.waited.seconds


@attrs.define
class RequestTimes:
    """The times of one API's requests, kept together so that a request costs one append."""

    count: int = 0
    latest: deque[Moments] = attrs.field(factory=lambda: deque(maxlen=KEPT))

    def add(self, moments: Moments) -> None:
        self.count += 1
        self.latest.append(moments)


@attrs.frozen
class PartOfTimes:
    """One metric of `TIMES`, as a `Distribution` of milliseconds."""

    times: RequestTimes
    seconds: Callable[[Moments], float]

    @property
    def count(self) -> int:
        return self.times.count

    def latest(self) -> Sequence[float]:
        return [1000 * self.seconds(moments) for moments in tuple(self.times.latest)]


@attrs.define(eq=False)
class RequestMetrics:
    """Counts, sizes and times by Kafka's request names: Produce, FetchFollower, ..."""

    registry: MetricsRegistry | None = None
    request_bytes: dict[str, Sizes] = attrs.field(factory=dict, init=False)
    request_body_bytes: dict[str, Sizes] = attrs.field(factory=dict, init=False)
    times: dict[str, RequestTimes] = attrs.field(factory=dict, init=False)
    connections: int = attrs.field(default=0, init=False)
    connections_refused: int = attrs.field(default=0, init=False)
    _requests: Counter[tuple[str, int]] = attrs.field(factory=Counter, init=False)

    def __attrs_post_init__(self) -> None:
        if self.registry is not None:
            self.registry.family(self)
            self.registry.gauge(CONNECTIONS, lambda: self.connections)
            self.registry.gauge(CONNECTIONS_REFUSED, lambda: self.connections_refused)

    def add(self, header: RequestHeader, request: object, *, frame_size: int) -> None:
        """Count a request in a frame of `frame_size` bytes, without the bytes of its length."""
        body_size = frame_size - _header_size(header)
        for name in _names(request):
            if name not in self.request_bytes:
                self._register(name)
            self._requests[name, header.api_version] += 1
            self.request_bytes[name].add(frame_size)
            self.request_body_bytes[name].add(body_size)

    def answered(self, request: object, watch: Stopwatch) -> None:
        """Count the times of a request whose answer has been sent."""
        moments = watch.stop()
        for name in _names(request):
            self.times[name].add(moments)

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

    def _register(self, request: str) -> None:
        times = self.times[request] = RequestTimes()
        self.request_bytes[request] = Sizes()
        self.request_body_bytes[request] = Sizes()
        if self.registry is not None:
            for part, seconds in TIMES.items():
                self.registry.distribution(times_metric(part, request), PartOfTimes(times, seconds))
            for metric, sizes in (
                ("RequestBytes", self.request_bytes[request]),
                ("RequestBodyBytes", self.request_body_bytes[request]),
            ):
                for attribute, field in _ATTRIBUTES.items():
                    self.registry.gauge(
                        metric_name(metric, request, attribute), partial(getattr, sizes, field)
                    )


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


_BY_A_FOLLOWER, _BY_A_CONSUMER = ("Fetch", "FetchFollower"), ("Fetch", "FetchConsumer")


def _names(request: object) -> tuple[str, ...]:
    if isinstance(request, FetchRequest):
        return _BY_A_FOLLOWER if request.replica.replica_id >= 0 else _BY_A_CONSUMER
    kind: type = type(request)
    return _names_of(kind)


@cache
def _names_of(kind: type) -> tuple[str, ...]:
    return (kind.__name__.removesuffix("Request"),)


def _header_size(header: RequestHeader) -> int:
    client_id = b"" if header.client_id is None else header.client_id.encode()
    api = api_numbered(header.api_key)
    assert api is not None, "a decoded request has a known API"
    return 10 + len(client_id) + api.is_flexible(header.api_version)
