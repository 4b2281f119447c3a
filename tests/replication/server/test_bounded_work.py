"""One request holds up nobody else, and takes memory by its size, whatever it asks for.

Counted, not timed: the steps that the broker's process takes between two looks at its sockets,
and the most memory that it takes at once. `hostile.py` has the requests.
"""

import pytest
import trio

from replication.server.limits import LIMITED
from tests.deep import one_in
from tests.replication.server.attacked import (
    MOST_STEPS,
    Cost,
    Hostile,
    attacked,
    counted,
    most_allocated,
    weighed,
)
from tests.replication.server.filled import FILLED, filled
from tests.replication.server.hostile import ACCEPTED, HOSTILE
from tests.replication.server.long_lists import long_lists


@pytest.mark.parametrize("hostile", one_in(2, HOSTILE.values()), ids=HOSTILE)
async def test_a_request_leaves_its_neighbour_room(hostile: Hostile) -> None:
    frame = hostile.frame(hostile.tested)
    async with attacked(sender=hostile.sender) as stage:
        await stage.prepare(hostile, hostile.tested)
        weighed_cost = await stage.send(frame, weighed())  # first: it also compiles the codec
        cost = await stage.send(frame, counted())
    assert cost.neighbours_answers
    assert cost.steps <= MOST_STEPS
    assert weighed_cost.allocated <= most_allocated(cost.frame_bytes, cost.answer_bytes)


@pytest.mark.deep
@pytest.mark.parametrize("hostile", ACCEPTED.values(), ids=ACCEPTED)
async def test_a_change_that_is_granted_leaves_the_neighbour_room(hostile: Hostile) -> None:
    async with attacked(sender=hostile.sender) as stage:
        await stage.prepare(hostile, hostile.tested)
        cost = await stage.send(hostile.frame(hostile.tested), counted())
    assert cost.steps <= MOST_STEPS


LISTS = dict(long_lists())
ITEMS = 3_000
MANY = 1_000


@pytest.mark.deep
@pytest.mark.parametrize("place", range(6))
async def test_a_long_list_leaves_its_neighbour_room(place: int) -> None:
    """Done in one go, most take thirty lines an item.

    What the controller is asked to change may take sixteen: there are 10,000 items at most. The rest
    may take eleven: the longest step is ten, and other tasks run beside it.
    """
    steps: dict[str, int] = {}
    allocated: dict[str, float] = {}
    async with attacked() as stage:
        for name in sorted(LISTS)[place::6]:
            frame = LISTS[name].frame(ITEMS)
            cost = await stage.send(frame, weighed())
            allocated[name] = cost.allocated / most_allocated(len(frame), cost.answer_bytes)
            steps[name] = (await stage.send(frame, counted())).steps
    changes = {key.name for key in LIMITED}
    most = {name: (16 if name.split()[0] in changes else 11) * ITEMS for name in steps}
    assert {name: each for name, each in steps.items() if each > most[name]} == {}
    assert {name: each for name, each in allocated.items() if each > 1} == {}


@pytest.mark.deep
async def test_requests_about_everything_leave_their_neighbour_room() -> None:
    """A broker with 1,000 partitions; done in one go, much takes more than a hundred lines for each."""
    most = 100 * MANY
    costs: dict[str, Cost] = {}
    async with filled(partitions=MANY, others=MANY) as stage:
        for name, request in FILLED.items():
            costs[name] = await request.sent_to(stage, counted())
    assert {name: each.steps for name, each in costs.items() if each.steps > most} == {}
    assert [name for name, each in costs.items() if not each.answer_bytes] == []


async def test_work_without_a_checkpoint_is_seen() -> None:
    """The counting itself: a request that did this would fail."""
    with counted() as measured:
        await trio.lowlevel.checkpoint()
        assert sum(number % 2 for number in range(MOST_STEPS))
        await trio.lowlevel.checkpoint()
    assert measured["steps"] > MOST_STEPS


def test_memory_that_is_taken_and_let_go_is_seen() -> None:
    with weighed() as measured:
        assert bytes(2 << 20)
    assert measured["allocated"] > most_allocated(0)
