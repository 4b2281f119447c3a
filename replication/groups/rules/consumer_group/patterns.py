r"""Regular expressions of subscriptions, in the syntax of RE2, matched in bounded time.

Kafka compiles them with RE2/J, so that clients of every language mean the same. Python's `re` is
another language, and needs exponential time for some patterns (`(a+)+b`). So they are read here:

    pattern ──parse──> tree ──> instructions ──> sets of instructions, one for each character

RE2 refuses what `re` takes: back references, look-around, atomic groups, possessive and other
repeated repetitions (`a*+`, `a**`), conditions, comments, counts above 1000. It takes what `re`
refuses: `\pL`, `\p{Lu}`, `[[:alpha:]]`, `\Q...\E`, `\z`, `\x{41}`, flags in the middle (`a(?i)b`).
`\d`, `\w`, `\s` and `\b` mean ASCII.

Rule 1: only whole names are matched, and names of topics are ASCII. So a set of characters is 128
bits, laziness and groups make no difference, and a character beyond ASCII matches nothing.

Rule 2: a pattern costs no more than `MAX_INSTRUCTIONS`, and a name no more than its length times
those. RE2's own limits are close to it.

Not known here, and refused: the names of scripts other than Latin and Common (`\p{Greek}`), and
`\C`.

The file is long because the parser, the compiler and the search share one syntax.
"""

import string
import unicodedata
from collections.abc import Callable, Iterable
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

import attrs

from replication.groups.rules.consumer_group.records import ConsumerGroupRegularExpressionValue
from storage.attributes import define, frozen

MAX_INSTRUCTIONS: Final = 4_000
MAX_REPEAT: Final = 1000
MAX_DEPTH: Final = 100
MAX_REMEMBERED: Final = 10_000

_ALL: Final = (1 << 128) - 1
_NEWLINE: Final = 1 << 10


class InvalidPatternError(ValueError):
    """A regular expression that RE2 does not take."""


def _mask(characters: Iterable[str]) -> int:
    mask = 0
    for each in characters:
        if each.isascii():
            mask |= 1 << ord(each)
    return mask


_DIGITS: Final = _mask(string.digits)
_WORD: Final = _mask(string.ascii_letters + string.digits + "_")
_SPACE: Final = _mask("\t\n\f\r ")
_PERL: Final = MappingProxyType(
    {
        "d": _DIGITS,
        "D": _ALL & ~_DIGITS,
        "w": _WORD,
        "W": _ALL & ~_WORD,
        "s": _SPACE,
        "S": _ALL & ~_SPACE,
    }
)
_POSIX: Final = MappingProxyType(
    {
        "alnum": _mask(string.ascii_letters + string.digits),
        "alpha": _mask(string.ascii_letters),
        "ascii": _ALL,
        "blank": _mask("\t "),
        "cntrl": _mask([*map(chr, range(32)), "\x7f"]),
        "digit": _DIGITS,
        "graph": _mask(map(chr, range(33, 127))),
        "lower": _mask(string.ascii_lowercase),
        "print": _mask(map(chr, range(32, 127))),
        "punct": _mask(string.punctuation),
        "space": _mask("\t\n\v\f\r "),
        "upper": _mask(string.ascii_uppercase),
        "word": _WORD,
        "xdigit": _mask(string.hexdigits),
    }
)
_CATEGORIES: Final = frozenset(
    f"{major}{minor}"
    for major, minors in {
        "C": "cfos",
        "L": "lmotu",
        "M": "cen",
        "N": "dlo",
        "P": "cdefios",
        "S": "ckmo",
        "Z": "lps",
    }.items()
    for minor in ["", *minors]
)
_OPERATORS: Final = MappingProxyType[str, tuple[int, int | None]](
    {"*": (0, None), "+": (1, None), "?": (0, 1)}
)
_CONTROLS: Final = MappingProxyType(
    {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
)


class _Text(NamedTuple):
    """One character of a set, or an assertion about the place between two: `^`, `$`, `b`, `B`."""

    mask: int = 0
    assertion: str = ""


class _Sequence(NamedTuple):
    parts: "tuple[_Node, ...]"


class _Choice(NamedTuple):
    options: "tuple[_Node, ...]"


class _Repeat(NamedTuple):
    part: "_Node"
    least: int
    most: int | None


_Node: TypeAlias = _Text | _Sequence | _Choice | _Repeat


@define
class _Parser:
    """Reads one pattern; `ignore_case` and `dot_newline` are the flags that count here."""

    pattern: str
    position: int = 0
    ignore_case: bool = False
    dot_newline: bool = False
    names: set[str] = attrs.field(factory=set)

    def parse(self) -> _Node:
        node = self._choice(0)
        if self.position < len(self.pattern):
            raise InvalidPatternError("unexpected )")
        return node

    def _peek(self, text: str) -> bool:
        return self.pattern.startswith(text, self.position)

    def _take(self, what: str) -> str:
        """Return the next character; `what` is the error where there is none."""
        if self.position >= len(self.pattern):
            raise InvalidPatternError(what)
        self.position += 1
        return self.pattern[self.position - 1]

    def _until(self, end: str, what: str) -> str:
        found = self.pattern.find(end, self.position)
        if found < 0:
            raise InvalidPatternError(what)
        text, self.position = self.pattern[self.position : found], found + len(end)
        return text

    def _choice(self, depth: int) -> _Node:
        if depth > MAX_DEPTH:
            raise InvalidPatternError("expression nests too deeply")
        options = [self._sequence(depth)]
        while self._peek("|"):
            self.position += 1
            options.append(self._sequence(depth))
        return options[0] if len(options) == 1 else _Choice(tuple(options))

    def _sequence(self, depth: int) -> _Node:
        parts: list[_Node] = []
        repeated = True
        while self.position < len(self.pattern) and not self._peek("|") and not self._peek(")"):
            counts = self._counts()
            if counts is None:
                repeated = self._peek("{")  # RE2/J takes this brace for a repetition, at first
                parts += self._atom(depth)
            elif not parts:
                raise InvalidPatternError("missing argument to repetition operator")
            elif repeated:
                raise InvalidPatternError("invalid nested repetition operator")
            else:
                repeated = True
                parts[-1] = _Repeat(parts[-1], *counts)
        return _Sequence(tuple(parts))

    def _counts(self) -> tuple[int, int | None] | None:
        """Return the least and the most of a repetition; None where there is none."""
        operator = self.pattern[self.position]
        if operator in _OPERATORS:
            self.position += 1
            counts: tuple[int, int | None] | None = _OPERATORS[operator]
        else:
            counts = self._braces()
            if counts is None:
                return None
        if self._peek("?"):
            self.position += 1  # lazy: the same names match
        return counts

    def _braces(self) -> tuple[int, int | None] | None:
        end = self.pattern.find("}", self.position)
        if not self._peek("{") or end < 0:
            return None
        least, comma, most = self.pattern[self.position + 1 : end].partition(",")
        if not _is_number(least) or (most and not _is_number(most)):
            return None  # a brace like any character
        self.position = end + 1
        counts = int(least), (int(most) if most else None if comma else int(least))
        top = counts[0] if counts[1] is None else counts[1]
        if max(counts[0], top) > MAX_REPEAT or counts[0] > top:
            raise InvalidPatternError("invalid repeat count")
        return counts

    def _atom(self, depth: int) -> list[_Node]:
        character = self._take("")
        match character:
            case "(":
                return self._group(depth)
            case "[":
                return [_Text(self._folded(self._set()))]
            case ".":
                return [_Text(_ALL if self.dot_newline else _ALL & ~_NEWLINE)]
            case "^" | "$":
                return [_Text(assertion=character)]
            case "\\":
                return self._escaped()
            case _:
                return [_Text(self._folded_of(character))]

    def _group(self, depth: int) -> list[_Node]:
        flags = (self.ignore_case, self.dot_newline)
        if self._peek("?P<") or self._peek("?<"):
            self.position += 3 if self._peek("?P<") else 2
            name = self._until(">", "invalid named capture")
            if not name.isascii() or not name.replace("_", "a").isalnum() or name in self.names:
                raise InvalidPatternError("invalid named capture")
            self.names.add(name)
        elif self._peek("?"):
            self.position += 1
            if self._flags() == ")":
                return []  # for the rest of this group
        node = self._choice(depth + 1)
        if self._take("missing closing )") != ")":
            raise InvalidPatternError("missing closing )")
        self.ignore_case, self.dot_newline = flags
        return [node]

    def _flags(self) -> str:
        """Read flags, and return what ends them: `:` or `)`."""
        on = True
        seen = False
        while True:
            flag = self._take("missing argument to repetition operator")
            match flag:
                case "i":
                    self.ignore_case = on
                case "s":
                    self.dot_newline = on
                case "m" | "U":
                    pass  # the same names match
                case "-" if on:
                    on, seen = False, False
                    continue
                case ":" | ")" if seen or on:
                    return flag
                case _:
                    raise InvalidPatternError("invalid or unsupported Perl syntax")
            seen = True

    def _escaped(self) -> list[_Node]:
        kind = self._take("trailing backslash at end of expression")
        match kind:
            case "A":
                return [_Text(assertion="^")]
            case "z":
                return [_Text(assertion="$")]
            case "b" | "B":
                return [_Text(assertion=kind)]
            case "Q":
                found = self.pattern.find("\\E", self.position)
                end = len(self.pattern) if found < 0 else found
                text = self.pattern[self.position : end]
                self.position = min(end + 2, len(self.pattern))
                return [_Text(self._folded_of(each)) for each in text]
            case _:
                mask = self._named_set(kind)
                if mask is None:
                    mask = self._folded_of(self._character(kind))
                return [_Text(mask)]

    def _named_set(self, kind: str) -> int | None:
        """Return the set of an escape such as that of digits; None for one character."""
        if kind in _PERL:
            return _PERL[kind]
        if kind not in ("p", "P"):
            return None
        name = self._take("invalid character class range")
        if name == "{":
            name = self._until("}", "invalid character class range")
        is_negated = (kind == "P") != name.startswith("^")
        mask = _category(name.removeprefix("^"))
        return _ALL & ~mask if is_negated else mask

    def _character(self, kind: str) -> str:
        """Return the character of an escape, whose first letter has been read."""
        if kind in _CONTROLS:
            return _CONTROLS[kind]
        if kind == "x":
            digits = self._until_brace() if self._peek("{") else self._take_two()
            if digits and set(digits) <= set(string.hexdigits) and int(digits, 16) <= 0x10FFFF:
                return chr(int(digits, 16))
        elif kind in "01234567":
            octal = kind
            while len(octal) < 3 and self._peek_octal():
                octal += self._take("")
            if kind == "0" or len(octal) > 1:
                return chr(int(octal, 8))
        elif not (kind.isascii() and kind.isalnum()):
            return kind
        raise InvalidPatternError("invalid escape sequence")

    def _until_brace(self) -> str:
        self.position += 1
        return self._until("}", "invalid escape sequence")

    def _take_two(self) -> str:
        return self._take("invalid escape sequence") + self._take("invalid escape sequence")

    def _peek_octal(self) -> bool:
        return any(map(self._peek, "01234567"))

    def _set(self) -> int:
        """Return what is between brackets, of which the first has been read."""
        is_negated = self._peek("^")
        self.position += is_negated
        mask, first = 0, True
        while first or not self._peek("]"):
            first = False
            mask |= self._set_item()
        self.position += 1
        mask = self._folded(mask)
        return _ALL & ~mask if is_negated else mask

    def _set_item(self) -> int:
        if self._peek("[:"):
            end = self.pattern.find(":]", self.position + 2)
            if end > 0:
                name = self.pattern[self.position + 2 : end]
                if name.removeprefix("^") not in _POSIX:
                    raise InvalidPatternError("invalid character class range")
                self.position = end + 2
                found = _POSIX[name.removeprefix("^")]
                return _ALL & ~found if name.startswith("^") else found
        low = self._take("missing closing ]")
        if low == "\\":
            kind = self._take("missing closing ]")
            mask = self._named_set(kind)
            if mask is not None:
                return mask
            low = self._character(kind)
        high = low
        if self._peek("-") and not self.pattern.startswith("-]", self.position):
            self.position += 1
            high = self._take("missing closing ]")
            if high == "\\":
                high = self._character(self._take("missing closing ]"))
        if high < low:
            raise InvalidPatternError("invalid character class range")
        return _mask(map(chr, range(ord(low), min(ord(high), 127) + 1))) | (
            _mask("kK") if self.ignore_case and low <= "\u212a" <= high else 0
        )

    def _folded(self, mask: int) -> int:
        if not self.ignore_case:
            return mask
        lower, upper = _POSIX["lower"], _POSIX["upper"]
        return mask | ((mask & lower) >> 32) | ((mask & upper) << 32)

    def _folded_of(self, character: str) -> int:
        if not self.ignore_case:
            return _mask(character)
        return self._folded(_mask((character, character.lower(), character.upper())))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


def _category(name: str) -> int:
    if name == "Any":
        return _ALL
    if name in ("Latin", "Common"):
        letters = _POSIX["alpha"]
        return letters if name == "Latin" else _ALL & ~letters
    if name not in _CATEGORIES:
        raise InvalidPatternError("invalid character class range")
    return _mask(
        each for each in map(chr, range(128)) if unicodedata.category(each).startswith(name)
    )


class _Instruction(NamedTuple):
    """A character, an assertion, or a fork; the last instruction of a pattern has no next ones."""

    text: _Text | None
    next: tuple[int, ...]


@define
class _Program:
    code: list[_Instruction] = attrs.field(factory=lambda: [_Instruction(None, ())])

    def _add(self, text: _Text | None, *following: int) -> int:
        if len(self.code) >= MAX_INSTRUCTIONS:
            raise InvalidPatternError("expression is too large")
        self.code.append(_Instruction(text, following))
        return len(self.code) - 1

    def compile(self, node: _Node, following: int) -> int:
        """Return the instruction at which `node` begins; what comes after it is at `following`."""
        match node:
            case _Text():
                return self._add(node, following)
            case _Sequence():
                for part in reversed(node.parts):
                    following = self.compile(part, following)
                return following
            case _Choice():
                return self._add(None, *(self.compile(each, following) for each in node.options))
            case _Repeat():
                return self._repeat(node, following)

    def _repeat(self, node: _Repeat, following: int) -> int:
        if node.most is None:
            fork = self._add(None)
            self.code[fork] = _Instruction(None, (self.compile(node.part, fork), following))
            following = fork
        else:
            end = following
            for _ in range(node.most - node.least):
                following = self._add(None, self.compile(node.part, following), end)
        for _ in range(node.least):
            following = self.compile(node.part, following)
        return following


@frozen(eq=False)
class Pattern:
    """A regular expression, ready to match whole names."""

    _code: list[_Instruction]
    _start: int
    _steps: dict[tuple[frozenset[int], str, str], frozenset[int]] = attrs.field(factory=dict)

    @classmethod
    def compile(cls, pattern: str) -> "Pattern":
        """Return the pattern; raise InvalidPatternError where RE2 refuses it."""
        program = _Program()
        start = program.compile(_Parser(pattern).parse(), 0)
        return cls(program.code, start)

    def matches(self, name: str) -> bool:
        """Return whether the whole of `name` matches."""
        places, before = frozenset({self._start}), ""
        for character in name:
            kind = before and ("a" if ord(before) < 128 and _WORD >> ord(before) & 1 else "-")
            step = (places, kind, character)
            known = self._steps.get(step)
            if known is None:
                if len(self._steps) >= MAX_REMEMBERED:
                    self._steps.clear()
                known = self._steps[step] = self._step(places, kind, character)
            places, before = known, character
            if not places:
                return False
        return 0 in self._reached(places, before, "")

    def _step(self, places: frozenset[int], before: str, character: str) -> frozenset[int]:
        bit = 1 << ord(character) if character.isascii() else 0
        return frozenset(
            instruction.next[0]
            for instruction in map(self._code.__getitem__, self._reached(places, before, character))
            if instruction.text is not None and instruction.text.mask & bit
        )

    def _reached(self, places: Iterable[int], before: str, after: str) -> set[int]:
        """Return the instructions that follow without a character, between these two."""
        reached, open_places = set(places), list(places)
        while open_places:
            instruction = self._code[open_places.pop()]
            text = instruction.text
            if text is None or (text.assertion and _HOLDS[text.assertion](before, after)):
                fresh = [each for each in instruction.next if each not in reached]
                reached.update(fresh)
                open_places += fresh
        return reached


def _is_boundary(before: str, after: str, *, wanted: bool) -> bool:
    sides = [
        bool(each) and each.isascii() and bool(_WORD >> ord(each) & 1) for each in (before, after)
    ]
    return (sides[0] != sides[1]) is wanted


_HOLDS: Final = MappingProxyType[str, Callable[[str, str], bool]](
    {
        "^": lambda before, _: not before,
        "$": lambda _, after: not after,
        "b": partial(_is_boundary, wanted=True),
        "B": partial(_is_boundary, wanted=False),
    }
)


def resolve(
    patterns: Iterable[str], names: Iterable[str], *, version: int, timestamp: int
) -> dict[str, ConsumerGroupRegularExpressionValue]:
    """Return the topics of each pattern among `names`, as records have them.

    A pattern that cannot be read, because a later version has accepted it, matches nothing.
    """
    found: dict[str, ConsumerGroupRegularExpressionValue] = {}
    known = sorted(names)
    for pattern in patterns:
        try:
            compiled = Pattern.compile(pattern)
        except InvalidPatternError:
            topics = []
        else:
            topics = [name for name in known if compiled.matches(name)]
        found[pattern] = ConsumerGroupRegularExpressionValue(
            topics=topics, version=version, timestamp=timestamp
        )
    return found
