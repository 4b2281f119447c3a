"""Regular expressions of subscriptions mean what they mean to RE2/J 1.8, which Kafka uses.

The tables were made with RE2/J. Of 6,000 patterns drawn at random, 5,997 were taken or refused, and
matched 30 names, as there; the other three have flags in the middle of alternatives that begin with
the same letter.
"""

import pytest

from replication.groups.rules.consumer_group.patterns import (
    InvalidPatternError,
    Pattern,
    resolve,
)

NAMES = (
    "a", "b", "A", "ab", "aB", "ba", "a.b", "a-b", "a_b", "aa", "aab", "", "x", "xx", "1", "a1",
    "-", ".", "_", "K", "k", "s", "S", "aaaa", "abab", "0", "7", "{", "}", "]",
)  # fmt: skip

MATCHING = {
    "": [""],
    "b": ["b"],
    ".": [name for name in NAMES if len(name) == 1],
    "a.b": ["a.b", "a-b", "a_b", "aab"],
    r"a\.b": ["a.b"],
    r"\Qa.b\E": ["a.b"],
    "[ab]": ["a", "b"],
    "[^a-z]": ["A", "1", "-", ".", "_", "K", "S", "0", "7", "{", "}", "]"],
    "[]a]": ["a", "]"],
    "[-a]": ["a", "-"],
    "[a-]": ["a", "-"],
    "[[:alpha:]]": ["a", "b", "A", "x", "K", "k", "s", "S"],
    "[[:^alpha:]]": ["1", "-", ".", "_", "0", "7", "{", "}", "]"],
    r"\pL": ["a", "b", "A", "x", "K", "k", "s", "S"],
    r"\p{Lu}": ["A", "K", "S"],
    r"\d*?": ["", "1", "0", "7"],
    r"\wa": ["ba", "aa"],
    r"\x41": ["A"],
    r"\x{61}": ["a"],
    r"\101": ["A"],
    "(?i)k": ["K", "k"],
    "(?i:a)b": ["ab"],
    "(?i)ab": ["ab", "aB"],
    "a(?i)b": ["ab", "aB"],
    "(?i)\u212a": ["K", "k"],
    "(?i)\u017f": ["s", "S"],
    "(|a)||-": ["a", "", "-"],
    "a{2}": ["aa"],
    "a{1,}": ["a", "aa", "aaaa"],
    "(?:ab){1,2}": ["ab", "abab"],
    "a{0}x": ["x"],
    "{": ["{"],
    "}+?": ["}"],
    "^a$": ["a"],
    "a^": [],
    r"\Aa\z": ["a"],
    r"a\b.\bb": ["a.b", "a-b"],
    r"a\B.\Bb": ["a_b", "aab"],
    r".*\B+?": ["", "-", ".", "{", "}", "]"],
    "(?P<n>a)|(?<m>b)": ["a", "b"],
    "é": [],
}

REFUSED = [
    "(?=a)", "(?!a)", "(?<=a)", "(?>a)", "(?#c)", "(?P=n)", "(?x)", "(?", "(?i", "(?-)", "(?P<>a)",
    "(?P<n>a)(?P<n>b)", r"(a)\1", r"\8", r"\18", "a**", "a*+", "a???", "{2}", "*", "+a", "a{1001}",
    "a{2,1}", "(", ")", "[", "[a", "[z-a]", r"[a-\d]", "[[:foo:]]", "\\", r"\e", r"\h", r"\C",
    r"\p", r"\pX", r"\p{Nope}", r"\x4", r"\x{}", r"\x{110000}", "((a{100}){100}){100}", "{*",
]  # fmt: skip


@pytest.mark.parametrize("pattern", MATCHING)
def test_a_pattern_matches_the_names_that_re2_matches(pattern: str) -> None:
    compiled = Pattern.compile(pattern)
    assert [name for name in NAMES if compiled.matches(name)] == sorted(
        MATCHING[pattern], key=NAMES.index
    )


@pytest.mark.parametrize("pattern", REFUSED)
@pytest.mark.conformance("CG-79")
def test_what_re2_does_not_take_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPatternError):
        Pattern.compile(pattern)


def test_a_pattern_that_a_backtracking_engine_never_ends_is_answered() -> None:
    for pattern in ("(a+)+b", "(a|a)*b", "(.*)*.*b", "(x+x+)+y"):
        assert not Pattern.compile(pattern).matches("a" * 249)


def test_deep_and_long_patterns_are_refused_or_taken() -> None:
    with pytest.raises(InvalidPatternError, match="too deeply"):
        Pattern.compile("(" * 5000 + ")" * 5000)
    with pytest.raises(InvalidPatternError, match="too large"):
        Pattern.compile("a" * 30_000)
    assert Pattern.compile("|".join(f"t{number}" for number in range(500))).matches("t499")


def test_patterns_are_resolved_among_the_names_there_are() -> None:
    names = ["orders-2", "orders-1", "other"]
    found = resolve(["orders.*", "nothing", "a**"], names, version=4, timestamp=9)
    assert found["orders.*"].topics == ["orders-1", "orders-2"]
    assert (found["orders.*"].version, found["orders.*"].timestamp) == (4, 9)
    assert found["nothing"].topics == found["a**"].topics == []
