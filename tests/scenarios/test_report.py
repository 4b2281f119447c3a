"""The page that shows a run: what it is drawn from, and that a browser can draw it."""

import json
import re
from collections import defaultdict
from pathlib import Path

import pytest

from scenarios.story.log_drawing import EpochRun
from scenarios.story.report import Recording, Scene, page, scene_of, to_shiviz
from scenarios.story.report.messages import label
from scenarios.story.report.scene import IDLE
from scenarios.story.runner import StoryRun, run_story
from scenarios.story.script import find_story, read_story
from scenarios.swarm.runner import run_seed
from tests.browser import needs_browser, root_of

STEPS_THROUGH_ALL = """
<script>
for (const box of document.querySelectorAll("#kinds input")) box.click();
for (let index = 0; index < moments.length; index++) show(index, false);
const root = document.documentElement;
root.dataset.seen = moments.length;
root.dataset.overflows = root.scrollWidth > window.innerWidth;
</script>
"""


@pytest.fixture(scope="module")
def recorded_run() -> tuple[StoryRun, Scene]:
    recording = Recording()
    story_run = run_story(read_story(find_story("S65")), seed=1, recording=recording)
    script = story_run.actual
    return story_run, scene_of(recording, title=script.title, passages=script.passages)


def test_a_run_that_is_recorded_is_the_run_that_is_not(
    recorded_run: tuple[StoryRun, Scene],
) -> None:
    story_run, _ = recorded_run
    assert story_run.trace_hash == run_story(read_story(find_story("S65")), seed=1).trace_hash
    assert run_seed(17, Recording()).trace_hash == run_seed(17).trace_hash


def test_messages_arrive_after_they_were_sent_and_answers_after_questions(
    recorded_run: tuple[StoryRun, Scene],
) -> None:
    _, scene = recorded_run
    assert all(arrow["api"] != "?" for arrow in scene.arrows)
    arrived = [each for each in scene.arrows if each["there"] is not None]
    assert all(each["there"] > each["sent"] for each in arrived)
    said = [(each["api"], each["from"], each["to"], each["says"]) for each in scene.arrows]
    assert [each for each in said if each[0].startswith("Produce")] == [
        ("Produce", "client", "b1", "t-0 acks=all"),
        ("Produce answer", "b1", "client", "t-0 at 0"),
        ("Produce", "client", "b1", "t-0 acks=1"),
        ("Produce answer", "b1", "client", "t-0 at 3"),
        ("Produce", "client", "b1", "t-0 acks=all"),  # b1 dies with it
        ("Produce", "client", "b2", "t-0 acks=all"),
        ("Produce answer", "b2", "client", "t-0 at 3"),
    ]
    assert ("Fetch answer", "b2", "b1", "t-0 diverges: e0@3") in said


def test_what_a_cut_swallowed_is_lost(recorded_run: tuple[StoryRun, Scene]) -> None:
    _, scene = recorded_run
    lost = {(each["to"], each["says"]) for each in scene.arrows if each["there"] is None}
    assert lost & {("b2", "t-0 3-3, HW 3"), ("b3", "t-0 3-3, HW 3")}


def test_the_logs_end_as_the_story_shows_them(recorded_run: tuple[StoryRun, Scene]) -> None:
    story_run, scene = recorded_run
    last = {each["node"]: each for each in scene.logs if each["partition"] == "t-0"}
    shown = [
        re.match(r"(b\d)  (\[.*\])\s+HW (\d+)  LEO (\d+)  (\w+)", line)
        for step in story_run.actual.steps
        for line in step.answer
    ]
    for match in [each for each in shown if each][-3:]:
        log = last[match[1]]
        runs = [EpochRun(*run) for run in log["runs"]]
        assert "".join(f"[e{run.leader_epoch}: {run.first}-{run.last}]" for run in runs) == match[2]
        assert (log["high_watermark"], log["log_end_offset"]) == (int(match[3]), int(match[4]))
        assert log["role"] == match[5]


def test_the_quorum_has_replicas_of_the_metadata_log_in_the_report() -> None:
    """Its leader, leader epoch, voters and observers, and how far each is."""
    recording = Recording()
    story = run_story(read_story(find_story("S76")), seed=1, recording=recording)
    scene = scene_of(recording, title=story.actual.title, passages=story.actual.passages)
    assert scene.partitions == ["t-0", "__cluster_metadata-0"]
    logs = [each for each in scene.logs if each["partition"] == "__cluster_metadata-0"]
    last = {each["node"]: each for each in logs}
    assert last.keys() == {"c3001", "c3002", "c3003", "b1", "b2", "b3"}
    assert {last[each]["role"] for each in ("b1", "b2", "b3")} == {"observes"}
    voting = [last[each] for each in ("c3001", "c3002", "c3003")]
    assert sorted(each["role"] for each in voting) == ["follows", "follows", "leads"]
    (leads,) = [each for each in voting if each["role"] == "leads"]
    assert leads["members"] == "voters c3001 c3002 c3003"
    assert {each["leader_epoch"] for each in voting} == {leads["leader_epoch"]}
    assert {each["log_end_offset"] for each in last.values()} == {leads["log_end_offset"]}
    assert "down" in {each["role"] for each in logs}
    assert [each for each in logs if each["log_end_offset"] > each["high_watermark"]]


def test_every_decision_says_why(recorded_run: tuple[StoryRun, Scene]) -> None:
    _, scene = recorded_run
    why = {str(each["name"]): str(each["why"]) for each in scene.marks}
    assert why["leader_elected"].startswith("b2 leads t-0 in epoch 1 after b1")
    assert "first live replica of the in-sync set" in why["leader_elected"]
    assert why["log_truncated"] == (
        "truncates t-0 from 5 to 3 in leader epoch 1: its leader has other records from there on"
        " (KIP-595); its high watermark was 3"
    )
    assert "it has reached the high watermark" in why["isr_change_proposed"]


def test_a_message_without_words_of_its_own_says_nothing() -> None:
    assert label(object(), {}) == ""


# ShiViz.


def test_a_receiver_has_seen_all_that_the_sender_had(recorded_run: tuple[StoryRun, Scene]) -> None:
    _, scene = recorded_run
    parser, _, *lines = to_shiviz(scene, idle=True).splitlines()
    expression = re.compile(parser.replace("(?<", "(?P<").replace(r"\n", "\n"))
    clocks: dict[str, list[dict[str, int]]] = defaultdict(list)
    sent: dict[tuple[str, str, str], list[dict[str, int]]] = defaultdict(list)
    received = 0
    for head, what in zip(lines[::2], lines[1::2], strict=True):
        match = expression.fullmatch(f"{head}\n{what}")
        assert match, (head, what)
        host, clock = match["host"], json.loads(match["clock"])
        assert clock[host] == len(clocks[host]) + 1, "each line counts one"
        if clocks[host]:
            assert all(clock.get(key, 0) >= count for key, count in clocks[host][-1].items())
        clocks[host].append(clock)
        if what.startswith("to "):
            to, _, said = what.removeprefix("to ").partition(": ")
            sent[host, to, said].append(clock)
        if what.startswith("from "):
            source, _, said = what.removeprefix("from ").partition(": ")
            received += 1
            assert any(
                all(clock.get(key, 0) >= count for key, count in each.items())
                for each in sent[source, host, said]
            )
    assert received == sum(each["there"] is not None for each in scene.arrows)
    assert len(to_shiviz(scene)) < len(to_shiviz(scene, idle=True))
    assert any(each["kind"] == IDLE for each in scene.arrows)


# The page.


def test_the_page_loads_nothing_and_nothing_in_it_ends_its_data() -> None:
    scene = Scene(
        title="a </script> & <b> of {{script}}",
        seed=1,
        trace_hash="0" * 64,
        virtual_seconds=0.0,
        lanes=["client"],
        partitions=[],
        steps=[{"prose": "", "commands": ["</script><script>alert(1)"], "answer": []}],
        commands=[],
        marks=[],
        arrows=[],
        logs=[],
    )
    text = page(scene)
    assert text.count("</script>") == 2
    assert "<title>a &lt;/script&gt; &amp; &lt;b&gt; of {{script}}</title>" in text
    assert not re.search(r"""(src|href)\s*=|@import|url\(["']?http""", text)
    data = re.search(r'id="scene">(.*?)</script>', text, re.DOTALL)
    assert data
    assert json.loads(data[1])["title"] == scene.title


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize(
    ("width", "dark"),
    [
        pytest.param(390, False, id="phone", marks=pytest.mark.deep),
        pytest.param(1400, True, id="desktop, dark"),
    ],
)
def test_a_browser_draws_every_moment_without_a_fault(
    tmp_path: Path,
    recorded_run: tuple[StoryRun, Scene],
    width: int,
    dark: bool,
) -> None:
    _, scene = recorded_run
    file = tmp_path / "report.html"
    file.write_text(page(scene).replace("</body>", STEPS_THROUGH_ALL + "</body>"))
    root = root_of(file, tmp_path, width=width, dark=dark)
    assert "data-faults" not in root, root
    assert 'data-ready="yes"' in root
    assert 'data-overflows="false"' in root
    seen = re.search(r'data-seen="(\d+)"', root)
    assert seen
    assert int(seen[1]) > len(scene.marks) / 2
