"""`understudy up --ui` in a browser: what it shows, what its buttons do, and its only host."""

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import needs_browser
from tests.cli.live_browser import LiveBrowser, live_browser
from tests.cli.test_up import TIMEOUT, running, table_of
from tests.deep import one_in
from tests.looks import PHONE, WIDE, check_looks

pytestmark = pytest.mark.slow

QUICK = [
    "-X", "broker.session.timeout.ms=1000", "-X", "broker.heartbeat.interval.ms=200",
    "-X", "offsets.topic.num.partitions=3",
]  # fmt: skip
LEADER = "state.partitions.get('t-0')?.leader"
# Notes each broker that was dead and not fenced at some update.
SEES_LATE = """window.late = []; const taken = take;
take = (update) => { taken(update); late.push(...state.cluster.brokers.map((each) => each.id).filter(isLate)); }"""
LONG = "where-teams-share-a-cluster-topics-have-names-as-long-as-this.v2"


def page_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    match = re.fullmatch(r"page: (http://127\.0\.0\.1:\d+/)\n", process.stdout.readline())
    assert match, process.communicate()
    return match[1]


def understudy(*arguments: str) -> str:
    command = [sys.executable, "-m", "replication.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT)
    return done.stdout


@pytest.fixture(scope="module", params=one_in(2, ["isolated", "one process"]))
def served(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Yield the URL of the page of a cluster with a topic, and the address of a broker."""
    flags = ["--isolated"] if request.param == "isolated" else []
    with running("up", "--any-port", "--ui", "0", *QUICK, *flags) as process:
        bootstrap = ",".join(row[2] for row in table_of(process, 3))
        url = page_of(process)
        for name in ("t", LONG):
            understudy("topic", "create", name, "-b", bootstrap, "--replication-factor", "3")
        yield url, bootstrap
        process.terminate()
        assert process.wait(TIMEOUT) == 0


def test_the_state_is_served_as_json_and_top_agrees(served: tuple[str, str]) -> None:
    url, bootstrap = served
    with urllib.request.urlopen(f"{url}state") as answer:
        (found,) = [each for each in json.load(answer)["partitions"] if each["topic"] == "t"]
    for each in found["replicas"]:
        assert (each["high_watermark"], each["leader_epoch"]) == (0, 0), "of followers too"
        assert isinstance(each["epochs"], list)
    asked = json.loads(understudy("top", "t", "--once", "--output", "json", "-b", bootstrap))
    (same,) = asked["partitions"]
    for name in ("leader", "leader_epoch", "isr", "min_isr"):
        assert found[name] == same[name]
    ends = [(each["broker"], each["log_end_offset"]) for each in found["replicas"]]
    assert ends == [(each["broker"], each["log_end_offset"]) for each in same["replicas"]]


def test_the_page_has_a_tab_that_runs_stories(served: tuple[str, str]) -> None:
    url, _ = served
    for path, link in (
        ("", '<a href="stories">Stories</a>'),
        ("stories", '<a href="./">Cluster</a>'),
    ):
        with urllib.request.urlopen(f"{url}{path}") as answer:
            assert link in answer.read().decode()
    with urllib.request.urlopen(f"{url}stories/run", b'{"text": "cluster brokers=1"}') as answer:
        found = json.load(answer)
    assert found["wrong"] is None
    assert found["commands"][0]["answer"] == [["same", "c b1 are up"]]


@pytest.mark.deep
@needs_browser
def test_a_leader_is_killed_by_its_button_and_another_one_is_shown(
    served: tuple[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url, _ = served
    with live_browser(tmp_path) as browser:
        browser.open(url, width=WIDE)
        victim = browser.until(f"document.documentElement.dataset.ready && {LEADER}")
        browser.ask("rows.get('t-0').pick.click()")
        # With the keyboard alone.
        browser.ask(SEES_LATE)
        browser.ask(f"cards.get({victim}).life.focus()")
        browser.press("Enter")
        browser.until(f"{LEADER} > 0 && {LEADER} !== {victim}")
        browser.until(f"cards.get({victim}).life.textContent === 'Start'")
        assert browser.ask("document.activeElement.textContent") == "Start", "focus stays"
        shown, found = "rows.get('t-0').root.innerText", "byId('events').innerText"
        browser.until(f"{shown}.includes('2 of 3')")
        browser.until(f"/(?<!was )fenced: session expired, silent for \\d+ ms/.test({shown})")
        browser.until(f"{found}.includes('b{victim} is down')")
        browser.until(f"/b\\d leads t-0 in epoch 1 after b{victim}/.test({found})")
        late = "the controller still counts it as alive"
        browser.until(f"byId('verdict').innerText.includes('b{victim} is down')")
        assert browser.ask(f"!byId('cards').innerText.includes('{late}')"), "it is fenced by now"
        if request.node.callspec.params["served"] != "isolated":  # that asks once a second
            assert browser.ask(f"window.late.includes({victim})"), "it was amber before"
        # Of each partition that the victim led, as the cluster has placed them.
        browser.until(
            r"/ [12] leader changes?, no committed record/.test(byId('verdict').innerText)"
        )
        browser.until("byId('spoken').textContent.includes('leads t-0 in epoch 1')")
        looks_well(browser)
        browser.press(" ")
        browser.until("state.partitions.get('t-0').isr.length === 3")
        talks_to_nobody_else(browser, url)


def looks_well(browser: LiveBrowser) -> None:
    """Check the page on every screen, its table too; figures say what they are."""
    check_looks(browser)
    for width in (WIDE, PHONE):
        browser.show_as(width=width, dark=False)
        table = "document.querySelector('.scroll')"
        assert not browser.ask(f"{table}.scrollWidth > {table}.clientWidth"), width
    assert browser.ask("[...document.querySelectorAll('.ends')].every((each) => each.title)")


def talks_to_nobody_else(browser: LiveBrowser, url: str) -> None:
    assert browser.requests
    others = [each for each in browser.requests if not each.startswith((url, "data:,"))]
    assert others == []
    assert browser.complaints == []
    assert browser.ask("window.faults") == []
