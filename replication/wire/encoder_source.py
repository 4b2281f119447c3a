"""The source of an encoder: one function from a message to its parts.

Fields of fixed size gather in a *run* that is written with one `pack` when something of
another kind comes; a length or the end of a struct, which is nearly always one byte, ends it.

A version has two encoders. The first is for small messages, which most are: it adds piece to
piece, and gives up when the arrays of the message have more than `room` items together.

    def encode(m0, room):
        parts = []
        out = b""
        out += ...
        if out: parts.append(out)
        return parts                      # None where it gives up

The second writes the others. It is a generator, which pauses after every `STEP` items of
arrays, with what it has written so far as a part (`replication.steps`). It collects the pieces
in a list. Records are a part of their own in both, and are never copied.
"""

from typing import Any, NamedTuple

from replication.steps import STEP
from replication.wire.primitives import ONE_BYTE, uvarint
from replication.wire.schema import FIXED_SIZES, Field, Kind, Wire, fields_of
from replication.wire.source import Source


def encoder_source(
    kind: type, version: int, *, flexible: bool, in_steps: bool = False
) -> tuple[str, dict[str, Any]]:
    """Return the text of `encode`, and the names that it uses."""
    source = _EncoderSource(version, flexible=flexible, in_steps=in_steps)
    source.message(kind)
    return source.text(), source.names


_NULL = repr(b"\xff")
_TAGGED_NULL = repr(b"\0")
_IN_MEMORY = (bytes, bytearray, memoryview)


def size_of(records: Any) -> int:
    """Return the size of one part in bytes, in memory or not."""
    size: int = len(records) if type(records) in _IN_MEMORY else records.size
    return size


class _OneByte(NamedTuple):
    """A value that is written as one byte if `condition` holds, as the bytes `otherwise` if not."""

    value: str
    condition: str
    otherwise: str


class _EncoderSource(Source):
    def __init__(self, version: int, *, flexible: bool, in_steps: bool = False) -> None:
        super().__init__(version, flexible=flexible)
        self.in_steps = in_steps
        self.run: list[tuple[str, str]] = []
        self.helpers: list[str] = []
        self.gives_up = not in_steps
        self.names |= {"ONE_BYTE": ONE_BYTE, "uvarint": uvarint, "join": b"".join}
        self.names |= {"size_of": size_of}

    def message(self, kind: type) -> None:
        self.line("def encode(m0):" if self.in_steps else "def encode(m0, room):")
        self.indent += 1
        self.line("parts = []")
        if self.in_steps:
            self.line("out = []")
            self.line("write = out.append")
            self.line(f"left = {STEP}")
        else:
            self.line("out = b''")
        self.struct(kind, "m0")
        self.flush()
        self.line("if out:")
        self.indent += 1
        self.cut()
        self.indent -= 1
        if self.in_steps:
            self.line("yield 0")  # a generator, even of a message without arrays
        self.line("return parts")
        self.indent -= 1

    def struct(self, kind: type, value: str) -> None:
        for field in self.fields(kind):
            self.field(field.wire, f"{value}.{field.name}")
        if last := self.tags(kind, value):
            self.flush(last)

    def nullable_struct(self, kind: type, value: str, *, tagged: bool) -> None:
        """Write a struct behind a byte that says whether it is null: -1, or 0 in a tagged field."""
        self.flush()
        self.line(f"if {value} is None: {self.writing(_TAGGED_NULL if tagged else _NULL)}")
        self.line("else:")
        self.indent += 1
        self.run.append(("b", "1"))
        self.struct(kind, value)
        self.flush()
        self.indent -= 1

    def writing(self, expression: str) -> str:
        """Return a statement that writes the bytes of `expression`."""
        return f"write({expression})" if self.in_steps else f"out += {expression}"

    def flush(self, last: "_OneByte | None" = None, then: str = "") -> None:
        """Write the run of fixed-size values, a `last` one, and `then` bytes."""
        if self.run or last:
            self.line(self.writing(self.packed(last, then)))

    def packed(self, last: "_OneByte | None" = None, then: str = "") -> str:
        """Return an expression for the bytes of the run, which is empty from now on."""
        behind = f" + {then}" if then else ""
        run, self.run = self.run, []
        if last is None:
            return self.pack(run) + behind
        short = self.pack([*run, ("B", last.value)]) + behind
        before = f"{self.pack(run)} + " if run else ""
        return f"{short} if {last.condition} else {before}{last.otherwise}{behind}"

    def pack(self, run: list[tuple[str, str]]) -> str:
        codes = "".join(code for code, _ in run)
        values = ", ".join(value for _, value in run)
        return f"ONE_BYTE[{values}]" if codes == "B" else f"{self.packer(codes, 'pack')}({values})"

    def field(self, wire: Wire, value: str) -> None:
        match wire.kind:
            case Kind.STRUCT:
                assert isinstance(wire.items, type)
                if self.is_nullable(wire):
                    self.nullable_struct(wire.items, value, tagged=self.is_tagged(wire))
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
        code = "h" if kind is Kind.STRING else "i"
        if nullable:
            self.line(f"{raw} = None if {value} is None else {encoded}")
            self.length(f"len({raw})", raw, code, then=f"({raw} or b'')")
        else:
            self.line(f"{raw} = {encoded}")
            self.length(f"len({raw})", None, code, then=raw)

    def length(self, length: str, nullable: str | None, code: str, then: str = "") -> str:
        """Write a length or count, and `then` bytes; `nullable` is a name that may hold None.

        Return an expression for the length where it is none of None.
        """
        if not self.flexible:
            value = f"(-1 if {nullable} is None else {length})" if nullable else length
            self.run.append((code, value))
            self.flush(then=then)
            return length
        name = self.fresh("n")
        null = f"0 if {nullable} is None else " if nullable else ""
        self.line(f"{name} = {null}{length} + 1")
        self.flush(_OneByte(name, f"{name} < 128", f"uvarint({name})"), then)
        return f"({name} - 1)"

    def records(self, wire: Wire, value: str) -> None:
        name = self.fresh("r")
        self.line(f"{name} = {value}")
        self.line(f"z{name} = 0 if {name} is None else size_of({name})")
        self.length(f"z{name}", name if self.is_nullable(wire) else None, "i")
        self.line(f"if z{name}:")
        self.indent += 1
        self.cut()
        self.line(f"parts.append({name})")
        self.indent -= 1

    def cut(self) -> None:
        """Make a part of what is written so far."""
        self.line(f"parts.append({'join(out)' if self.in_steps else 'out'})")
        self.line("out.clear()" if self.in_steps else "out = b''")

    def array(self, wire: Wire, value: str) -> None:
        items = self.fresh("a")
        self.line(f"{items} = {value}")
        count = self.length(f"len({items})", items if self.is_nullable(wire) else None, "i")
        # A non-nullable array that holds None fails on its length: a mistake of ours.
        self.line(f"if {items}:")
        self.indent += 1
        if self.gives_up:
            self.line(f"room -= {count}")
            self.line("if room < 0: return None")
        assert wire.items is not None, "an array says what it holds"
        if self.in_steps and self.has_fixed_size(wire.items):
            self.many_of_fixed_size(wire.items, items)
        else:
            self.one_by_one(wire.items, items)
        self.indent -= 1

    def one_by_one(self, kind: Kind | type, items: str) -> None:
        item = self.fresh("x")
        self.line(f"for {item} in {items}:")
        self.indent += 1
        if isinstance(kind, type):
            self.struct(kind, item)
        elif kind is Kind.STRING:
            self.sized(kind, item, nullable=False)
        else:
            assert kind in FIXED_SIZES, "an array holds structs, strings or numbers"
            self.fixed(kind, item)
        self.flush()
        if self.in_steps:
            self.line("left -= 1")
            self.pause()
        self.indent -= 1

    def many_of_fixed_size(self, kind: Kind | type, items: str) -> None:
        """Write all items, `STEP` at a time."""
        start = self.fresh("i")
        self.line(f"for {start} in range(0, len({items}), {STEP}):")
        self.indent += 1
        some = f"{items}[{start}:{start} + {STEP}]"
        self.line(f"write(join([{self.of_fixed_size(kind, 'x')} for x in {some}]))")
        self.line(f"left -= min({STEP}, len({items}))")
        self.pause()
        self.indent -= 1

    def of_fixed_size(self, kind: Kind | type, value: str) -> str:
        """Return an expression for an item of which `has_fixed_size` is true."""
        if isinstance(kind, Kind):
            self.run.append((kind.value, value))
            return self.packed()
        self.run += [(each.wire.kind.value, f"{value}.{each.name}") for each in self.fields(kind)]
        return self.packed(self.tags(kind, value))

    def pause(self) -> None:
        """Pause if that is due."""
        self.line("if left <= 0:")
        self.indent += 1
        self.line(f"left = {STEP}")
        self.cut()
        self.line(f"yield {STEP}")
        self.indent -= 1

    # -- the tagged section: only fields that differ from their defaults are written

    def tags(self, kind: type, value: str) -> _OneByte | None:
        """Add the end of a struct to the run, or return it where there may be tagged fields."""
        if not self.flexible:
            return None
        if not (tagged := self.tagged_fields(kind)):
            self.run.append(("B", "0"))
            return None
        untagged = " and ".join(
            f"not ({self.differs(field, f'{value}.{field.name}')})" for field in tagged
        )
        return _OneByte("0", untagged, f"{self.tags_writer(kind, tagged)}({value})")

    def differs(self, field: Field, value: str) -> str:
        if field.default is None:
            return f"{value} is not None"
        if field.wire.kind is Kind.ARRAY:
            return value
        if field.wire.kind is Kind.UUID:
            default = self.constant(f"DEFAULT_{field.name}", field.default)
            return f"{value} is not {default} and {value} != {default}"
        if field.wire.kind is Kind.STRUCT:
            return self.struct_differs(field, value)
        return f"{value} != {field.default!r}"

    def struct_differs(self, field: Field, value: str) -> str:
        """Compare field by field, which calls nothing."""
        default = self.constant(f"DEFAULT_{field.name}", field.default)
        assert isinstance(field.wire.items, type)
        unequal = " or ".join(
            f"{value}.{each.name} != {getattr(field.default, each.name)!r}"
            for each in fields_of(field.wire.items)
        )
        differs = f"{value} is not {default} and ({unequal})"
        return f"{value} is None or {differs}" if self.is_nullable(field.wire) else differs

    def tags_writer(self, kind: type, tagged: list[Field]) -> str:
        """Return the name of a function that writes the tagged section of `kind`."""
        name = f"tags_of_{kind.__name__}"
        if name in self.helpers:
            return name
        self.helpers.append(name)
        source = _EncoderSource(self.version, flexible=True)
        source.names = self.names
        source.helpers = self.helpers
        source.gives_up = False
        source.line(f"def {name}(m0):")
        source.indent += 1
        source.line("count = 0")
        source.line("section = b''")
        for field in tagged:
            source.line(f"if {self.differs(field, f'm0.{field.name}')}:")
            source.indent += 1
            source.line("count += 1")
            source.tagged_field(field)
            source.indent -= 1
        source.line("return ONE_BYTE[count] + section")
        self.lines = source.lines + self.lines
        return name

    def is_fixed(self, wire: Wire) -> bool:
        """Return whether a tagged field has the same size always."""
        if wire.kind is not Kind.STRUCT:
            return wire.kind in FIXED_SIZES
        assert isinstance(wire.items, type)
        whole = self.has_fixed_size(wire.items) and not self.tagged_fields(wire.items)
        return whole and not self.is_nullable(wire)

    def tagged_field(self, field: Field) -> None:
        """Add one field, behind its tag and its size, to `section`."""
        assert field.wire.tag is not None, "a field of the tagged section has a tag"
        if self.is_fixed(field.wire):
            size = self.least_field_size(field.wire)
            self.run += [("B", str(field.wire.tag)), ("B", str(size))]
            self.field(field.wire, f"m0.{field.name}")
            self.line(f"section += {self.packed()}")
            return
        self.line("out = b''")
        self.field(field.wire, f"m0.{field.name}")
        self.flush()
        self.line(f"section += ONE_BYTE[{field.wire.tag}] + uvarint(len(out)) + out")
