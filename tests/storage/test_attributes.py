"""Our decorators against attrs' own: the same repr, comparison and hash, compiled once."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from storage.attributes import define, frozen

PAIRS = [
    pytest.param(attrs.define, define, id="define"),
    pytest.param(attrs.frozen, frozen, id="frozen"),
]

Declare = Callable[..., Any]


def point(declare: Declare, **options: Any) -> Any:
    class Point:
        x: int
        y: int = 2
        secret: str = attrs.field(default="s", repr=False)
        note: str = attrs.field(default="n", repr=str.upper, eq=False)

    return declare(**options)(Point) if options else declare(Point)


def empty(declare: Declare) -> Any:
    class Empty:
        pass

    return declare(Empty)


def with_its_own(declare: Declare) -> Any:
    class Own:
        x: int

        def __repr__(self) -> str:
            return "mine"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

    return declare(Own)


@pytest.mark.parametrize(("theirs", "ours"), PAIRS)
def test_a_class_has_the_repr_and_the_comparison_of_attrs(theirs: Declare, ours: Declare) -> None:
    their_kind, our_kind = point(theirs), point(ours)
    values = [(1,), (1, 2, "s", "other"), (1, 3), (1, 2, "t"), (2,)]
    for one in values:
        assert repr(our_kind(*one)) == repr(their_kind(*one))
        assert our_kind(*one) != their_kind(*one)
        for other in values:
            is_equal = their_kind(*one) == their_kind(*other)
            assert (our_kind(*one) == our_kind(*other)) is is_equal
            assert (our_kind(*one) != our_kind(*other)) is not is_equal


@pytest.mark.parametrize(("theirs", "ours"), PAIRS)
@pytest.mark.parametrize("options", [{"eq": False}, {"repr": False}, {"kw_only": True}], ids=str)
def test_options_mean_what_they_mean_in_attrs(
    theirs: Declare, ours: Declare, options: dict[str, bool]
) -> None:
    kinds = point(theirs, **options), point(ours, **options)
    has_repr, is_equal, is_hashable = (
        [check(kind) for kind in kinds]
        for check in (
            lambda kind: repr(kind(x=1)).endswith("Point(x=1, y=2, note=N)"),
            lambda kind: kind(x=1) == kind(x=1),
            lambda kind: kind.__hash__ is not None,
        )
    )
    for theirs_and_ours in (has_repr, is_equal, is_hashable):
        assert theirs_and_ours[0] == theirs_and_ours[1]


def test_equal_frozen_objects_have_one_hash_and_others_of_define_have_none() -> None:
    kind = point(frozen)
    assert len({kind(1), kind(1, note="other"), kind(2)}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(point(define)(1))


@pytest.mark.parametrize(("theirs", "ours"), PAIRS)
def test_a_class_without_fields_and_one_with_methods_of_its_own(
    theirs: Declare, ours: Declare
) -> None:
    assert repr(empty(ours)()) == repr(empty(theirs)()) == "Empty()"
    kind = empty(ours)
    assert kind() == kind()
    own = with_its_own(ours)
    assert (repr(own(1)), own(1) == own(2), hash(own(1))) == ("mine", True, 7)


def test_an_object_that_holds_itself_is_shown() -> None:
    one = point(define)(1)
    one.y = one
    assert repr(one) == "Point(x=1, y=..., note=N)"
