"""Asked again until it holds: brokers hear later of what their controller has done."""

import time
from collections.abc import Callable
from typing import TypeVar

from tests.interop.card.features import SECONDS

T = TypeVar("T")


def until(ask: Callable[[], T], holds: Callable[[T], bool]) -> T:
    deadline = time.monotonic() + SECONDS
    while not holds(answer := ask()):
        assert time.monotonic() < deadline, f"still {answer!r} after {SECONDS:.0f} s"
        time.sleep(0.1)  # a real cluster: asked again, with a bound
    return answer
