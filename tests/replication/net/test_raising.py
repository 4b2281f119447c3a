"""Which exception comes out of a group of them."""

import pytest

from replication.net.raising import raising_only_one, raising_the_first


def test_the_first_speaks_for_those_of_its_kind() -> None:
    with pytest.raises(OSError, match=r"^one$"), raising_the_first(OSError):
        raise ExceptionGroup("", [ExceptionGroup("", [OSError("one")]), OSError("two")])


def test_an_error_of_another_kind_is_not_hidden() -> None:
    both = ExceptionGroup("", [OSError("the disk"), AssertionError("ours")])
    with pytest.raises(ExceptionGroup) as raised, raising_the_first(OSError):
        raise both
    assert raised.value is both


def test_a_single_error_of_another_kind_can_still_be_raised_alone() -> None:
    with (
        pytest.raises(AssertionError, match="ours"),
        raising_only_one(),
        raising_the_first(OSError),
    ):
        raise ExceptionGroup("", [AssertionError("ours")])
