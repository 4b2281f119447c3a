"""The source of an encoder: one function from a message to its parts.

Fields of fixed size gather in a *run* that is written with one `pack` when something of
another kind comes. `out` collects small pieces; records cut it, so that what comes before
them is joined once and they themselves are never copied.

    def encode(m0):
        parts = []
        out = []
        write = out.append
        ...
        if out: parts.append(join(out))
        return parts

In steps, it is a generator, which pauses after every `STEP` items of arrays, with what it has
written so far as a part (`replication.steps`).
"""

from typing import Any

from replication.steps import STEP
from replication.wire.primitives import ONE_BYTE, uvarint
from replication.wire.schema import FIXED_SIZES, Field, Kind, Wire
from replication.wire.source import Source


def encoder_source(
    kind: type, version: int, *, flexible: bool, in_steps: bool = False
) -> tuple[str, dict[str, Any]]:
    """Return the text of `encode`, and the names that it uses."""
    source = _EncoderSource(version, flexible=flexible, in_steps=in_steps)
    source.message(kind)
    return source.text(), source.names


def size_of(records: Any) -> int:
    """Return the size of one part in bytes, in memory or not."""
    if isinstance(records, bytes | bytearray | memoryview):
        return len(records)
    size: int = records.size
    return size


class _EncoderSource(Source):
    def __init__(self, version: int, *, flexible: bool, in_steps: bool = False) -> None:
        super().__init__(version, flexible=flexible)
        self.in_steps = in_steps
        self.run: list[tuple[str, str]] = []
        self.helpers: list[str] = []
        self.names |= {"ONE_BYTE": ONE_BYTE, "uvarint": uvarint, "join": b"".join}
        self.names |= {"size_of": size_of}

    def message(self, kind: type) -> None:
        self.line("def encode(m0):")
        self.indent += 1
        self.line("parts = []")
        self.line("out = []")
        self.line("write = out.append")
        if self.in_steps:
            self.line(f"left = {STEP}")
        self.struct(kind, "m0")
        self.flush()
        self.line("if out: parts.append(join(out))")
        if self.in_steps:
            self.line("yield 0")  # a generator, even of a message without arrays
        self.line("return parts")
        self.indent -= 1

    def struct(self, kind: type, value: str) -> None:
        for field in self.fields(kind):
            self.field(field.wire, f"{value}.{field.name}")
        if not self.flexible:
            return
        if tagged := self.tagged_fields(kind):
            self.flush()
            writer = self.tags_writer(kind, tagged)
            self.line(f"write(NO_TAGS if {self.untagged(tagged, value)} else {writer}({value}))")
        else:
            self.run.append(("B", "0"))

    def nullable_struct(self, kind: type, value: str) -> None:
        """Write a struct behind a byte that says whether it is null."""
        self.flush()
        self.line(f"if {value} is None: write(b'\\xff')")
        self.line("else:")
        self.indent += 1
        self.run.append(("b", "1"))
        self.struct(kind, value)
        self.flush()
        self.indent -= 1

    def flush(self) -> None:
        """Write the run of fixed-size values."""
        if not self.run:
            return
        codes = "".join(code for code, _ in self.run)
        values = ", ".join(value for _, value in self.run)
        self.line(f"write({self.packer(codes, 'pack')}({values}))")
        self.run.clear()

    def field(self, wire: Wire, value: str) -> None:
        match wire.kind:
            case Kind.STRUCT:
                assert isinstance(wire.items, type)
                if self.is_nullable(wire):
                    self.nullable_struct(wire.items, value)
                else:
                    self.struct(wire.items, value)
            case Kind.ARRAY:
                self.array(wire, value)
            case Kind.STRING | Kind.BYTES:
                self.sized(wire.kind, value, nullable=self.is_nullable(wire))
            case Kind.RECORDS:
                self.records(wire, value)
            case fixed:
                self.fixed(fixed, value)

    def fixed(self, kind: Kind, value: str) -> None:
        if kind is Kind.UUID:
            self.line(f'assert len({value}) == 16, "an id has 16 bytes"')
        self.run.append((kind.value, value))

    def sized(self, kind: Kind, value: str, *, nullable: bool) -> None:
        """Write a string or bytes behind their length."""
        raw = self.fresh("s")
        encoded = f"{value}.encode()" if kind is Kind.STRING else value
        if nullable:
            self.line(f"{raw} = None if {value} is None else {encoded}")
        else:
            self.line(f"{raw} = {encoded}")
        self.length(f"len({raw})", raw if nullable else None, "h" if kind is Kind.STRING else "i")
        self.flush()
        self.line(f"if {raw}: write({raw})")

    def length(self, length: str, nullable: str | None, code: str) -> None:
        """Write a length or count; `nullable` is the name that may hold None."""
        if not self.flexible:
            self.run.append(
                (code, f"(-1 if {nullable} is None else {length})" if nullable else length)
            )
            return
        self.flush()
        name = self.fresh("n")
        compact = f"{length} + 1"
        self.line(
            f"{name} = " + (f"0 if {nullable} is None else {compact}" if nullable else compact)
        )
        self.line(f"write(ONE_BYTE[{name}] if {name} < 128 else uvarint({name}))")

    def records(self, wire: Wire, value: str) -> None:
        name = self.fresh("r")
        self.line(f"{name} = {value}")
        self.line(f"z{name} = 0 if {name} is None else size_of({name})")
        self.length(f"z{name}", name if self.is_nullable(wire) else None, "i")
        self.flush()
        self.line(f"if z{name}:")
        self.line("    parts.append(join(out))")
        self.line("    out.clear()")
        self.line(f"    parts.append({name})")

    def array(self, wire: Wire, value: str) -> None:
        items = self.fresh("a")
        self.line(f"{items} = {value}")
        self.length(f"len({items})", items if self.is_nullable(wire) else None, "i")
        self.flush()
        # A non-nullable array that holds None fails on its length: a mistake of ours.
        self.line(f"if {items}:")
        self.indent += 1
        kind = wire.items
        if isinstance(kind, type):
            self.array_of_structs(kind, items)
        elif kind is Kind.STRING:
            item = self.fresh("x")
            self.line(f"for {item} in {items}:")
            self.indent += 1
            self.sized(kind, item, nullable=False)
            self.pause()
            self.indent -= 1
        else:
            assert kind in FIXED_SIZES, "an array holds structs, strings or numbers"
            pack = self.packer(kind.value, "pack")
            self.array_of_fixed(f"{pack}(x)", items)
        self.indent -= 1

    def array_of_fixed(self, expression: str, items: str) -> None:
        """Write what `expression` makes of each `x`, all at once or `STEP` at a time."""
        if not self.in_steps:
            self.line(f"write(join([{expression} for x in {items}]))")
            return
        start = self.fresh("i")
        self.line(f"for {start} in range(0, len({items}), {STEP}):")
        self.indent += 1
        self.line(f"write(join([{expression} for x in {items}[{start}:{start} + {STEP}]]))")
        self.line(f"left -= min({STEP}, len({items})) - 1")
        self.pause()
        self.indent -= 1

    def pause(self) -> None:
        """Count an item, and pause if that is due."""
        if not self.in_steps:
            return
        self.line("left -= 1")
        self.line("if left <= 0:")
        self.line(f"    left = {STEP}")
        self.line("    parts.append(join(out))")
        self.line("    out.clear()")
        self.line(f"    yield {STEP}")

    def array_of_structs(self, kind: type, items: str) -> None:
        fields = self.fields(kind)
        if fields and all(field.wire.kind in FIXED_SIZES for field in fields):
            self.array_of_fixed(self.fixed_struct(kind, "x"), items)
            return
        item = self.fresh("x")
        self.line(f"for {item} in {items}:")
        self.indent += 1
        self.struct(kind, item)
        self.flush()
        self.pause()
        self.indent -= 1

    def fixed_struct(self, kind: type, value: str) -> str:
        """Return an expression for a struct whose fields in line all have a fixed size."""
        fields = self.fields(kind)
        codes = "".join(field.wire.kind.value for field in fields)
        values = ", ".join(f"{value}.{field.name}" for field in fields)
        plain = f"{self.packer(codes, 'pack')}({values})"
        if not self.flexible:
            return plain
        untagged = f"{self.packer(codes + 'B', 'pack')}({values}, 0)"
        if not (tagged := self.tagged_fields(kind)):
            return untagged
        writer = self.tags_writer(kind, tagged)
        return f"{untagged} if {self.untagged(tagged, value)} else {plain} + {writer}({value})"

    # -- the tagged section: only fields that differ from their defaults are written

    def untagged(self, tagged: list[Field], value: str) -> str:
        """Return a condition that is true if every tagged field has its default."""
        return " and ".join(
            f"not ({self.differs(field, f'{value}.{field.name}')})" for field in tagged
        )

    def differs(self, field: Field, value: str) -> str:
        if field.default is None:
            return f"{value} is not None"
        if field.wire.kind is Kind.ARRAY:
            return value
        if field.wire.kind in (Kind.STRUCT, Kind.UUID):
            default = self.constant(f"DEFAULT_{field.name}", field.default)
            return f"{value} is not {default} and {value} != {default}"
        return f"{value} != {field.default!r}"

    def tags_writer(self, kind: type, tagged: list[Field]) -> str:
        """Return the name of a function that writes the tagged section of `kind`."""
        name = f"tags_of_{kind.__name__}"
        self.names.setdefault("NO_TAGS", b"\0")
        if name in self.helpers:
            return name
        self.helpers.append(name)
        source = _EncoderSource(self.version, flexible=True)
        source.names = self.names
        source.helpers = self.helpers
        source.line(f"def {name}(m0):")
        source.indent += 1
        source.line("count = 0")
        source.line("section = []")
        for field in tagged:
            source.line(f"if {self.differs(field, f'm0.{field.name}')}:")
            source.indent += 1
            source.line("out = []")
            source.line("write = out.append")
            source.field(field.wire, f"m0.{field.name}")
            source.flush()
            source.line("body = join(out)")
            source.line("count += 1")
            source.line(f"section += [uvarint({field.wire.tag}), uvarint(len(body)), body]")
            source.indent -= 1
        source.line("return uvarint(count) + join(section)")
        self.lines = source.lines + self.lines
        return name
