"""Probes and damaged logs show nothing of a sound cluster, and find each rule that is taken out."""

from collections.abc import Iterator

import pytest

from scenarios.checkers.producers import KNOWN
from scenarios.story.commands import probes
from scenarios.story.commands.clients import COMMITS
from scenarios.story.commands.judge import RESTS
from scenarios.story.stage import Stage
from scenarios.swarm.faults import EXPIRES_SOON, GIVES_UP_SOON
from scenarios.swarm.runner import SwarmRun, play
from tests.deep import one_in
from tests.mutants.planting import planted

BROKERS = "cluster brokers=3 min.insync.replicas=2 replica.fetch.max.bytes=100"
PROBED = """
    topic __transaction_state replicas=b2,b1 min.insync.replicas=1 cleanup.policy=compact
    topic __consumer_offsets replicas=b2,b1 min.insync.replicas=1 cleanup.policy=compact
    topic probed replicas=b1,b2/b1,b2 min.insync.replicas=1
    probe-transactions probed
    produce probed-1 acks=all v1
    probe-quiet-session probed
    probe-group probed
"""
EXPIRING = f"""
    topic __transaction_state replicas=b2,b1 min.insync.replicas=1 cleanup.policy=compact
    stop b2
    configure b2 {EXPIRES_SOON}
    start b2
    wait whole __transaction_state-0
    elect __transaction_state-0 preferred
    topic silent replicas=b2 min.insync.replicas=1
    probe-expiry silent b2
"""
COMMITTED_LATE = f"""
    topic t replicas=b1
    topic probed replicas=b1/b1
    topic __consumer_offsets replicas=b2,b1 min.insync.replicas=1 cleanup.policy=compact
    stop b2
    configure b2 {GIVES_UP_SOON}
    start b2
    wait whole __consumer_offsets-0
    elect __consumer_offsets-0 preferred
    run 1s
    judge-rest
    hold b1 b2 FETCH
    commit late t-0 1
    probe-join probed
    heal
    wait equal __consumer_offsets-0
    judge-groups
    probe-silent-member probed
    probe-join probed
    reassign __consumer_offsets-0 b1,b2
    elect __consumer_offsets-0 preferred
    run 3s
    judge-rest
"""
THROTTLED = """
    topic slow replicas=b1,b2 min.insync.replicas=1
    topic free replicas=b1,b2 min.insync.replicas=1
    alter b1 leader.replication.throttled.rate=300
    stop b2
    produce slow-0 acks=1 w1
    produce slow-0 acks=1 w2
    produce slow-0 acks=1 w3
    produce slow-0 acks=1 w4
    produce slow-0 acks=1 w5
    produce slow-0 acks=1 w6
    produce slow-0 acks=1 w7
    produce slow-0 acks=1 w8
    alter slow leader.replication.throttled.replicas=*
    probe-throttle slow-0 free-0 b2
"""
THROTTLED_LATE = THROTTLED.replace("b1", "b3").replace(
    "alter slow", "late c b3 400ms\n    alter slow"
)
"""The leader hears of the throttle when the follower has come back; b1 forwarded the request."""
DAMAGED = """
    topic damaged replicas=b1,b2 min.insync.replicas=1 segment.bytes=200
    produce damaged-0 acks=all d1
    produce damaged-0 acks=all d2
    produce damaged-0 acks=all d3
    reassign damaged-0 b2,b1
    elect damaged-0 preferred
    run 300ms
    produce damaged-0 acks=all d4
    wait equal damaged-0
    kill b1
    {what}
    start b1
    wait whole damaged-0
    wait equal damaged-0
    judge damaged-0
"""
STARTED_LATER = """
    delete-records damaged-0 3
    stop b1
    start b1
    wait whole damaged-0
    kill b1
    lose b1 damaged-0 all
    start b1
    wait whole damaged-0
    wait equal damaged-0
"""
REPEATED = DAMAGED.format(what="stale b1 damaged-0 repeated")
EARLIER = DAMAGED.format(what="stale b1 damaged-0 earlier")
HOLE = DAMAGED.format(what="lose b1 damaged-0 end-of-segment")


def played(lines: str) -> SwarmRun:
    def plot(_: Stage) -> Iterator[str]:
        yield BROKERS
        yield from filter(None, map(str.strip, lines.splitlines()))

    return play(plot, seed=1)


@pytest.mark.parametrize(
    "lines",
    [
        *(PROBED, EXPIRING, COMMITTED_LATE, THROTTLED, THROTTLED_LATE),
        *(REPEATED, EARLIER, HOLE + STARTED_LATER),
    ],
    ids=[
        *("probed", "expiring", "committed-late", "throttled", "throttled-late"),
        *("repeated", "earlier", "lost"),
    ],
)
def test_a_sound_cluster_answers_every_probe(lines: str) -> None:
    run = played(lines)
    assert not run.wrong, run.traceback


TAKEN_OUT = [
    ("a leader learns which partitions are in the transaction", probes.TRANSACTIONS, PROBED),
    ("a fetch session is settled for its own terms only", probes.TRANSACTIONS, PROBED),
    ("a producer that begins fences the one before", probes.TRANSACTIONS, PROBED),
    ("an open transaction is aborted before its id is given on", probes.TRANSACTIONS, PROBED),
    ("a producer of an earlier epoch adds no partition", probes.TRANSACTIONS, PROBED),
    ("a producer of an earlier epoch ends nothing", probes.TRANSACTIONS, PROBED),
    ("a transaction that takes too long is aborted", probes.TRANSACTIONS, PROBED),
    ("a later epoch than all has no end here", probes.EPOCH_END, PROBED),
    ("a log start that has moved is news", probes.QUIET_SESSION, PROBED),
    ("a request that was overtaken is refused", probes.QUIET_SESSION, PROBED),
    ("a partition that is forgotten is not answered", probes.QUIET_SESSION, PROBED),
    ("a member with another epoch is fenced", probes.GROUP, PROBED),
    ("an upgraded group takes a target of its own", probes.UPGRADE, PROBED),
    ("an idle transactional id is kept for its time", probes.EXPIRY, EXPIRING),
    (
        "a coordinator that loads its log forgets the ids that were deleted",
        probes.EXPIRY,
        EXPIRING,
    ),
    ("a producer with a transaction open does not expire", KNOWN, EXPIRING),
    ("a commit that is in the log counts", COMMITS, COMMITTED_LATE),
    ("a group that has moved has no time limits here", RESTS, COMMITTED_LATE),
    ("a member that is written has a session", probes.SILENT_MEMBER, COMMITTED_LATE),
    ("a throttled replica waits while the rate is exceeded", probes.THROTTLE, THROTTLED),
    ("a replica in sync is not throttled", probes.THROTTLE, THROTTLED),
    ("only throttled replicas are counted", probes.THROTTLE, THROTTLED),
    ("a rate is over the time since its oldest sample", probes.THROTTLE, THROTTLED),
]


@pytest.mark.deep
@pytest.mark.parametrize(
    ("mutant", "lines"),
    [
        ("recovery takes no offset twice", REPEATED),
        ("recovery takes no batch of an earlier epoch than the one before it", EARLIER),
        ("segments behind a gap are removed", HOLE),
        ("a log that ends before its start begins anew", HOLE + STARTED_LATER),
    ],
    ids=str,
)
def test_a_log_that_is_believed_as_it_is_breaks_a_rule(
    mutant: str, lines: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(mutant)(monkeypatch)
    assert played(lines).rule.startswith("InvariantViolatedError: ")


@pytest.mark.parametrize(("mutant", "rule", "lines"), one_in(4, TAKEN_OUT), ids=str)
def test_a_probe_finds_a_rule_that_is_taken_out(
    mutant: str, rule: str, lines: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(mutant)(monkeypatch)
    run = played(lines)
    assert run.rule == f"InvariantViolatedError: {rule}", run.wrong
