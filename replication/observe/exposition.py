"""Registries in Prometheus's text format 0.0.4, with the names that dashboards use.

    kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=t
    kafka_server_brokertopicmetrics_messagesin_total{broker="1",topic="t"} 3

Rule 1: a name follows the rules of jmx_exporter's kafka-2_0_0.yml, and of Strimzi, which derive
from them: group, type and name, lowercase, joined by underscores; `PerSec` becomes a counter that
ends in `_total`; a distribution is a gauge for each quantile, and a counter that ends in `_count`.
Tags become labels. Names in the groups `understudy` and `process` leave out the type, and are
counters if they end in `_total`.

Rule 2: every series of a broker has the label `broker`, because one port may serve several brokers.
A series of the controller or the process has none.

Rule 3: after SLICE lines, other tasks of the loop have their turn. A scrape is as consistent as that
of a JVM: each number is right when it is read.

The text is written here, in about 40 lines. prometheus_client would be a run-time dependency for
them, and renders everything in one call, which holds up the loop. It reads the text back in tests.
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

# kafka-2_0_0.yml exports these attributes of a histogram.
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
_ATTRIBUTE = "attribute"  # the tag that names one number of a distribution

Labels = tuple[tuple[str, str], ...]


@attrs.frozen
class MetricsSource:
    """A registry, and the labels of all its series."""

    registry: MetricsRegistry
    labels: Labels = ()


@attrs.frozen
class Spelling:
    """The name and the type of a metric in Prometheus."""

    name: str
    type: str


def spelling(name: MetricName) -> Spelling:
    """Return the spelling of a number, or of the quantiles of a distribution."""
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
    """The lines of one scrape; the lines of one metric stand together."""

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
        """Yield the whole text in pieces of at most SLICE lines."""
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


async def exposition(sources: Sequence[MetricsSource]) -> bytes:
    """Return the text of one scrape."""
    made, since_turn = Exposition(), 0
    for source in sources:
        for name, value in source.registry.snapshot():
            made.number(name, value, source.labels)
            if (since_turn := since_turn + 1) >= SLICE:
                since_turn = await _turn()
        for name, found in source.registry.distributions():
            await _turn()  # a distribution sorts a thousand numbers
            made.distribution(name, found, source.labels)
    whole = bytearray()
    for chunk in made.chunks():
        whole += chunk.encode()
        await _turn()
    return bytes(whole)


async def _turn() -> int:
    await trio.lowlevel.checkpoint()
    return 0
