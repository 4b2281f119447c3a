"""The page that shows a run: what it is drawn from, and that a browser can draw it."""

import json
import re
from collections import defaultdict
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner

from replication.cli import group
from replication.events import Event, LeaderElected, LogTruncated
from scenarios.checkers.observed import InvariantViolatedError
from scenarios.checkers.watcher import Checkers
from scenarios.story.log_drawing import EpochRun
from scenarios.story.report import Recording, Scene, page, scene_of, to_shiviz
from scenarios.story.report.messages import Message, label
from scenarios.story.report.scene import IDLE, INTERNAL, _kind
from scenarios.story.report.turning_point import turning_point
from scenarios.story.runner import StoryRun, run_story
from scenarios.story.script import find_story, read_story
from scenarios.swarm.runner import run_seed
from scenarios.world.trace import NodeKilled, NodeResumed, TraceEntry
from storage.types import TopicPartition
from tests.browser import needs_browser
from tests.cli.live_browser import live_browser
from tests.looks import PHONE, WIDE, check_looks

STEPS_THROUGH_ALL = """(() => {
for (const box of document.querySelectorAll("#kinds input")) box.click();
for (let index = 0; index < moments.length; index++) show(index, false);
return moments.length;
})()"""


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
        verdict={"level": "good", "word": "All is well", "text": ""},
        turning_point={"at": 0.0, "why": "the end", "partition": None},
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


# Where it opens.


def recorded(name: str) -> Scene:
    recording = Recording()
    script = run_story(read_story(find_story(name)), recording=recording).actual
    return scene_of(recording, title=script.title, passages=script.passages)


def entry(at: float, event: Event) -> TraceEntry:
    return TraceEntry(at=at, node="c", event=event)


def elected(topic: str, epoch: int, reason: str = "leader fenced") -> LeaderElected:
    return LeaderElected(
        partition=TopicPartition(topic, 0),
        leader=1 + epoch % 2,
        leader_epoch=epoch,
        isr=(1, 2),
        cause="clean",
        previous_leader=-1 if epoch == 0 else 2 - epoch % 2,
        reason=reason,
    )


def truncated(end: int) -> LogTruncated:
    return LogTruncated(
        partition=TopicPartition("t", 0),
        from_offset=end,
        to_offset=3,
        high_watermark=3,
        cause="diverging epoch",
    )


KILL = entry(1.0, NodeKilled(node="b1"))
CREATED, TAKEOVER = entry(0.5, elected("t", 0)), entry(2.0, elected("t", 1))
INNER, PREFERRED = (
    entry(3.0, elected("__consumer_offsets", 1)),
    entry(4.0, elected("t", 2, "preferred")),
)
NOTHING_CUT, CUT, END = (
    entry(5.0, truncated(3)),
    entry(6.0, truncated(5)),
    entry(9.0, NodeResumed(node="b1")),
)


@pytest.mark.parametrize(
    ("entries", "wrong", "at", "partition"),
    [
        pytest.param([KILL, TAKEOVER, CUT, END], "R1", 9.0, None, id="the violation"),
        pytest.param([KILL, TAKEOVER, CUT, INNER, END], "", 6.0, "t-0", id="the truncation"),
        pytest.param(
            [CREATED, KILL, TAKEOVER, INNER, PREFERRED, NOTHING_CUT, END],
            "",
            2.0,
            "t-0",
            id="the takeover",
        ),
        pytest.param([CREATED, INNER, END], "", 3.0, "__consumer_offsets-0", id="an internal one"),
        pytest.param([CREATED, KILL, END], "", 1.0, None, id="the fault"),
        pytest.param([CREATED, END], "", 9.0, None, id="the end"),
        pytest.param([], "", 0.0, None, id="nothing"),
    ],
)
def test_the_turning_point_is_the_first_kind_of_moment_that_there_is(
    entries: list[TraceEntry], wrong: str, at: float, partition: str | None
) -> None:
    found = turning_point(entries, wrong=wrong)
    assert (found.at, found.partition) == (at, partition)
    assert found.why


def test_the_verdict_of_a_run_says_what_was_lost_and_what_is_wrong_at_its_end(
    recorded_run: tuple[StoryRun, Scene],
) -> None:
    _, scene = recorded_run
    assert scene.verdict["level"] == "good"
    assert scene.verdict["text"] == (
        "1 leader change; no committed record was lost, 2 records truncated from logs."
        " At the end every partition has its leader and its whole ISR."
    )


@pytest.mark.slow
@needs_browser
def test_a_story_opens_at_its_turning_point_and_every_moment_is_drawn(
    tmp_path: Path, recorded_run: tuple[StoryRun, Scene]
) -> None:
    _, scene = recorded_run
    (cut,) = [each["at"] for each in scene.marks if each["name"] == "log_truncated"]
    file = tmp_path / "report.html"
    file.write_text(page(scene))
    with live_browser(tmp_path) as browser:
        for width in (PHONE, WIDE):
            browser.open(file.as_uri(), width=width, height=850)
            browser.until("document.documentElement.dataset.ready")
            assert browser.ask("scrollY") == 0, "the verdict is in sight"
            assert browser.ask("byId('time').value") == f"{cut:.4f} s"
            assert "truncates t-0 from 5 to 3" in browser.ask("byId('why').innerText")
            line, frame = (
                browser.ask(
                    f"(({{ top, bottom }}) => [top, bottom])(byId('{each}').getBoundingClientRect())"
                )
                for each in ("nowline", "frame")
            )
            assert frame[0] < line[0] < frame[1], "the moment is in sight in the diagram"
            assert browser.ask("byId('legend').open") == (width == WIDE)
            assert browser.ask("byId('legend').textContent").count("High watermark") == 1
            cells = "byId('logs').scrollWidth <= byId('logs').clientWidth"
            assert browser.ask(cells), "no log and no role is cut off"
            browser.ask("show(0, true)")
            browser.ask("byId('turn').click()")
            assert browser.ask("byId('time').value") == f"{cut:.4f} s"
        browser.ask("byId('legend').open = true")
        check_looks(browser)
        assert browser.ask(STEPS_THROUGH_ALL) > len(scene.marks) / 2
        assert browser.ask("window.faults") == []


@pytest.mark.slow
@needs_browser
def test_internal_topics_are_folded_away_in_a_story_unless_requested(tmp_path: Path) -> None:
    scene = recorded("S65")
    inner = {**scene.logs[0], "partition": "__consumer_offsets-0"}
    said = {**scene.arrows[0], "says": "__consumer_offsets-0 from 3", "kind": INTERNAL}
    scene = attrs.evolve(
        scene,
        partitions=["__consumer_offsets-0", *scene.partitions],
        logs=[*scene.logs, inner],
        arrows=[*scene.arrows, said],
    )
    file = tmp_path / "report.html"
    file.write_text(page(scene))
    with live_browser(tmp_path) as browser:
        browser.open(file.as_uri(), width=WIDE)
        browser.until("document.documentElement.dataset.ready")
        shown = "document.body.innerText.includes('__consumer_offsets') || byId('drawing').textContent.includes('__consumer')"
        assert not browser.ask(shown)
        browser.ask(
            "[...document.querySelectorAll('#kinds label')].find((each) => each.innerText.includes('internal')).click()"
        )
        assert browser.ask(shown)


def test_messages_about_internal_topics_alone_are_internal() -> None:
    def kind_of(label: str) -> str:
        return _kind(
            Message(source="b1", target="b2", sent_at=0, api="Fetch", is_request=False, label=label)
        )

    assert kind_of("__consumer_offsets-0 3-4, HW 5") == INTERNAL
    assert kind_of("__consumer_offsets-0 3-4, HW 5, t-0 HW 2") == "data"
    assert kind_of("__cluster_metadata-0 from 3") == "metadata"
    assert kind_of("") == IDLE


@pytest.mark.parametrize("command", [["run", "S65"], ["replay", "--seed", "17"]])
def test_a_command_that_writes_a_page_says_its_verdict_first(
    tmp_path: Path, command: list[str]
) -> None:
    file = tmp_path / "page.html"
    done = CliRunner().invoke(group, ["scenario", *command, "--report", str(file)])
    assert done.output.startswith(("All is well: ", "Look here: ", "Something is wrong: "))
    assert (
        done.output.splitlines()[0].split(": ", 1)[1]
        in json.loads(
            re.search(r'id="scene">(.*?)</script>', file.read_text(), re.DOTALL)[1]  # type: ignore[index]
        )["verdict"]["text"]
    )


def test_a_story_that_breaks_a_rule_leaves_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise InvariantViolatedError("R1", "two leaders in one epoch")

    monkeypatch.setattr(Checkers, "look", broken)
    file = tmp_path / "page.html"
    done = CliRunner().invoke(group, ["scenario", "run", "S65", "--report", str(file)])
    assert done.exit_code != 0
    assert "Something is wrong: a rule is broken: " in done.output
    assert '"why":"a rule is broken: ' in file.read_text()
