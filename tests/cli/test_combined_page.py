"""The live page of a cluster whose nodes have both roles, in a browser: a card says what a node is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from replication.cluster.cluster import Cluster, open_cluster
from replication.errors import raise_bug
from replication.faults.impairments import Impairments
from replication.observe.http import serve_sites
from replication.observe.nodes_source import reader_of_nodes
from replication.observe.page import LivePage
from tests.browser import needs_browser
from tests.cli.live_browser import LiveBrowser, live_browser
from tests.cli.test_live_page import QUICK, looks_well
from tests.looks import PHONE, WIDE

pytestmark = [pytest.mark.slow, pytest.mark.deep]

TIMING = dict(each.split("=") for each in QUICK[1::2])


@asynccontextmanager
async def served(directory: Path, **layout: object) -> AsyncIterator[tuple[Cluster, str]]:
    """Yield a cluster of this process, and the URL of its page."""
    page = LivePage()
    async with (
        open_cluster(
            data_dir=str(directory / "data"),
            properties=TIMING,
            make_sink=page.sink,
            impairments=Impairments(),
            on_bug=raise_bug,
            **layout,  # type: ignore[arg-type]  # as open_cluster has them
        ) as cluster,
        trio.open_nursery() as nursery,
    ):
        site = page.site(reader_of_nodes(cluster, page.reasons), cluster, port=0)
        urls = await serve_sites([site], nursery=nursery, on_bug=raise_bug)
        nursery.start_soon(page.run)
        yield cluster, urls["page"]
        nursery.cancel_scope.cancel()


def check_roles(browser: LiveBrowser, url: str) -> int:
    """Check the cards of three nodes with both roles, and of a broker; return who leads."""
    browser.open(url, width=WIDE)
    browser.until("document.documentElement.dataset.ready && state.cluster.quorum.leader > 0")
    assert browser.ask("cards.size") == 4, "a card for each node, whatever its roles"
    card = "cards.get({}).root.innerText"
    leader: int = browser.ask("state.cluster.quorum.leader")
    for node_id in (1, 2, 3):
        found = browser.until(card.format(node_id))
        assert "broker + controller" in found, found
        assert ("★ leads the metadata in epoch" in found) == (node_id == leader), found
        assert "127.0.0.1:" in found, found
    alone = browser.ask(card.format(4))
    assert "controller" not in alone, alone
    looks_well(browser)
    return leader


def check_kill(browser: LiveBrowser, leader: int) -> None:
    browser.ask(f"cards.get({leader}).life.click()")
    browser.until(f"state.cluster.quorum.leader > 0 && state.cluster.quorum.leader !== {leader}")
    browser.until(f"byId('events').innerText.includes('b{leader} is down')")
    browser.until(f"byId('events').innerText.includes('b{leader} is fenced')")


@needs_browser
async def test_a_node_with_both_roles_is_one_card_that_says_both(tmp_path: Path) -> None:
    async with served(tmp_path, brokers=4, controllers=3, combined=True) as (_, url):

        def look() -> None:
            with live_browser(tmp_path) as browser:
                check_kill(browser, check_roles(browser, url))
                browser.show_as(width=PHONE, dark=True)

        await trio.to_thread.run_sync(look)
