"""Registries as Prometheus reads them: its text format 0.0.4, with the names that dashboards know.

    kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=t
    kafka_server_brokertopicmetrics_messagesin_total{broker="1",topic="t"} 3

Rule 1: a name is spelled as the rules of jmx_exporter's kafka-2_0_0.yml spell it, and Strimzi's,
which come from them: group, type and name, lowercase, joined by underscores; `PerSec` becomes a
counter that ends in `_total`; a distribution is a gauge for each quantile, and a counter that
ends in `_count`. Tags are labels, as they are. Ours, of the groups `understudy` and `process`, leave the type out,
and are counters where they end in `_total`.

Rule 2: every series of a broker's has the label `broker`, for several may be served on one port.
What is the controller's or the process's has none.

Rule 3: nothing is read, and no line is made, for longer than SLICE of them take: then whoever
else the loop has to serve gets a turn. A scrape is as consistent as that of a JVM: each number
is right when it is read.

(prometheus_client would render all of it in one call; it reads ours back, in the tests.)
"""

import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

import attrs
import trio

from replication.metrics import Distribution, MetricName, MetricsRegistry, quantiles
from replication.observe.metric_catalogue import help_of

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SLICE = 64
OURS = frozenset({"understudy", "process"})

# Those that kafka-2_0_0.yml finds in a histogram of Kafka's, whose other attributes it drops.
QUANTILES = {
    "0.50": 0.50,
    "0.75": 0.75,
    "0.95": 0.95,
    "0.98": 0.98,
    "0.99": 0.99,
    "0.999": 0.999,
}
_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_:]")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})
_PER_SECOND = "PerSec"
_ATTRIBUTE = "attribute"  # a tag that says which number of a distribution this is

Labels = tuple[tuple[str, str], ...]


@attrs.frozen
class Source:
    """A registry, and what tells its series from another's."""

    registry: MetricsRegistry
    labels: Labels = ()


@attrs.frozen
class Spelling:
    """What a metric is called outside."""

    name: str
    type: str


def spelling(name: MetricName) -> Spelling:
    """Of one number; of a distribution's quantiles too."""
    return _spelling(name.group, name.type, name.name, dict(name.tags).get(_ATTRIBUTE))


@lru_cache(maxsize=1024)
def _spelling(group: str, kind: str, name: str, attribute: str | None) -> Spelling:
    if group in OURS:
        return Spelling(_joined(group, name), "counter" if name.endswith("_total") else "gauge")
    if name.endswith(_PER_SECOND):
        counted = name.removesuffix(_PER_SECOND)
        return Spelling(_joined(group, kind, counted, "total"), "counter")
    if attribute is not None:
        return Spelling(
            _joined(group, kind, name, attribute), "counter" if attribute == "Count" else "gauge"
        )
    return Spelling(_joined(group, kind, name), "gauge")


def _joined(*words: str) -> str:
    return _FORBIDDEN.sub("_", "_".join(words)).lower()


@attrs.define
class Exposition:
    """The lines of one scrape, by metric: those of one metric stand together."""

    _lines: dict[str, list[str]] = attrs.field(factory=dict)

    def number(self, name: MetricName, value: float, labels: Labels) -> None:
        self._add(spelling(name), name, labels + name.tags, value)

    def distribution(self, name: MetricName, found: Distribution, labels: Labels) -> None:
        spelled, labels = spelling(name), labels + name.tags
        values = quantiles(found.latest(), QUANTILES.values())
        for fraction, value in zip(QUANTILES, values, strict=True):
            self._add(spelled, name, (*labels, ("quantile", fraction)), value)
        counted = Spelling(f"{spelled.name}_count", "counter")
        self._add(counted, name, labels, found.count)

    def _add(self, spelled: Spelling, name: MetricName, labels: Labels, value: float) -> None:
        lines = self._lines.get(spelled.name)
        if lines is None:
            head = f"# HELP {spelled.name} {help_of(name).translate(_HELP_ESCAPES)}\n"
            lines = self._lines[spelled.name] = [head + f"# TYPE {spelled.name} {spelled.type}\n"]
        pairs = ",".join([_pair(label) for label in labels if label[0] != _ATTRIBUTE])
        lines.append(f"{spelled.name}{'{' + pairs + '}' if pairs else ''} {_number(value)}\n")

    def chunks(self) -> Iterable[str]:
        """All of it, in pieces of at most SLICE lines."""
        for lines in self._lines.values():
            for start in range(0, len(lines), SLICE):
                yield "".join(lines[start : start + SLICE])


@lru_cache(maxsize=4096)
def _pair(label: tuple[str, str]) -> str:
    key, value = label
    return f'{_FORBIDDEN.sub("_", key)}="{value.translate(_ESCAPES)}"'


def _number(value: float) -> str:
    value = float(value)
    if value.is_integer():
        return str(int(value))
    return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, repr(value).replace("nan", "NaN"))


async def exposition(sources: Sequence[Source]) -> bytes:
    """One scrape."""
    made, since_turn = Exposition(), 0
    for source in sources:
        for name, value in source.registry.snapshot():
            made.number(name, value, source.labels)
            if (since_turn := since_turn + 1) >= SLICE:
                since_turn = await _turn()
        for name, found in source.registry.distributions():
            await _turn()  # a thousand numbers are sorted for it
            made.distribution(name, found, source.labels)
    whole = bytearray()
    for chunk in made.chunks():
        whole += chunk.encode()
        await _turn()
    return bytes(whole)


async def _turn() -> int:
    await trio.lowlevel.checkpoint()
    return 0
