"""`docs/client.md`: the errors it names are there (`tests/docs` runs its programs)."""

import re
from pathlib import Path

from replication.client import consumer, errors

PAGE = Path(__file__).parents[3] / "docs" / "client.md"


def test_the_errors_of_the_page_are_there() -> None:
    table = PAGE.read_text().partition("## What it raises")[2].partition("\n## ")[0]
    named = re.findall(r"`(\w+Error)`", table)
    assert len(named) > 10
    for name in named:
        assert hasattr(consumer, name) or hasattr(errors, name), name
