"""Arrow types of decoded values, and how a library's value becomes one that Arrow takes.

    STRING                        the value as it is
    array(STRING)                 a list
    record([("id", STRING)])      a dictionary, or whatever `get` takes fields from
    json_text()                   any value, as JSON

Rule: where no value needs to be changed, none is touched: Arrow itself walks the dictionaries
and lists.
"""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa

Change: TypeAlias = Callable[[Any], Any]

UTC_MICROSECONDS: Final = pa.timestamp("us", tz="UTC")
LOCAL_MICROSECONDS: Final = pa.timestamp("us")
MOST_DECIMAL_DIGITS: Final = 38


@attrs.frozen
class Shape:
    """A type, and the change that a value needs; None if it needs none."""

    type: pa.DataType
    change: Change | None = None

    @property
    def fields(self) -> list[str] | None:
        """The names of a record's fields, or None for another type."""
        if not pa.types.is_struct(self.type):
            return None
        return [self.type.field(number).name for number in range(self.type.num_fields)]

    def changed(self, value: Any) -> Any:
        return value if value is None or self.change is None else self.change(value)


STRING: Final = Shape(pa.string())
BINARY: Final = Shape(pa.binary())
BOOLEAN: Final = Shape(pa.bool_())
INT: Final = Shape(pa.int32())
LONG: Final = Shape(pa.int64())
FLOAT: Final = Shape(pa.float32())
DOUBLE: Final = Shape(pa.float64())


def array(item: Shape) -> Shape:
    """Return the shape of lists."""
    kind = pa.list_(pa.field("element", item.type))
    if item.change is None:
        return Shape(kind)
    return Shape(kind, lambda values: [item.changed(value) for value in values])


def mapping(key: Shape, value: Shape) -> Shape:
    """Return the shape of dictionaries with any keys."""

    def pairs(values: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
        return [(key.changed(name), value.changed(each)) for name, each in values.items()]

    return Shape(pa.map_(key.type, value.type), pairs)


def record(
    fields: Sequence[tuple[str, Shape]], get: Callable[[Any, str], Any] | None = None
) -> Shape:
    """Return the shape of records; `get` returns a field's value, of a dictionary by default."""
    kind = pa.struct([pa.field(name, shape.type) for name, shape in fields])
    if get is None and all(shape.change is None for _, shape in fields):
        return Shape(kind)
    take = get or dict.get

    def change(value: Any) -> dict[str, Any]:
        return {name: shape.changed(take(value, name)) for name, shape in fields}

    return Shape(kind, change)


def json_text(dump: Change | None = None) -> Shape:
    """Return the shape of values that become JSON text; `dump` makes it."""
    return Shape(pa.string(), dump or _dump)


def decimal(precision: int, scale: int) -> Shape:
    """Return the shape of decimals, which are text if Spark has no type so wide."""
    if 0 < precision <= MOST_DECIMAL_DIGITS and 0 <= scale <= precision:
        return Shape(pa.decimal128(precision, scale))
    return Shape(pa.string(), str)


def _dump(value: Any) -> str:
    return json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
