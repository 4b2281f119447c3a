"""Lines of generated Python: the common part of the sources of encoders and decoders."""

import struct
from typing import Any

from replication.wire.schema import FIXED_SIZES, Field, Kind, Wire, fields_of


class Source:
    """Source text that is being written, with the objects that it refers to."""

    def __init__(self, version: int, *, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.names: dict[str, Any] = {}
        self.lines: list[str] = []
        self.indent = 0
        self.made = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def fresh(self, stem: str) -> str:
        """Return a local name that is not in use."""
        self.made += 1
        return f"{stem}{self.made}"

    def constant(self, stem: str, value: object) -> str:
        """Return a global name of the generated code for `value`."""
        if self.names.setdefault(stem, value) is value:
            return stem
        return self.constant(stem + "_", value)

    def packer(self, codes: str, method: str) -> str:
        """Return a global name for one method of the Struct of `codes`."""
        name = f"{method}_{codes.replace('?', 'o')}"
        if name not in self.names:
            self.names[name] = getattr(struct.Struct(f">{codes}"), method)
        return name

    def fields(self, kind: type) -> list[Field]:
        """Return the fields that are in line in this version."""
        return [f for f in fields_of(kind) if self.present(f.wire) and not self.is_tagged(f.wire)]

    def tagged_fields(self, kind: type) -> list[Field]:
        """Return the fields of the tagged section in this version, by tag."""
        tagged = [f for f in fields_of(kind) if self.present(f.wire) and self.is_tagged(f.wire)]
        assert self.flexible or not tagged, "only a flexible version has a tagged section"
        return sorted(tagged, key=lambda f: f.wire.tag or 0)

    def absent_fields(self, kind: type) -> list[Field]:
        return [f for f in fields_of(kind) if not self.present(f.wire)]

    def present(self, wire: Wire) -> bool:
        return self.version in wire.versions

    def is_tagged(self, wire: Wire) -> bool:
        return self.version in wire.tagged

    def is_nullable(self, wire: Wire) -> bool:
        return self.version in wire.nullable

    def least_size(self, items: Kind | type) -> int:
        """Return the fewest bytes that one such item takes, never 0."""
        if isinstance(items, type):
            fields = self.fields(items)
            return sum(self.least_field_size(f.wire) for f in fields) + self.flexible or 1
        if (size := FIXED_SIZES.get(items)) is not None:
            return size
        if self.flexible:
            return 1
        return 2 if items is Kind.STRING else 4

    def least_field_size(self, wire: Wire) -> int:
        if wire.kind is Kind.STRUCT:
            if self.is_nullable(wire):
                return 1
            assert isinstance(wire.items, type)
            return self.least_size(wire.items)
        return self.least_size(wire.kind)

    def has_fixed_size(self, items: Kind | type) -> bool:
        """Return whether such an item has the same size always, but for its tagged fields."""
        if isinstance(items, Kind):
            return items in FIXED_SIZES
        fields = self.fields(items)
        return bool(fields) and all(field.wire.kind in FIXED_SIZES for field in fields)

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"
