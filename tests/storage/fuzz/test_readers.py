"""Every reader against mutated files. `make fuzz` does the same for any time."""

import pytest
from hypothesis import given, strategies as st

from tests.storage.fuzz.bounds import bounded
from tests.storage.fuzz.openings import OPENINGS
from tests.storage.fuzz.readers import READERS


@pytest.mark.parametrize("reader", READERS)
@given(data=st.data())
def test_a_reader_finds_the_truth_or_names_the_damage(reader: str, data: st.DataObject) -> None:
    cases, check = READERS[reader]
    case = data.draw(cases)
    with bounded(len(case.data)):
        check(case)


@pytest.mark.parametrize("opening", OPENINGS)
@given(data=st.data())
def test_a_directory_opens_to_the_truth_or_is_refused(opening: str, data: st.DataObject) -> None:
    cases, check = OPENINGS[opening]
    case = data.draw(cases)
    with bounded(len(case.data)):
        check(case)
