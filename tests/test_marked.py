"""Files that cannot have what is asked for are left alone, and no others."""

import pytest

from tests.marked import may_match, written

ALONE = "(client or spark or slow) and not interop"


@pytest.mark.parametrize(
    ("expression", "marks", "expected"),
    [
        (ALONE, (), False),
        (ALONE, ("interop",), False),
        (ALONE, ("slow",), True),
        (ALONE, ("slow", "interop"), True),  # of two tests each may bear one
        (f"not ({ALONE})", (), True),
        (f"not ({ALONE})", ("client", "spark", "slow"), True),  # and others bear none
        ("interop", ("slow",), False),
        ("interop and not slow", ("interop", "slow"), True),
        (" slow", ("slow",), True),
        ("conformance", (), True),  # not one of ours to judge
        ("conformance(id='a')", (), True),
        ("slow and", (), True),  # pytest says what is wrong with it
        ("", (), True),
    ],
)
def test_a_file_is_left_out_where_no_test_of_it_can_match(
    expression: str, marks: tuple[str, ...], expected: bool
) -> None:
    assert may_match(expression, marks) is expected


def test_what_a_file_writes_out() -> None:
    text = 'pytestmark = [pytest.mark.slow]\n\n@pytest.mark.client\ndef test_sparks(): "spark"\n'
    assert written(text) == {"slow", "client"}
    assert written("marks = param(each, marks=mark.sparkling)") == set()
