"""The pages that are made from the code say what it says."""

import inspect

import attrs

from replication.events import EVENTS
from tests.docs.generated import COMMAND, FIELDS, event_sections, field_comments, stale


def test_the_made_pages_are_those_of_this_code() -> None:
    assert stale() == [], f"{COMMAND} writes them anew"


def test_every_event_and_each_of_its_fields_says_what_it_is() -> None:
    kinds = [kind for _, section in event_sections() for kind in section]
    assert kinds == list(EVENTS)
    assert [kind.__name__ for kind in kinds if not inspect.getdoc(kind)] == []
    silent = [
        f"{kind.__name__}.{field.name}"
        for kind in kinds
        for field in attrs.fields(kind)
        if not (field_comments(kind).get(field.name) or FIELDS.get(field.name))
    ]
    assert silent == [], "a comment behind the field says what it holds"


def test_no_word_for_a_field_is_left_over() -> None:
    used = {field.name for kind in EVENTS for field in attrs.fields(kind)}
    assert FIELDS.keys() - used == set()
