"""Power lost everywhere at once: what may be lost then, and what may not (KIP-966)."""

import pytest

from scenarios.story.runner import run_story
from scenarios.story.script import parse

# S50: everybody has what was acked, and nobody may have synced it.
BLACKOUT = """\
cluster brokers=3 min.insync.replicas=2 log.flush.interval.messages={flush}
topic t replicas=b1,b2,b3
produce t-0 acks=all one
produce t-0 acks=all two
produce t-0 acks=all three
wait equal t-0
power-cut b1 b2 b3
start b1
start b2
run 20s
start b3
wait isr t-0 b1,b2,b3
events leader_elected partition_offline
produce t-0 acks=all four
wait equal t-0
ledger t-0
verify t-0
"""


@pytest.mark.parametrize("seed", range(4))
def test_after_a_blackout_the_last_leader_leads_and_all_replicas_are_equal(seed: int) -> None:
    answer = run_story(parse(BLACKOUT.format(flush=2**63 - 1)), seed=seed).actual.steps[0].answer
    # No replica is eligible: the controller waits for the last leader, whose election counts as one
    # that may have lost what was acked.
    *_, led, offline, elected = [line for line in answer if line.startswith("c: ")]
    assert "partition_offline" in offline
    last = led.partition("leader=")[2].partition(" ")[0]
    assert f"leader={last} " in elected
    assert "cause=last known" in elected
    assert "same in 3 copies" in answer[-1]


@pytest.mark.parametrize("seed", range(4))
def test_records_synced_before_their_ack_survive_a_blackout(seed: int) -> None:
    answer = run_story(parse(BLACKOUT.format(flush=1)), seed=seed).actual.steps[0].answer
    assert "acked and committed  4  one two three four" in answer
