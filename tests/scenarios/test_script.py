"""Stories as text: read, rendered, compared, found."""

from pathlib import Path

import pytest

from scenarios.story.script import (
    Comment,
    ScriptError,
    Step,
    difference,
    find_story,
    parse,
    read_story,
    stories,
)

STORY = """\
# A story
#
# shows: S65, S7
# rules: KIP-101

kill b1
wait leader t-0
----
t-0: b2 leads

# Meanwhile: nothing.

run 1s
----

show t-0
----
one
two
"""


def test_a_story_is_comments_and_steps_and_is_written_as_it_was_read() -> None:
    story = parse(STORY)
    assert story.title == "A story"
    assert story.shows == ["S65", "S7"]
    assert story.fields["rules"] == "KIP-101"
    assert story.blocks[1:] == (
        Step(("kill b1", "wait leader t-0"), ("t-0: b2 leads",)),
        Comment(("# Meanwhile: nothing.",)),
        Step(("run 1s",)),
        Step(("show t-0",), ("one", "two")),
    )
    assert [step.line for step in story.steps] == [6, 13, 16]
    assert [prose for prose, _ in story.passages] == ["", "Meanwhile: nothing.", ""]
    assert str(story) == STORY


def test_a_story_without_answers_is_one_yet_to_be_recorded() -> None:
    story = parse("# New\n\n\ncluster\nrun 1s\n\n\nrun 2s")
    assert [step.commands for step in story.steps] == [("cluster", "run 1s"), ("run 2s",)]
    recorded = story.answered([("c is up",), ()])
    assert str(recorded) == "# New\n\ncluster\nrun 1s\n----\nc is up\n\nrun 2s\n----\n"


def test_an_answer_without_a_command_is_no_story() -> None:
    with pytest.raises(ScriptError, match="line 3: an answer without"):
        parse("# New\n\n----\nwhat?\n")


def test_only_what_has_changed_is_a_difference() -> None:
    story = parse(STORY)
    assert difference(story, story) == ""
    changed = story.answered([("t-0: b3 leads",), (), ("one", "two")])
    lines = difference(story, changed).splitlines()
    assert "-t-0: b2 leads" in lines
    assert "+t-0: b3 leads" in lines
    assert not any(line.startswith(("-one", "+one")) for line in lines)


def test_a_story_is_found_by_name_beginning_scenario_or_file(tmp_path: Path) -> None:
    name, path = next(iter(stories().items()))
    assert find_story(name) == path
    assert find_story(name.replace("-", " ").capitalize()) == path
    assert find_story(name[:-5]) == path
    shown = "S65"
    assert shown in read_story(find_story(shown)).shows
    for unknown in ("S9999", "no such story", "", str(tmp_path / "none.txt")):
        with pytest.raises(ScriptError, match="scenario list"):
            find_story(unknown)
    with pytest.raises(ScriptError, match=f"; did you mean {name}\\?"):
        find_story(name[:10] + "x" + name[11:20])
    with pytest.raises(ScriptError, match=r"'S03' may be each of twenty-elections-and-.*, two-"):
        find_story("S03")


def test_a_file_may_have_any_name_and_has_to_be_text(tmp_path: Path) -> None:
    story, noise = tmp_path / "mine", tmp_path / "noise.txt"
    story.write_text(STORY)
    noise.write_bytes(b"\xff\xfe")
    assert find_story(str(story)) == story
    with pytest.raises(ScriptError, match=r"noise\.txt cannot be read: 'utf-8' codec"):
        read_story(noise)


@pytest.mark.parametrize("path", stories().values(), ids=lambda path: path.stem)
def test_a_story_is_called_as_its_file_and_written_as_it_would_be_recorded(path: Path) -> None:
    story = read_story(path)
    assert path.stem == story.title.lower().replace(" ", "-").replace(",", "")
    assert str(story) == path.read_text()
