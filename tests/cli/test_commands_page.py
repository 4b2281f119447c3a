"""`docs/commands.md` says what there is."""

from tests.cli.page import PAGE, whole


def test_the_page_has_every_command_and_flag() -> None:
    answer = PAGE.read_text(encoding="utf-8")
    assert answer == whole(), "python -m tests.cli.page writes it anew"
