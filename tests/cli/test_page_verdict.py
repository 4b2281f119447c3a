"""The live page while a broker dies: its verdict, what is amber, and rows that stay where they are."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from replication.errors import raise_bug
from replication.events import BecameLeader, HighWatermarkAdvanced
from replication.observe.cluster_state import (
    ClusterState,
    ObservedBroker,
    ObservedPartition,
    ObservedReplica,
    Role,
    Status,
)
from replication.observe.http import Site, serve_sites
from replication.observe.losses import LossCount
from replication.observe.page import Board, Timeline, page_routes
from replication.observe.page.verdict import verdict
from storage.types import TopicPartition
from tests.browser import needs_browser
from tests.cli.live_browser import LiveBrowser, live_browser
from tests.looks import PHONE, WIDE, check_looks

LATE = "left the ISR: b1 was fenced: session expired, silent for 9003 ms; its broker is down"
LONG = "where-teams-share-a-cluster-topics-have-names-as-long-as-this.v2"


def broker(node: int, status: Status = Status.UP, *, fenced: bool = False) -> ObservedBroker:
    return ObservedBroker(id=node, host="127.0.0.1", port=9091 + node, status=status, fenced=fenced)


def replica(node: int, leader: int | None, **values: Any) -> ObservedReplica:
    facts: dict[str, Any] = {
        "role": Role.LEADER if node == leader else Role.FOLLOWER,
        "in_isr": True,
        "log_start_offset": 0,
        "log_end_offset": 12,
        "high_watermark": 12,
        "lag": 0,
        "epochs": ((0, 0),),
    }
    return ObservedReplica(broker=node, **(facts | values))


def partition(
    topic: str, *replicas: ObservedReplica, leader: int | None = 1, epoch: int = 0
) -> ObservedPartition:
    return ObservedPartition(
        topic=topic,
        partition=0,
        leader=leader,
        leader_epoch=epoch,
        isr=tuple(each.broker for each in replicas if each.in_isr),
        replicas=replicas,
        is_internal=topic.startswith("__"),
    )


def cluster(brokers: list[ObservedBroker], *partitions: ObservedPartition) -> ClusterState:
    return ClusterState(
        now_ms=20_000,
        cluster_id="c",
        controller=0,
        controller_status=Status.UP,
        brokers=tuple(brokers),
        partitions=partitions,
        number_of_partitions=len(partitions),
    )


def topics(*replicas: ObservedReplica, leader: int | None = 1, epoch: int = 0) -> Any:
    names = ("__consumer_offsets", LONG, "orders", "payments")
    return [partition(name, *replicas, leader=leader, epoch=epoch) for name in names]


WHOLE = [replica(node, 1) for node in (1, 2, 3)]
UP = [broker(1), broker(2), broker(3)]
DEAD = [broker(1, Status.DOWN), broker(2), broker(3)]
FENCED = [broker(1, Status.DOWN, fenced=True), broker(2), broker(3)]
DOWN = replica(1, 1, role=Role.DOWN, is_live=False, lag=None, why="in the ISR, though it is down")
OUT = replica(1, 2, role=Role.DOWN, in_isr=False, is_live=False, lag=1, why=LATE)

# The states of one failover, in their order.
HEALTHY = cluster(UP, *topics(*WHOLE))
BUSY = cluster(
    UP, *topics(WHOLE[0], WHOLE[1], replica(3, 1, lag=1, log_end_offset=11, behind_since_ms=20_000))
)
KILLED = cluster(DEAD, *topics(DOWN, WHOLE[1], WHOLE[2]))
ELECTED = cluster(
    FENCED,
    *topics(OUT, replica(2, 2, log_end_offset=1_234_567), replica(3, 2), leader=2, epoch=1),
)
LEADERLESS = cluster(FENCED, *topics(OUT, replica(2, None), replica(3, None), leader=None, epoch=2))


@pytest.mark.parametrize(
    ("state", "level", "words"),
    [
        (HEALTHY, "good", "3 brokers up, every ISR of 4 partitions whole"),
        (BUSY, "good", "every ISR of 4 partitions whole"),
        (KILLED, "warning", "b1 is down, and the controller still counts it as alive and leads 4"),
        (ELECTED, "warning", "b1 is down; 4 ISRs not whole"),
        (LEADERLESS, "bad", "4 partitions without a leader; b1 is down"),
    ],
)
def test_the_verdict_follows_the_failover(state: ClusterState, level: str, words: str) -> None:
    found = verdict(state, LossCount())
    assert found.level == level
    assert words in found.text
    assert found.text.endswith("Since the start: 0 leader changes, no committed record was lost.")


def test_lost_records_are_wrong_however_well_the_cluster_is() -> None:
    losses, where = LossCount(), TopicPartition("orders", 0)
    losses.sink(
        HighWatermarkAdvanced(partition=where, high_watermark=9, log_end_offset=9, leader_epoch=0)
    )
    losses.sink(
        BecameLeader(partition=where, leader_epoch=1, leader_epoch_start_offset=7, high_watermark=7)
    )
    found = verdict(HEALTHY, losses)
    assert found.level == "bad"
    assert "2 committed records lost" in found.text


@asynccontextmanager
async def served(board: Board) -> AsyncIterator[str]:
    async def look() -> ClusterState:
        return HEALTHY

    routes = page_routes(board, look)
    async with trio.open_nursery() as nursery:
        site = Site(purpose="page", host="127.0.0.1", port=0, routes=routes)
        urls = await serve_sites([site], nursery=nursery, on_bug=raise_bug)
        yield urls["page"]
        nursery.cancel_scope.cancel()


PLACES = """JSON.stringify([...document.querySelectorAll("#table, #rows tr, #rows td, #rows th")].map((each) => {
    const { left, top, width, height } = each.getBoundingClientRect();
    return [left, top + scrollY, width, height].map(Math.round);
}))"""
COLOUR = "getComputedStyle({}).{}"


def colour_of(browser: LiveBrowser, element: str, kind: str = "color") -> Any:
    return browser.ask(f"getComputedStyle({element}).{kind}")


def named(browser: LiveBrowser, variable: str) -> Any:
    """Return a colour of the style, as the browser computes it."""
    return browser.ask(
        f"""(() => {{ const probe = document.body.appendChild(document.createElement("i"));
        probe.style.color = "var(--{variable})"; const found = getComputedStyle(probe).color;
        probe.remove(); return found; }})()"""
    )


@pytest.mark.slow
@needs_browser
async def test_a_failover_moves_no_row_and_a_dead_broker_is_amber_until_it_is_fenced(
    tmp_path: Path,
) -> None:
    board = Board(Timeline(lambda: 1234))
    board.put(HEALTHY)
    async with served(board) as url:

        def put(browser: LiveBrowser, state: ClusterState) -> None:
            version = browser.ask("window.updates")
            trio.from_thread.run_sync(board.put, state)
            browser.until(f"window.updates > {version}")

        def look() -> None:
            with live_browser(tmp_path) as browser:
                browser.open(url, width=WIDE)
                browser.until("document.documentElement.dataset.ready")
                count_updates(browser)
                check_folded(browser)
                for width in (WIDE, PHONE):
                    browser.show_as(width=width, dark=False)
                    check_places(browser, put)
                check_looks(browser)
                browser.show_as(width=WIDE, dark=False)
                put(browser, KILLED)
                check_amber(browser)
                check_looks(browser)
                put(browser, ELECTED)
                check_red(browser)
                check_looks(browser)
                check_nothing_flickers(browser, put)

        await trio.to_thread.run_sync(look)


def count_updates(browser: LiveBrowser) -> None:
    browser.ask(
        "window.updates = 0; const taken = take; take = (update) => { taken(update); updates++; }"
    )


def check_folded(browser: LiveBrowser) -> None:
    """Check that internal topics are shown on request, and not before."""
    shown = "byId('rows').innerText.includes('__consumer_offsets')"
    assert not browser.ask(shown)
    browser.ask("byId('internal').click()")
    assert browser.ask(shown)
    browser.ask("byId('internal').click()")
    assert "4" in browser.ask("byId('count').innerText")


def check_places(browser: LiveBrowser, put: Any) -> None:
    before = browser.ask(PLACES)
    for state in (BUSY, KILLED, ELECTED, LEADERLESS, HEALTHY):
        put(browser, state)
        assert browser.ask(PLACES) == before


def check_amber(browser: LiveBrowser) -> None:
    warning = named(browser, "warning")
    card, row = "cards.get(1)", "rows.get('orders-0')"
    assert colour_of(browser, f"{card}.root", "borderLeftColor") == warning
    assert (
        browser.ask(f"{card}.root.innerText").count("the controller still counts it as alive") == 1
    )
    assert "down" in browser.ask(f"{card}.status.innerText")
    for element in (f"{row}.leader", f"{row}.isr", f"{row}.replicas.get(1).as"):
        assert colour_of(browser, element) == warning, element
    assert browser.ask(f"{row}.replicas.get(1).as.innerText") == "★ leader, down"
    assert colour_of(browser, f"{row}.replicas.get(2).as") == named(browser, "good")
    assert browser.ask("byId('verdict').className") == "verdict warning"


def check_red(browser: LiveBrowser) -> None:
    assert colour_of(browser, "cards.get(1).root", "borderLeftColor") == named(browser, "fault")
    assert colour_of(browser, "rows.get('orders-0').replicas.get(1).as") == named(browser, "fault")
    assert (
        browser.ask("rows.get('orders-0').replicas.get(1).root.innerText").find(
            "fenced: session expired"
        )
        > 0
    )


def check_nothing_flickers(browser: LiveBrowser, put: Any) -> None:
    """Check that a lag of a moment is not shown, one that lasts is, and one unknown stays."""
    behind = "rows.get('orders-0').replicas.get(3).behind.textContent"
    put(browser, HEALTHY)
    put(browser, BUSY)
    assert browser.ask(behind) == ""
    lasting = [
        attrs.evolve(
            each, replicas=(*each.replicas[:2], replica(3, 1, lag=5, behind_since_ms=9_000))
        )
        for each in BUSY.partitions
    ]
    put(browser, attrs.evolve(BUSY, partitions=tuple(lasting)))
    assert browser.ask(behind).startswith("\u22125 for 11 s")
    unknown = [
        attrs.evolve(
            each, replicas=(*each.replicas[:2], replica(3, 1, lag=None, log_end_offset=None))
        )
        for each in BUSY.partitions
    ]
    put(browser, attrs.evolve(BUSY, partitions=tuple(unknown)))
    assert browser.ask(behind).startswith("\u22125 for 11 s")
    assert "LEO\u00a0\u2013" in browser.ask("rows.get('orders-0').replicas.get(3).ends.textContent")
