"""How large requests were: `kafka.network:type=RequestMetrics,name=RequestBytes,request=<API>`.

Kafka measures a request without its four bytes of length but with its header. The header
is as long as the client's name, so the size of the body is kept beside it: that is the
number which fetch sessions (KIP-227) shrink. As in Kafka, fetches are counted twice: as
Fetch, and as what they are for, FetchFollower or FetchConsumer.
"""

from functools import partial

import attrs

from replication.metrics import MetricName, MetricsRegistry
from replication.wire.apis import API, ApiKey
from replication.wire.fetch import FetchRequest
from replication.wire.frames import RequestHeader

# JMX attributes of a histogram, and where they are read.
_ATTRIBUTES = {"Count": "count", "Min": "smallest", "Max": "largest", "Mean": "mean"}


@attrs.define
class Sizes:
    """A distribution, as far as it is worth keeping; sizes are bytes."""

    count: int = 0
    total: int = 0
    smallest: int = 0
    largest: int = 0
    last: int = 0

    def add(self, size: int) -> None:
        self.smallest = min(self.smallest, size) if self.count else size
        self.largest = max(self.largest, size)
        self.count += 1
        self.total += size
        self.last = size

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0


@attrs.define(eq=False)
class RequestMetrics:
    """Sizes by request name, as Kafka names them: Produce, FetchFollower, ..."""

    registry: MetricsRegistry | None = None
    request_bytes: dict[str, Sizes] = attrs.field(factory=dict, init=False)
    request_body_bytes: dict[str, Sizes] = attrs.field(factory=dict, init=False)
    connections: int = attrs.field(default=0, init=False)

    def add(self, header: RequestHeader, request: object, *, frame_size: int) -> None:
        """Count a request that came in a frame of `frame_size` bytes, its length not counted."""
        body_size = frame_size - _header_size(header)
        for name in _names(request):
            if name not in self.request_bytes:
                self._register(name)
            self.request_bytes[name].add(frame_size)
            self.request_body_bytes[name].add(body_size)

    def _register(self, request: str) -> None:
        self.request_bytes[request] = Sizes()
        self.request_body_bytes[request] = Sizes()
        if self.registry is not None:
            for metric, sizes in (
                ("RequestBytes", self.request_bytes[request]),
                ("RequestBodyBytes", self.request_body_bytes[request]),
            ):
                for attribute, field in _ATTRIBUTES.items():
                    self.registry.gauge(
                        metric_name(metric, request, attribute), partial(getattr, sizes, field)
                    )


def metric_name(metric: str, request: str, attribute: str) -> MetricName:
    """Where one attribute of a request's sizes is found in the registry."""
    tags = (("request", request), ("attribute", attribute))
    return MetricName("kafka.network", "RequestMetrics", metric, tags)


def _names(request: object) -> tuple[str, ...]:
    name = type(request).__name__.removesuffix("Request")
    if isinstance(request, FetchRequest):
        return name, "FetchFollower" if request.replica.replica_id >= 0 else "FetchConsumer"
    return (name,)


def _header_size(header: RequestHeader) -> int:
    client_id = b"" if header.client_id is None else header.client_id.encode()
    flexible = API[ApiKey(header.api_key)].is_flexible(header.api_version)
    return 10 + len(client_id) + flexible
