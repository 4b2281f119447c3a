"""The markers that no run has reached yet choose among the seeds whose plans are promising."""

from itertools import islice

from scenarios.swarm.faults import FAULTS
from scenarios.swarm.guide import BATCH, NEEDED, Guide
from scenarios.swarm.markers import MARKERS
from scenarios.swarm.settings import KINDS

LIES = "a disk that lied lost its power"


def batches_of(guide: Guide, reached: tuple[str, ...] = ()) -> list[list[int]]:
    batches = []
    for batch in guide.batches():
        batches.append(batch)
        guide.heard(reached)
    return batches


def test_without_markers_the_seeds_go_in_order() -> None:
    assert batches_of(Guide(5, 70, set())) == [list(range(5, 75))]


def test_what_is_needed_is_in_the_table_of_faults_or_in_a_plan() -> None:
    faults = {fault.name for fault in FAULTS}
    others = {"the controller fails", "compacted", "racks"}
    for marker, needed in NEEDED.items():
        assert marker in MARKERS
        assert {each for each in needed if "=" not in each} <= faults | others | set(KINDS)


def test_half_of_a_batch_is_in_order_and_the_rest_has_what_is_needed() -> None:
    batch = next(Guide(1, 50, {LIES}).batches())
    assert batch[: BATCH // 2] == list(range(1, BATCH // 2 + 1))
    assert len(set(batch)) == BATCH
    assert batch[BATCH // 2 :] == sorted(batch[BATCH // 2 :]), "the first that have it"


def test_the_same_options_choose_the_same_seeds_and_none_twice() -> None:
    first, second = (batches_of(Guide(1, 95, {LIES, MARKERS[0]})) for _ in range(2))
    assert first == second
    seeds = [seed for batch in first for seed in batch]
    assert len(seeds) == len(set(seeds)) == 95


def test_seeds_go_on_in_order_once_every_marker_was_reached() -> None:
    first, *rest = batches_of(Guide(1, 60, {LIES}), reached=(LIES,))
    assert len(first) == BATCH
    [after] = rest
    assert after == list(islice((seed for seed in range(1, 1000) if seed not in first), 40))
