"""The page of stories in a browser: load, run, step, edit one line, run again, and see another log."""

from pathlib import Path

import pytest
import trio
from starlette.routing import Route

from replication.observe.http import LOOPBACK, http_app, serve_http
from replication.observe.page.live import page_file
from scenarios.classroom.routes import stories_tab
from tests.browser import needs_browser
from tests.cli.live_browser import LiveBrowser, live_browser
from tests.cli.test_live_page import talks_to_nobody_else
from tests.looks import PHONE, WIDE

pytestmark = [pytest.mark.slow, pytest.mark.deep]

STORY = "two-logs-of-one-length"
VERDICT, LOGS = "byId('verdict').textContent", "byId('logs').innerText"
# Each control that can be seen has a name, and no other has the same.
SAME_NAMES = """
  (() => {
    const names = [...document.querySelectorAll("button, input, select, textarea, a[href]")]
      .filter((each) => each.checkVisibility())
      .map((each) => each.ariaLabel || each.labels?.[0]?.textContent.trim() || each.textContent.trim());
    return names.filter((name, index) => !name || names.indexOf(name) !== index);
  })()
"""


@needs_browser
async def test_a_story_is_loaded_stepped_edited_and_run_again(tmp_path: Path) -> None:
    page_css = Route("/page.css", page_file("replication.observe.page", "page.css", "text/css"))
    async with trio.open_nursery() as nursery:
        app = http_app([*stories_tab().routes, page_css])
        address = await nursery.start(serve_http, app, LOOPBACK, 0)
        await trio.to_thread.run_sync(look, f"{address.url}/", tmp_path)  # noqa: TID251 - a browser blocks
        nursery.cancel_scope.cancel()


def look(url: str, directory: Path) -> None:
    with live_browser(directory) as browser:
        browser.open(f"{url}stories", width=WIDE)
        browser.until("document.documentElement.dataset.ready")
        load(browser)
        log = run_and_step(browser)
        edit_and_run_again(browser, log)
        link(browser, url)
        looks_well(browser)
        reset(browser)
        mistake(browser)
        bug(browser)
        talks_to_nobody_else(browser, url)


def load(browser: LiveBrowser) -> None:
    assert browser.ask("byId('list').querySelector('ul').children.length") == 5, "to start with"
    browser.ask("[...byId('list').querySelectorAll('button')]"
                ".find((each) => each.textContent.includes('Two logs of one length')).focus()")  # fmt: skip
    browser.press("Enter")
    browser.until("byId('text').value.includes('# Two logs of one length')")


def run_and_step(browser: LiveBrowser) -> str:
    """Run the story with the keyboard, and step through it; return the last log."""
    browser.ask("byId('run').focus()")
    browser.press("Enter")
    browser.until(f"{VERDICT}.includes('every answer is as recorded')")
    browser.ask("step(0)")
    assert "There is no partition yet" in browser.ask(LOGS)
    browser.press("ArrowRight")
    assert "leads, epoch 0, isr b1 b2" in browser.ask(LOGS)
    for _ in range(6):
        browser.press("ArrowRight")
    assert browser.ask("byId('place').textContent").startswith("8 of 24")
    assert "[e0: 0-1]" in browser.ask(LOGS)
    assert browser.ask("byId('logs').querySelectorAll('rect').length") == 4, "a box for each record"
    browser.press("ArrowLeft")
    assert browser.ask("current") == 6
    browser.ask("step(run.commands.findIndex((each) => each.line === 'wait leader t-0'))")
    assert "b2 leads t-0 in epoch 1 after b1" in browser.ask("byId('why').innerText"), "the cause"
    browser.ask("step(1000)")
    log: str = browser.ask(LOGS)
    assert "[e0: 0-0][e1: 1-1]" in log
    return log


def edit_and_run_again(browser: LiveBrowser, before: str) -> None:
    browser.ask("setText(byId('text').value.replace('acks=all m2', 'acks=all m2 m3'))")
    browser.ask("byId('seed').value = '7'; byId('text').focus()")
    browser.ask("byId('text').dispatchEvent("
                "new KeyboardEvent('keydown', { key: 'Enter', ctrlKey: true }))")  # fmt: skip
    browser.until(f"run && {VERDICT}.includes('from the recorded ones')")
    assert browser.ask("byId('facts').textContent").startswith("seed 7,")
    assert browser.ask("byId('transcript').querySelectorAll('.new').length") > 0
    assert browser.ask("byId('transcript').querySelectorAll('.gone').length") > 0
    browser.ask("step(1000)")
    after = browser.ask(LOGS)
    assert "[e0: 0-0][e1: 1-2]" in after
    assert after != before


def link(browser: LiveBrowser, url: str) -> None:
    """The link carries the edited text into another page."""
    edited = browser.ask("byId('text').value")
    browser.ask("share()")
    browser.until("location.hash.includes('text=')")
    shared = browser.ask("location.href")
    browser.open(f"{url}stories", width=WIDE)
    browser.until("document.documentElement.dataset.ready && !run")
    browser.ask(f"location.href = {shared!r}")
    browser.until("byId('text').value.includes('m2 m3')")
    assert browser.ask("byId('text').value") == edited
    assert browser.ask("[byId('seed').value, run]") == ["7", None], "a link runs nothing"
    browser.ask("runText()")
    browser.until("run")


# Whether the name of each replica stands beside its log, and not below it.
NAMES_SEEN = """[...byId('logs').querySelectorAll('tr')].every((row) => {
  const name = document.createRange();
  name.selectNodeContents(row.cells[0]);
  return name.getBoundingClientRect().right <= row.querySelector('svg').getBoundingClientRect().left;
})"""


def looks_well(browser: LiveBrowser) -> None:
    assert browser.ask("byId('logs').querySelectorAll('tr').length") > 1
    for width in (WIDE, PHONE):
        for dark in (False, True):
            browser.show_as(width=width, dark=dark)
            assert browser.ask(NAMES_SEEN)
            wide = browser.ask("[document.documentElement.scrollWidth, screen.width]")
            assert wide[0] <= max(wide[1], width), (width, wide)
            assert browser.ask("document.documentElement.scrollWidth") <= width
    browser.show_as(width=WIDE, dark=False)
    browser.ask("byId('chooser').open = true")
    assert browser.ask(SAME_NAMES) == []


def reset(browser: LiveBrowser) -> None:
    browser.ask("byId('reset').click()")
    assert not browser.ask("byId('text').value.includes('m2 m3')")
    assert browser.ask("byId('reset').disabled")


def mistake(browser: LiveBrowser) -> None:
    browser.ask("setText(byId('text').value.replace('kill b1', 'kil b1')); byId('run').click()")
    browser.until("!byId('mistake').hidden")
    assert "unknown command 'kil'; did you mean kill?" in browser.ask("byId('mistake').textContent")
    line = browser.ask("byId('text').value.split('\\n').indexOf('kil b1') + 1")
    assert browser.ask("byId('numbers').querySelector('.wrong').textContent") == str(line)
    assert f"line {line}, kil b1" in browser.ask(VERDICT)
    browser.ask("byId('reset').click()")
    assert browser.ask("byId('mistake').hidden")


def bug(browser: LiveBrowser) -> None:
    """An exhibit of the museum loads its story with its switch on."""
    browser.ask("[...byId('list').querySelectorAll('button')]"
                ".find((each) => each.textContent.includes('KIP-101:')).click()")  # fmt: skip
    browser.until("chosenBug() === 'KIP-101'")
    browser.ask("byId('run').click()")
    browser.until("run")
    assert browser.ask("byId('verdict').dataset.level") in {"bad", "changed"}
    browser.ask("byId('bugs').querySelector('input').click(); runText()")
    browser.until("byId('verdict').dataset.level === 'good'")
