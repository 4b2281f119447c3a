"""`docs/client.md`: its programs run, and the errors it names are there."""

import re
from pathlib import Path

import pytest

from replication.client import consumer, errors

PAGE = Path(__file__).parents[3] / "docs" / "client.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
PRINTED = ["[b'one book', b'two books'] 2\n", "0\n1\n2\ngoes on with 3\n", "[b'one book']\n"]


@pytest.mark.slow
@pytest.mark.parametrize(("program", "printed"), list(zip(PROGRAMS, PRINTED, strict=True)))
def test_the_programs_of_the_page_run(
    program: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(compile(program, str(PAGE), "exec"), {})
    assert capsys.readouterr().out == printed


def test_the_errors_of_the_page_are_there() -> None:
    table = PAGE.read_text().partition("## What it raises")[2].partition("\n## ")[0]
    named = re.findall(r"`(\w+Error)`", table)
    assert len(named) > 10
    for name in named:
        assert hasattr(consumer, name) or hasattr(errors, name), name
