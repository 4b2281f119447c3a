"""The declaration of a configuration key.

A configuration is an attrs class; a field made by one of the helpers here carries its
`Spec`: how text becomes a value and back, which values are allowed, and what the error for a
wrong value says. The key's Kafka name is the field's name with dots in place of underscores.
"""

import enum
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, TypeVar, cast

import attrs

from replication.errors import ConfigError
from storage.attributes import frozen
from storage.config import LONG_MAX

T = TypeVar("T")

INT_MAX = 2**31 - 1
_SPEC = "spec"


class ConfigType(enum.IntEnum):
    """The types of DescribeConfigs (org.apache.kafka.common.requests.DescribeConfigsResponse)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class ConfigSource(enum.IntEnum):
    """The origins of a value, with their numbers in DescribeConfigs."""

    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    GROUP_CONFIG = 8


@frozen
class ConfigSynonym:
    """One place that sets a value; the first of an entry's synonyms decides its value."""

    name: str
    value: str | None
    source: ConfigSource


@frozen
class ConfigEntry:
    """One key in a DescribeConfigs response."""

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType
    documentation: str | None
    read_only: bool
    synonyms: tuple[ConfigSynonym, ...] = ()


@frozen
class Spec:
    """A key without its name.

    `parse` raises ValueError; `expectation` completes an error's "expected ...".
    """

    type: ConfigType
    default: Any
    parse: Callable[[str], Any]
    render: Callable[[Any], str | None]
    allows: Callable[[Any], bool]
    expectation: str
    doc: str
    topic_key: str | None = None
    # The other names of the key, the one that takes precedence first, and the factor that turns a
    # value under that name into the unit of the key.
    synonyms: Mapping[str, int] = attrs.field(factory=dict)

    def value_of(self, name: str, text: str) -> Any:
        """Return the value of `text`; raise ConfigError, which names `name`, if it is not valid."""
        try:
            value = self.parse(text.strip())
        except ValueError as error:
            raise self.refusal(name, text.strip(), str(error)) from None
        if not self.allows(value):
            raise self.refusal(name, text.strip())
        return value

    def check(self, name: str, value: Any) -> None:
        if not self.allows(value):
            raise self.refusal(name, self.render(value) or "")

    def refusal(self, name: str, text: str, detail: str = "") -> ConfigError:
        return ConfigError(f"{name}={text}: expected {detail or self.expectation}")


def specs(config: type[attrs.AttrsInstance]) -> dict[str, Spec]:
    """Return the keys of a configuration class by their Kafka names, in declaration order."""
    return {
        field.name.replace("_", "."): field.metadata[_SPEC]
        for field in attrs.fields(config)
        if _SPEC in field.metadata
    }


def key(spec: Spec) -> Any:
    return attrs.field(default=spec.default, metadata={_SPEC: spec})


def whole(
    default: int,
    doc: str,
    *,
    at_least: int | None = None,
    at_most: int | None = None,
    also: int | None = None,
    kind: ConfigType = ConfigType.INT,
    topic: str | None = None,
    synonyms: Mapping[str, int] | None = None,
) -> int:
    """Declare a whole number between two bounds, inclusive; `also` is one more allowed value."""
    widest = LONG_MAX if kind is ConfigType.LONG else INT_MAX
    low = -widest - 1 if at_least is None else at_least
    high = widest if at_most is None else at_most
    bounds = f"of at least {low}" if high == widest else f"from {low} to {high}"
    expectation = f"a whole number {bounds}" + ("" if also is None else f", or {also}")
    spec = Spec(
        type=kind,
        default=default,
        parse=lambda text: _number(int, text),
        render=str,
        allows=lambda value: type(value) is int and (low <= value <= high or value == also),
        expectation=expectation,
        doc=doc,
        topic_key=topic,
        synonyms=synonyms or {},
    )
    return cast("int", key(spec))


def long(
    default: int,
    doc: str,
    *,
    at_least: int | None = None,
    topic: str | None = None,
    synonyms: Mapping[str, int] | None = None,
) -> int:
    return whole(
        default, doc, at_least=at_least, kind=ConfigType.LONG, topic=topic, synonyms=synonyms
    )


def real(default: float, doc: str, *, low: float, high: float, topic: str | None = None) -> float:
    spec = Spec(
        type=ConfigType.DOUBLE,
        default=default,
        parse=lambda text: _number(float, text),
        render=_as_java_has_it,
        allows=lambda value: low <= value <= high,
        expectation=f"a number from {low} to {high}",
        doc=doc,
        topic_key=topic,
    )
    return cast("float", key(spec))


def _as_java_has_it(number: float) -> str:
    """Return `number` as Java's Double.toString has it: 0.5, 1.0E7, 1.0E-4."""
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    digits, exponent = format(Decimal(repr(number)).normalize(), "E").split("E")
    return f"{digits}{'' if '.' in digits else '.0'}E{int(exponent)}"


def _number(kind: Callable[[str], T], text: str) -> T:
    """Parse a number as Java does: Python also accepts `1_000` and `١`, which are refused here."""
    if "_" in text or not text.isascii():
        raise ValueError("")
    try:
        return kind(text)
    except ValueError:
        raise ValueError("") from None


def flag(
    default: bool,  # noqa: FBT001 it is the value
    doc: str,
    *,
    topic: str | None = None,
    choices: Iterable[bool] = (True, False),
) -> bool:
    allowed = frozenset(choices)

    def parse(text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise ValueError("")
        return text.lower() == "true"

    spec = Spec(
        type=ConfigType.BOOLEAN,
        default=default,
        parse=parse,
        render=lambda value: "true" if value else "false",
        allows=lambda value: isinstance(value, bool) and value in allowed,
        expectation=" or ".join("true" if each else "false" for each in choices),
        doc=doc,
        topic_key=topic,
    )
    return cast("bool", key(spec))


def text(
    default: str | None,
    doc: str,
    *,
    choices: Iterable[str] = (),
    topic: str | None = None,
) -> Any:
    allowed = frozenset(choices)
    spec = Spec(
        type=ConfigType.STRING,
        default=default,
        parse=str,
        render=lambda value: value,
        allows=lambda value: not allowed or value in allowed or value == default,
        expectation=_one_of(allowed) if allowed else "a text",
        doc=doc,
        topic_key=topic,
    )
    return key(spec)


def _one_of(allowed: frozenset[str]) -> str:
    named = sorted(allowed - {""})
    among = f"one of {', '.join(named)}" if len(named) > 1 else named[0]
    return f"{among} or an empty value" if "" in allowed else among


def secret(doc: str) -> Any:
    """Declare a text that is never shown, neither in DescribeConfigs nor in a repr."""
    return _hidden(doc, parse=str, default=None)


def secrets(doc: str) -> tuple[str, ...]:
    """Declare several secret texts, separated by semicolons."""

    def parse(text: str) -> tuple[str, ...]:
        return tuple(each.strip() for each in text.split(";") if each.strip())

    return cast("tuple[str, ...]", _hidden(doc, parse=parse, default=()))


def _hidden(doc: str, *, parse: Callable[[str], Any], default: Any) -> Any:
    spec = Spec(
        type=ConfigType.PASSWORD,
        default=default,
        parse=parse,
        render=lambda _: None,
        allows=lambda _: True,
        expectation="a text",
        doc=doc,
    )
    return attrs.field(default=default, metadata={_SPEC: spec}, repr=False)


def words(
    default: Iterable[str],
    doc: str,
    *,
    choices: Iterable[str] = (),
    may_be_empty: bool = False,
    topic: str | None = None,
    allows: Callable[[tuple[str, ...]], bool] | None = None,
    expectation: str = "words",
    kind: ConfigType = ConfigType.LIST,
) -> tuple[str, ...]:
    """Declare words separated by commas: some of `choices`, or words that `allows` accepts.

    Kafka drops empty words from the keys that it declares as STRING. In a LIST they stay, and
    are checked (ConfigDef.parseType).
    """
    allowed = frozenset(choices)
    if allowed:
        allows = lambda value: (may_be_empty or bool(value)) and allowed.issuperset(value)  # noqa: E731
        expectation = f"one or more of {', '.join(sorted(allowed))}"
    spec = Spec(
        type=kind,
        default=tuple(default),
        parse=split_list if kind is ConfigType.LIST else split_words,
        render=",".join,
        allows=allows or (lambda _: True),
        expectation=expectation,
        doc=doc,
        topic_key=topic,
    )
    return cast("tuple[str, ...]", key(spec))


def values(
    doc: str, *, parse: Callable[[str], T], expectation: str, kind: ConfigType = ConfigType.LIST
) -> tuple[T, ...]:
    """Declare values separated by commas; `parse` reads one of them or raises ValueError."""
    spec = Spec(
        type=kind,
        default=(),
        parse=lambda text: tuple(map(parse, split_words(text))),
        render=lambda values: ",".join(map(str, values)),
        allows=lambda _: True,
        expectation=expectation,
        doc=doc,
    )
    return cast("tuple[T, ...]", key(spec))


def split_list(text: str) -> tuple[str, ...]:
    """Split `text` as Kafka splits a LIST (ConfigDef.parseType)."""
    return tuple(word.strip() for word in text.split(",")) if text.strip() else ()


def split_words(text: str) -> tuple[str, ...]:
    """Split `text` as Kafka splits comma-separated values in a STRING (Csv.parseCsvList)."""
    return tuple(word.strip() for word in text.split(",") if word.strip())
