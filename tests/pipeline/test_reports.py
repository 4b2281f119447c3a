"""The pages of the jobs: they need nothing else, escape what others named, and are drawn."""

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs
import pytest

from replication.cli.pipeline.jobs import FORMS, deliver

pytest.importorskip("plotly", reason="the Spark extra is not installed: understudy[spark]")
pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")

import pyarrow.parquet

from pipeline.audit.commits import GroupLoss
from pipeline.audit.judging import Finding, Pair
from pipeline.audit.results import AuditReport, PartitionAudit
from pipeline.journals.changes import NOT_SAID, Change
from pipeline.journals.failover import FailoverReport, lines
from pipeline.journals.lag import LagPoint, LagReport, LagState, PartitionLag
from pipeline.journals.outages import OutageReport, PartitionFailover, verdict_on
from pipeline.journals.quorum import MetadataReplica, QuorumStanding
from pipeline.journals.timeline import Failover, Interval, Outage
from pipeline.reports.audit import audit_page
from pipeline.reports.failover import failover_page
from pipeline.reports.lag import lag_page
from pipeline.reports.page import utc
from replication.verify.results import CopyAt
from storage.types import TopicPartition
from tests.browser import needs_browser
from tests.cli.live_browser import live_browser
from tests.looks import WIDE, check_looks

EVIL = "</script><script>alert(1)</script>"
BEGAN = 1_700_000_000_000
TP = TopicPartition("orders", 0)
INTERNAL = TopicPartition("__consumer_offsets", 7)


def lag_report() -> LagReport:
    def state(from_ms: int, to_ms: int, leader: int, *isr: int) -> LagState:
        interval = Interval(
            from_ms=BEGAN + from_ms, to_ms=BEGAN + to_ms, leader=leader, leader_epoch=1, isr=isr
        )
        return LagState(topic_partition=TP, interval=interval, replication_factor=3, min_isr=2)

    states = (
        state(0, 2000, 1, 1, 2, 3),
        state(2000, 5000, 2, 2, 3),
        state(5000, 6000, 2, 2),
        state(6000, 8000, -1),
    )
    partitions = (
        PartitionLag(
            topic="orders",
            partition=0,
            replication_factor=3,
            known_ms=8000,
            under_replicated_ms=6000,
            under_min_isr_ms=3000,
            offline_ms=2000,
            isr_changes=3,
            samples=2,
            lag=(1, 2, 3, 4),
            lag_ms=(5, 6, 7, 8),
        ),
        PartitionLag(topic=EVIL, partition=1, replication_factor=None),
    )
    points = tuple(
        LagPoint(topic_partition=TP, at_ms=BEGAN + at, lag=at // 10, lag_ms=at) for at in (10, 90)
    )
    return LagReport(partitions, states, points, {EVIL: 3})


def failover_report() -> FailoverReport:
    outage = Outage(
        broker=1,
        began_ms=BEGAN,
        fenced_ms=BEGAN,
        silent_ms=2000,
        cause="session expired",
        over_ms=BEGAN + 9000,
        planned=False,
    )
    failover = Failover(
        broker=1,
        cause=outage.cause,
        began_ms=BEGAN,
        silent_ms=2000,
        fenced_ms=BEGAN,
        elected_ms=BEGAN + 30,
        leader=2,
        leader_epoch=1,
        election="clean",
        leading_ms=BEGAN + 50,
        first_write_ms=BEGAN + 800,
        isr_whole_ms=BEGAN + 9000,
        truncated=5,
        truncated_committed=0,
        lost_committed=0,
        had_traffic=True,
        was_deleted=False,
        chain=(EVIL,),
    )
    idle = attrs.evolve(failover, first_write_ms=None, had_traffic=False, chain=("no traffic",))
    shutdown = attrs.evolve(
        outage, broker=2, cause="controlled shutdown", silent_ms=-1, planned=True
    )
    slow = attrs.evolve(failover, first_write_ms=BEGAN + 99_000)
    elected = Change(at_ms=BEGAN, node=100, name="leader_elected", cause="preferred", text=EVIL)
    cut = Change(at_ms=BEGAN + 5, node=1, name="log_truncated", cause=NOT_SAID, text="it was cut")
    return FailoverReport(
        (
            OutageReport(
                outage,
                (
                    PartitionFailover(TP, failover),
                    PartitionFailover(TopicPartition("idle", 0), idle),
                    PartitionFailover(INTERNAL, slow),
                ),
            ),
            OutageReport(outage, ()),
            OutageReport(shutdown, (PartitionFailover(TP, slow),)),
        ),
        {TP: (elected, elected, cut), INTERNAL: (cut,)},
        left_out=7,
    )


def audits() -> list[PartitionAudit]:
    return [
        PartitionAudit(
            topic="orders",
            partition=1,
            replicas=("a", "b"),
            result="same",
            start_offset=0,
            end_offset=9,
            batches=3,
        ),
        PartitionAudit(
            topic="orders",
            partition=0,
            replicas=("a", EVIL),
            result="different",
            difference="corrupt",
            offset=7,
            start_offset=0,
            end_offset=7,
            copies=(CopyAt(directory=EVIL, base_offset=7, last_offset=9, damage="its CRC"),),
            pairs=(Pair(first="a", second=EVIL, difference="corrupt", offset=7),),
            findings=(Finding(replica=EVIL, kind="corrupt", first_offset=7, end_offset=10),),
        ),
    ]


def losses() -> list[GroupLoss]:
    return [
        GroupLoss(
            group=EVIL,
            topic=EVIL,
            partition=0,
            committed_offset=100,
            committed_epoch=1,
            committed_ms=BEGAN,
            truncated_at=90,
            leader_epoch=2,
            evidence="leader epochs",
        )
    ]


PAGES = {
    "audit": lambda: audit_page(AuditReport(audits(), losses())),
    "lag": lambda: lag_page(lag_report()),
    "failover": lambda: failover_page(failover_report()),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_nothing_and_escapes_what_others_named(name: str) -> None:
    text = PAGES[name]()
    assert "alert(1)</script>" not in text
    ours = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"""(src|href)\s*=|@import|url\(""", ours)
    assert not re.search(r"<script[^>]+src=", text)


@pytest.mark.parametrize(
    ("name", "level", "words"),
    [
        ("audit", "bad", "1 of 2 partitions differ, first orders-0 at offset 7 (corrupt)"),
        ("lag", "bad", "1 ISR not whole, and 1 without a leader"),
        ("failover", "good", "2 outages, 1 planned shutdown; no committed record is lost"),
    ],
)
def test_a_page_begins_with_its_verdict(name: str, level: str, words: str) -> None:
    text = PAGES[name]()
    assert re.search(rf'<h1>[^<]+</h1><p class="verdict {level}" id="verdict">', text)
    assert words in text


def a_verdict(*reports: OutageReport) -> tuple[str, str]:
    found = verdict_on(reports)
    return found.level, found.text


def test_the_verdict_says_what_is_lost_and_what_is_wrong_now() -> None:
    report = failover_report().outages[0]
    first, _, hidden = report.partitions

    def changed(part: PartitionFailover, **values: Any) -> OutageReport:
        failover = attrs.evolve(part.failover, **values)
        return attrs.evolve(report, partitions=(attrs.evolve(part, failover=failover),))

    level, text = a_verdict(changed(first, lost_committed=7))
    assert (level, "7 committed records lost." in text) == ("bad", True)
    level, text = a_verdict(changed(hidden, lost_committed=7))
    assert (level, "7 committed records lost, 7 of them in internal topics" in text) == (
        "bad",
        True,
    )
    level, text = a_verdict(changed(first, elected_ms=None))
    assert (level, "1 partition without a leader" in text) == ("bad", True)
    level, text = a_verdict(changed(first, elected_ms=None, was_deleted=True))
    assert (level, "nothing is wrong" in text) == ("good", True)
    level, text = a_verdict(attrs.evolve(report, outage=attrs.evolve(report.outage, over_ms=None)))
    assert (level, "b1 still fenced" in text) == ("warning", True)
    shut = attrs.evolve(failover_report().outages[2].outage, over_ms=None)
    level, text = a_verdict(report, attrs.evolve(report, outage=shut))
    assert (level, "nothing is wrong (b2 shut down)" in text) == ("good", True)


def many_outages(planned: bool) -> list[OutageReport]:
    """Return 200 outages of 20 partitions and one of 3,000, in which one partition lost records."""
    report = failover_report().outages[2 if planned else 0]
    made = []
    for number in range(201):
        began_ms = BEGAN + number * 60_000
        outage = attrs.evolve(report.outage, began_ms=began_ms)
        partitions = [
            PartitionFailover(
                TopicPartition(f"topic-{each % 7}", each),
                attrs.evolve(
                    report.partitions[0].failover,
                    began_ms=began_ms,
                    first_write_ms=began_ms + 50 + each,
                    lost_committed=3 if (number, each) == (77, 1500) else 0,
                ),
            )
            for each in range(3000 if number == 77 else 20)
        ]
        made.append(OutageReport(outage, tuple(partitions)))
    return made


@pytest.mark.parametrize("planned", [False, True])
def test_a_report_of_many_failovers_has_a_bounded_length_and_says_what_it_folds(
    planned: bool,
) -> None:
    reports = many_outages(planned)
    changes = {TopicPartition("t", each): failover_report().changes[TP] * 99 for each in range(500)}
    report = FailoverReport(tuple(reports), changes)
    text = failover_page(report)
    shown = 10 if planned else 20
    ours = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert ours.count("<tr>") < 1000
    assert len(ours) < 1_000_000
    printed = list(lines(report))
    assert len(printed) < 600
    for whole in (text, "\n".join(printed)):
        assert "3 committed records lost" in whole
        assert f"Not shown: {201 - shown:,} others, which had less effect; 0 committed" in whole
        assert "topic-2-1500" in whole, "what is worst is kept"
        assert "with traffic, which had less effect" in whole
    assert "Not shown: 440 partitions more by name." in text
    assert "Not shown: 197 later ones." in text


def test_internal_topics_are_folded_away_unless_requested(
    capsys: pytest.CaptureFixture[str],
) -> None:
    note = "of internal topics (--internal shows them)"
    inner = PartitionLag(topic=INTERNAL.topic, partition=7, replication_factor=3, known_ms=1)
    lag = attrs.evolve(lag_report(), partitions=(*lag_report().partitions, inner))
    audited = attrs.evolve(audits()[0], topic=INTERNAL.topic)
    audit = AuditReport([*audits(), audited], losses())
    found = {"failover": failover_report(), "lag": lag, "audit": audit}
    for job, answer in found.items():
        for internal in (False, True):
            page = getattr(import_module(f"pipeline.reports.{job}"), f"{job}_page")
            deliver(job, answer, ["table"], internal=internal)
            for text in (page(answer, internal=internal), capsys.readouterr().out):
                assert (INTERNAL.topic in text) == internal, job
                assert (note in text) != internal, job


def test_the_failover_report_shows_the_quorum_of_controllers() -> None:
    leading = MetadataReplica(
        node_id=3001, log_end_offset=57, leader_epoch=4, leader_id=3001, voters=(3001, 3002)
    )
    behind = MetadataReplica(node_id=1, log_end_offset=55)
    report = attrs.evolve(failover_report(), quorum=QuorumStanding((behind, leading)))
    page, text = failover_page(report), "\n".join(lines(report))
    assert "Leader 3001, leader epoch 4, voters 3001 3002" in page
    assert '<td class="number">55</td><td class="number">2</td>' in page
    assert "voters 3001 3002; 1 observes (log end offset 55, lag 2), 3001 leads" in text
    assert "quorum" not in failover_page(failover_report())


def test_there_is_a_page_where_there_is_nothing_to_tell() -> None:
    assert "have no broker" in failover_page(FailoverReport())
    assert "have no partition" in lag_page(LagReport((), (), (), {}))
    assert "0</b>" in audit_page(AuditReport([], []))


def headline(page: str) -> dict[str, str]:
    """Return the tiles of a page, by what they are."""
    found = re.findall(r'<div class="tile"><b[^>]*>([^<]*)</b><span>([^<]*)</span>', page)
    return {what: value for value, what in found}


def test_the_headline_of_failovers_leaves_out_what_was_planned_and_what_had_no_traffic() -> None:
    numbers = headline(PAGES["failover"]())
    assert (numbers["outages"], numbers["planned shutdowns"]) == ("2", "1")
    assert numbers["to the first write, at most"] == "800 ms"
    assert numbers["failed-over partitions had traffic"] == "1 of 2"
    only_planned = failover_page(FailoverReport(failover_report().outages[2:]))
    assert headline(only_planned)["outages"] == "0"
    assert headline(only_planned)["to the first write, at most"] == "none"
    assert "<h2>Outages" not in only_planned
    assert "<details><summary>Planned shutdown 1: b2 at " in only_planned


def test_a_page_of_failovers_has_every_election_and_truncation_with_its_cause() -> None:
    for report in (failover_report(), attrs.evolve(failover_report(), outages=())):
        text = failover_page(report)
        assert '<td>election</td><td>preferred</td><td class="number">2</td>' in text
        assert f"<td>truncation</td><td>{NOT_SAID}</td>" in text
        assert f"{TP}: 3 elections and truncations" in text
        assert f"{utc(BEGAN + 5):%Y-%m-%d %H:%M:%S.%f}"[:-3] + "  b1: it was cut" in text
        assert "7 later ones are left out" in text
    assert "Elections and truncations" not in failover_page(FailoverReport())


def test_the_headline_of_lag_is_the_most_of_any_partition() -> None:
    numbers = headline(PAGES["lag"]())
    assert (numbers["records behind, at most"], numbers["behind, at most"]) == ("4", "8 ms")


REPORTS = {
    "audit": lambda: AuditReport(audits(), losses()),
    "lag": lag_report,
    "failover": failover_report,
}


@pytest.mark.parametrize("job", REPORTS)
def test_an_answer_is_handed_out_in_every_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], job: str
) -> None:
    files = [tmp_path / f"answer.{ending}" for ending in ("json", "html", "parquet")]
    found = REPORTS[job]()
    deliver(job, found, ["table", *map(str, files)])
    printed = capsys.readouterr()
    assert "orders-0" in printed.out
    verdict = str(import_module(FORMS[job]).verdict(found))
    assert printed.out.splitlines()[0] == verdict
    assert printed.err.splitlines() == [f"written: {file}" for file in files]
    deliver(job, found, ["json", str(files[1])])
    printed = capsys.readouterr()
    assert printed.err.splitlines() == [verdict, f"written: {files[1]}"]
    assert json.loads(printed.out) == json.loads(files[0].read_text())
    assert files[1].read_text() == PAGES[job]()
    assert pyarrow.parquet.read_table(files[2]).num_rows > 0


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize(
    ("name", "bars"),
    [
        ("failover", 4),
        *(pytest.param(*each, marks=pytest.mark.deep) for each in (("audit", 0), ("lag", 4))),
    ],
)
def test_a_browser_draws_it_without_a_fault_on_any_screen(
    tmp_path: Path, name: str, bars: int
) -> None:
    file = tmp_path / "report.html"
    file.write_text(PAGES[name]())
    with live_browser(tmp_path) as browser:
        browser.open(file.as_uri(), width=WIDE)
        browser.until("document.readyState === 'complete'")
        check_looks(browser)
        assert browser.ask("document.querySelectorAll('.bars .point').length") == bars
        if bars:
            browser.until(
                "getComputedStyle(document.querySelector('.js-plotly-plot .ytick text')).fill"
                " === getComputedStyle(document.body).color"
            )
