"""Waiting for brokers, which learn later what their controller has done, and for logged words."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tests.interop.card.features import SECONDS

T = TypeVar("T")


def until(ask: Callable[[], T], holds: Callable[[T], bool]) -> T:
    deadline = time.monotonic() + SECONDS
    while not holds(answer := ask()):
        assert time.monotonic() < deadline, f"still {answer!r} after {SECONDS:.0f} s"
        time.sleep(0.1)  # a real cluster: asked again, with a bound
    return answer


def now_and_then(seconds: float, *, every: float = 0.3) -> Iterator[int]:
    """0, 1, 2 and so on, one in a while, until `seconds` are over."""
    deadline = time.monotonic() + seconds
    number = 0
    while time.monotonic() < deadline:
        yield number
        number += 1
        time.sleep(every)  # what is shown is that a client can stay for so long


@contextmanager
def heard(logger: str) -> Iterator[list[str]]:
    """Collect what a client logs meanwhile."""
    said: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    listening = Listening()
    logging.getLogger(logger).addHandler(listening)
    try:
        yield said
    finally:
        logging.getLogger(logger).removeHandler(listening)
