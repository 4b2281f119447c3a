"""Tests of the client are played on the simulator's network, so also on its time."""

import pytest

from scenarios.world.clock import VirtualTime


@pytest.fixture
def autojump_clock() -> VirtualTime:
    """In the place of trio's `MockClock`: pytest-trio runs the test on whatever clock this is."""
    return VirtualTime()
