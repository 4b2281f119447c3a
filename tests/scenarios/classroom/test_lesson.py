"""A run of a story as the page shows it: answers, differences, mistakes, and the logs after a command."""

from typing import Any

import pytest

from scenarios.classroom.lesson import compare
from scenarios.classroom.worker import catalogue, run
from scenarios.museum.catalogue import EXHIBITS
from scenarios.story.catalogue import GROUPS, TO_START_WITH
from scenarios.story.script import find_story, read_story, stories

STORY = """\
cluster brokers=2
topic t replicas=b1,b2
produce t-0 acks=all one
wait equal t-0
----
c b1 b2 are up
t-0: b1 leads in epoch 0, isr b1 b2
one: acked at 0

kill b1
wait leader t-0
produce t-0 acks=all two
----
t-0: b2 leads in epoch 1, isr b2, osr b1
two: acked at 1
"""


def logs_after(lesson: Any, index: int) -> dict[str, tuple[str, str]]:
    """Return what each replica of t-0 was after a command: its role and its drawn log."""
    past = lesson["logs"][: lesson["commands"][index]["logs"]]
    return {
        each["node"]: (each["role"], each["drawn"]) for each in past if each["partition"] == "t-0"
    }


@pytest.mark.parametrize(
    ("recorded", "answers", "shown"),
    [
        pytest.param(
            ["a", "b"], [["a"], ["b"]], [[("same", "a")], [("same", "b")]], id="nothing has changed"
        ),
        pytest.param(
            ["a", "b"],
            [["a"], ["c"]],
            [[("same", "a")], [("gone", "b"), ("new", "c")]],
            id="a line is another",
        ),
        pytest.param(
            ["a", "b"], [["a"], []], [[("same", "a"), ("gone", "b")], []], id="a line is gone"
        ),
        pytest.param(["a"], [[], []], [[], [("gone", "a")]], id="all is gone"),
        pytest.param(
            ["a", "b"], [["b"]], [[("gone", "a"), ("same", "b")]], id="the first line is gone"
        ),
        pytest.param(["a"], [["a", "b"]], [[("same", "a"), ("new", "b")]], id="a line is new"),
        pytest.param([], [["a"]], [[("same", "a")]], id="nothing was recorded"),
    ],
)
def test_a_line_that_differs_is_marked_at_its_command(
    recorded: list[str], answers: list[list[str]], shown: list[list[tuple[str, str]]]
) -> None:
    assert list(compare(recorded, answers, is_whole=True)) == shown


def test_a_step_that_was_not_carried_out_lacks_nothing() -> None:
    assert list(compare(["a", "b"], [["a"]], is_whole=False)) == [[("same", "a")]]


def test_an_unchanged_story_answers_as_recorded_and_each_command_has_its_logs() -> None:
    lesson = run(STORY, seed=None, bug=None)
    assert (lesson["wrong"], lesson["differs"], lesson["seed"]) == (None, False, 1)
    assert [each["number"] for each in lesson["commands"]] == [1, 2, 3, 4, 10, 11, 12]
    assert logs_after(lesson, 3) == {"b1": ("leads", "[e0: 0-0]"), "b2": ("follows", "[e0: 0-0]")}
    assert logs_after(lesson, 4)["b1"] == ("down", "[e0: 0-0]")
    assert logs_after(lesson, 6)["b2"] == ("leads", "[e0: 0-0][e1: 1-1]")
    marks = lesson["marks"][lesson["commands"][4]["marks"] : lesson["commands"][5]["marks"]]
    assert any("b2 leads t-0 in epoch 1 after b1" in each["why"] for each in marks), "the cause"


def test_an_edited_line_gives_other_answers_and_another_log() -> None:
    lesson = run(STORY.replace("acks=all two", "acks=all two three"), seed=7, bug=None)
    assert (lesson["wrong"], lesson["differs"], lesson["seed"]) == (None, True, 7)
    assert logs_after(lesson, 6)["b2"] == ("leads", "[e0: 0-0][e1: 1-2]")
    assert lesson["commands"][6]["answer"] == [
        ("gone", "two: acked at 1"),
        ("new", "two three: acked at 1-2"),
    ]
    again = run(STORY.replace("acks=all two", "acks=all two three"), seed=7, bug=None)
    assert again["trace_hash"] == lesson["trace_hash"], "a seed gives one run"


@pytest.mark.parametrize(
    ("wrong", "line", "message"),
    [
        ("kil b1", 5, "line 5, kil b1: unknown command 'kil'; did you mean kill?"),
        ("kill b7", 5, "line 5, kill b7: there is no node b7; there are c, b1, b2"),
        ("wait leder t-0", 5, "or controllers; did you mean leader?"),
        ("events leader_electd", 5, "did you mean leader_elected?"),
        (
            "topic u replicas=b1 bogus=1",
            5,
            "bogus=1: INVALID_CONFIG: Unknown topic config name: bogus",
        ),
    ],
)
def test_a_mistake_is_one_line_with_its_number_and_the_nearest_word(
    wrong: str, line: int, message: str
) -> None:
    text = STORY.replace("----\nc b1", f"{wrong}\n----\nc b1", 1)
    lesson = run(text, seed=None, bug=None)
    assert lesson["wrong"]["line"] == line, lesson["wrong"]
    assert message in lesson["wrong"]["message"]
    assert "\n" not in lesson["wrong"]["message"]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", None, "the story has no command"),
        ("# only a comment", None, "the story has no command"),
        ("\n----\nan answer", 2, "an answer without a command"),
        ("# x\n# seed: many\n\ncluster", None, "'many' is no seed"),
        ("run 1s", 1, "a story begins with `cluster`"),
    ],
)
def test_what_is_no_story_is_one_line(text: str, line: int | None, message: str) -> None:
    lesson = run(text, seed=None, bug=None)
    assert lesson["wrong"]["line"] == line
    assert message in lesson["wrong"]["message"]


def test_a_mistake_in_the_middle_keeps_what_came_before_it() -> None:
    lesson = run(STORY.replace("wait leader t-0", "kill b1"), seed=None, bug=None)
    assert lesson["wrong"]["line"] == 11
    assert [each["answered"] for each in lesson["commands"]] == [True] * 5 + [False]
    assert logs_after(lesson, 5)["b1"][0] == "down"


def test_a_story_with_a_bug_of_the_museum_ends_with_the_rule_that_it_breaks() -> None:
    exhibit = EXHIBITS["KIP-101"]
    text = find_story(exhibit.story).read_text()
    lesson = run(text, seed=None, bug="KIP-101")
    assert lesson["wrong"] or lesson["differs"], "the bug shows"
    assert not run(text, seed=None, bug=None)["wrong"], "the switch was taken back"
    unknown = run(text, seed=None, bug="KIP-10")["wrong"]["message"]
    assert "there is no exhibit called 'KIP-10'; did you mean KIP-101?" in unknown


@pytest.mark.deep
def test_a_story_that_never_ends_is_ended_with_what_it_has() -> None:
    lesson = run("cluster brokers=1\nrun 3000s", seed=None, bug=None)
    assert lesson["wrong"]["line"] == 2
    assert "not done after 600 virtual seconds" in lesson["wrong"]["message"]
    assert [each["answered"] for each in lesson["commands"]] == [True, False]


def test_the_list_has_every_story_in_its_group_and_marks_five() -> None:
    found = catalogue()
    assert {each["name"] for each in found["stories"]} == set(stories())
    groups = list(dict.fromkeys(each["group"] for each in found["stories"]))
    assert groups == [each for each in GROUPS.values() if each in groups], "in order, each once"
    assert {each["name"] for each in found["stories"] if each["to_start_with"]} == TO_START_WITH
    title = read_story(find_story("two-logs-of-one-length")).title
    assert title in {each["title"] for each in found["stories"]}
    assert {each["name"] for each in found["exhibits"]} == set(EXHIBITS)
