"""The source of a decoder: one function from a frame to a message.

Fields of fixed size gather in a *run* that is read with one `unpack_from`, straight into
the object's attributes, when something of another kind comes. A short frame shows itself
as struct.error or IndexError there; slices do not complain, so lengths are checked first.

    def decode(frame, position, end):
        ...
        return m0, position

In steps, it is a generator, which pauses at an item of an array once it has read `STEP_BYTES`
more of the frame (`replication.steps`). Then `room` is how many items the arrays may have together.
"""

from typing import Any

from replication.steps import STEP
from replication.wire.primitives import (
    MAX_TAGS,
    bad_length,
    bad_tag,
    read_uvarint,
    skip_tags,
    too_many_items,
    too_many_tags,
)
from replication.wire.schema import FIXED_SIZES, Field, Kind, Wire, is_frozen
from replication.wire.source import Source

STEP_BYTES = 4096
"""The bytes after which a decoder in steps pauses: those of a long string count, those of records,
which are not looked at, do not.
"""

_new = object.__new__


def decoder_source(
    kind: type, version: int, *, flexible: bool, in_steps: bool = False
) -> tuple[str, dict[str, Any]]:
    """Return the text of `decode`, and the names that it uses."""
    source = _DecoderSource(version, flexible=flexible, in_steps=in_steps)
    source.message(kind)
    return source.text(), source.names


class _DecoderSource(Source):
    def __init__(self, version: int, *, flexible: bool, in_steps: bool = False) -> None:
        super().__init__(version, flexible=flexible)
        self.in_steps = in_steps
        self.run: list[tuple[str, int, str]] = []
        self.names |= {"new": _new, "read_uvarint": read_uvarint, "skip_tags": skip_tags}
        self.names |= {"bad_length": bad_length, "bad_tag": bad_tag}
        self.names |= {"too_many_items": too_many_items, "too_many_tags": too_many_tags}

    def message(self, kind: type) -> None:
        self.line(f"def decode(frame, position, end{', room' if self.in_steps else ''}):")
        self.indent += 1
        if self.in_steps:
            self.line(f"pause = position + {STEP_BYTES}")
        self.struct(kind, "m0")
        self.flush()
        if self.in_steps:
            self.line("yield 0")  # a generator, even of a message without arrays
        self.line("return m0, position")
        self.indent -= 1

    def struct(self, kind: type, name: str) -> None:
        """Make an object of class `kind` in the local variable `name`."""
        class_name = self.constant(kind.__name__, kind)
        if is_frozen(kind):
            self.frozen_struct(kind, class_name, name)
            return
        self.line(f"{name} = new({class_name})")
        tagged = self.tagged_fields(kind) if self.flexible else []
        for field in [*self.absent_fields(kind), *tagged]:
            self.line(f"{name}.{field.name} = {self.default(field)}")
        for field in self.fields(kind):
            self.field(field.name, field.wire, f"{name}.{field.name}")
        if self.flexible:
            self.tags(kind, name, tagged)

    def frozen_struct(self, kind: type, class_name: str, name: str) -> None:
        fields = self.fields(kind)
        for field in fields:
            self.field(field.name, field.wire, f"{name}_{field.name}")
        if self.flexible:
            assert not self.tagged_fields(kind), "a frozen struct is read without tags"
            self.tags(kind, name, [])
        self.flush()
        arguments = ", ".join(f"{field.name}={name}_{field.name}" for field in fields)
        self.line(f"{name} = {class_name}({arguments})")

    def default(self, field: Field) -> str:
        if field.wire.kind is Kind.ARRAY:
            return "None" if field.default is None else "[]"
        if field.wire.kind in (Kind.STRUCT, Kind.UUID):
            return self.constant(f"DEFAULT_{field.name}", field.default)
        return repr(field.default)

    def flush(self) -> None:
        """Read the run of fixed-size values."""
        if not self.run:
            return
        codes = "".join(code for code, _, _ in self.run)
        targets = ", ".join(target for _, _, target in self.run)
        if codes == "B":
            self.line(f"{targets} = frame[position]")
        else:
            self.line(f"{targets}, = {self.packer(codes, 'unpack_from')}(frame, position)")
        self.line(f"position += {sum(size for _, size, _ in self.run)}")
        self.run.clear()

    def field(self, name: str, wire: Wire, target: str) -> None:
        match wire.kind:
            case Kind.STRUCT:
                assert isinstance(wire.items, type)
                if self.is_nullable(wire):
                    self.nullable_struct(wire.items, target, tagged=self.is_tagged(wire))
                else:
                    self.struct_into(wire.items, target)
            case Kind.ARRAY:
                self.array(name, wire, target)
            case Kind.STRING | Kind.BYTES | Kind.RECORDS:
                self.sized(name, wire.kind, target, nullable=self.is_nullable(wire))
            case fixed:
                self.run.append((fixed.value, FIXED_SIZES[fixed], target))

    def struct_into(self, kind: type, target: str) -> None:
        local = self.fresh("m")
        self.struct(kind, local)
        self.line(f"{target} = {local}")

    def nullable_struct(self, kind: type, target: str, *, tagged: bool) -> None:
        """Read a struct behind a byte that says whether it is null: -1, or 0 in a tagged field."""
        there = self.fresh("p")
        self.run.append(("b", 1, there))
        self.flush()
        self.line(f"if {there} {'<=' if tagged else '<'} 0: {target} = None")
        self.line("else:")
        self.indent += 1
        self.struct_into(kind, target)
        self.flush()
        self.indent -= 1

    def length(self, code: str) -> str:
        """Read a length or count into a local, -1 for null; return its name."""
        name = self.fresh("n")
        if not self.flexible:
            self.run.append((code, 2 if code == "h" else 4, name))
            self.flush()
            return name
        self.varint(name)
        self.line(f"{name} -= 1")
        return name

    def varint(self, name: str) -> None:
        """Read a varint: its first byte in the run, the others, which few have, behind it."""
        self.run.append(("B", 1, name))
        self.flush()
        self.line(f"if {name} > 127: {name}, position = read_uvarint(frame, position - 1)")

    def sized(self, name: str, kind: Kind, target: str, *, nullable: bool) -> None:
        """Read a string, bytes or records behind their length."""
        length = self.length("h" if kind is Kind.STRING else "i")
        piece = f"frame[position:position + {length}]"
        read = {Kind.STRING: f'str({piece}, "utf-8")', Kind.BYTES: f"bytes({piece})"}
        if nullable:
            self.line(f"if {length} == -1: {target} = None")
        self.line(
            f"{'elif' if nullable else 'if'} not 0 <= {length} <= end - position: "
            f"raise bad_length({name!r}, {length}, end - position)"
        )
        self.line("else:")
        self.line(f"    {target} = {read.get(kind, piece)}")
        self.line(f"    position += {length}")
        if kind is Kind.RECORDS and self.in_steps:
            self.line(f"    pause += {length}")

    def array(self, name: str, wire: Wire, target: str) -> None:
        kind = wire.items
        assert kind is not None, "an array says what it holds"
        length = self.length("i")
        nullable = self.is_nullable(wire)
        if nullable:
            self.line(f"if {length} == -1: {target} = None")
        self.line(
            f"{'elif' if nullable else 'if'} "
            f"not 0 <= {length} <= (end - position) // {self.least_size(kind)}: "
            f"raise bad_length({name!r}, {length}, end - position)"
        )
        self.line("else:")
        self.indent += 1
        if self.in_steps:
            self.line(f"room -= {length}")
            self.line("if room < 0: raise too_many_items()")
        if isinstance(kind, type) or kind is Kind.STRING:
            self.array_of_items(name, kind, target, length)
        else:
            self.array_of_fixed(kind, target, length)
        self.indent -= 1

    def array_of_items(self, name: str, kind: type | Kind, target: str, length: str) -> None:
        items, item = self.fresh("a"), self.fresh("x")
        self.line(f"{target} = {items} = []")
        self.line(f"for _ in range({length}):")
        self.indent += 1
        if isinstance(kind, type):
            self.struct(kind, item)
            self.flush()
        else:
            self.sized(name, kind, item, nullable=False)
        self.line(f"{items}.append({item})")
        self.pause()
        self.indent -= 1

    def pause(self) -> None:
        """Pause if that is due."""
        if self.in_steps:
            self.line("if position >= pause:")
            self.line(f"    yield {STEP}")
            self.line(f"    pause = position + {STEP_BYTES}")

    def array_of_fixed(self, kind: Kind, target: str, length: str) -> None:
        size = FIXED_SIZES[kind]
        iterate = self.packer(kind.value, "iter_unpack")
        self.line(f"{self.fresh('stop')} = position + {length} * {size}")
        stop = f"stop{self.made}"
        if not self.in_steps:
            self.line(f"{target} = [value for value, in {iterate}(frame[position:{stop}])]")
            self.line(f"position = {stop}")
            return
        items, piece = self.fresh("a"), self.fresh("x")
        self.line(f"{target} = {items} = []")
        self.line(f"while position < {stop}:")
        self.indent += 1
        self.line(f"{piece} = frame[position:min({stop}, position + {STEP_BYTES // size * size})]")
        self.line(f"{items} += [value for value, in {iterate}({piece})]")
        self.line(f"position += len({piece})")
        self.pause()
        self.indent -= 1

    # -- the tagged section

    def tags(self, kind: type, name: str, tagged: list[Field]) -> None:
        """Read the section's count in the run; leave the rare rest to a function."""
        count = self.fresh("t")
        self.run.append(("B", 1, count))
        self.flush()
        if tagged:
            reader = self.tags_reader(kind, tagged)
            self.line(f"if {count}: position = {reader}({name}, frame, position - 1, end)")
        else:
            self.line(f"if {count}: position = skip_tags(frame, position - 1)")

    def tags_reader(self, kind: type, tagged: list[Field]) -> str:
        """Return the name of a function that reads the tagged section of `kind` into an object."""
        name = f"tags_of_{kind.__name__}"
        source = _DecoderSource(self.version, flexible=True)
        source.names = self.names
        source.line(f"def {name}(m0, frame, position, limit):")
        source.indent += 1
        source.varint("count")
        source.line(f"if count > {MAX_TAGS}: raise too_many_tags(count)")
        source.line("for _ in range(count):")
        source.indent += 1
        source.varint("tag")
        source.varint("size")
        source.line("end = position + size")
        source.line("if end > limit: raise bad_length('a tagged field', size, limit - position)")
        for field in tagged:
            source.line(f"if tag == {field.wire.tag}:")
            source.indent += 1
            source.field(field.name, field.wire, f"m0.{field.name}")
            source.flush()
            source.line(f"if position != end: raise bad_tag({field.name!r}, size)")
            source.indent -= 1
        source.line("position = end")
        source.indent -= 1
        source.line("return position")
        self.lines = source.lines + self.lines
        return name
