"""The same checks for longer: `make fuzz`, with `ARGS="--seconds 600 --seed 7"`.

Every round gives each check `EXAMPLES` new cases from a seed of its own, and prints it; a failure
ends the run with the smallest case that Hypothesis finds, and exit code 1.
"""

import argparse
import sys
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from hypothesis import HealthCheck, given, seed, settings, strategies as st

from tests.storage.fuzz.bounds import bounded
from tests.storage.fuzz.openings import OPENINGS
from tests.storage.fuzz.readers import READERS

EXAMPLES = 500
CHECKS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], None]]] = {**READERS, **OPENINGS}


def main() -> int:
    arguments = _arguments()
    names = [name for name in CHECKS if name in arguments.only or not arguments.only]
    ends, done = time.monotonic() + arguments.seconds, 0
    for number in count(arguments.seed):
        for name in names:
            if time.monotonic() >= ends:
                print(f"{done} cases, seeds {arguments.seed} to {number}: nothing found")
                return 0
            try:
                _round(name, number)
            except Exception:
                print(f"{name}, seed {number}: make fuzz ARGS='--seed {number} --only {name}'")
                raise
            done += EXAMPLES
        print(f"seed {number}: {done} cases")
    raise AssertionError("seeds do not end")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[], choices=list(CHECKS))
    return parser.parse_args()


def _round(name: str, number: int) -> None:
    cases, check = CHECKS[name]

    @seed(number)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases)
    def once(case: Any) -> None:
        with bounded(len(case.data)):
            check(case)

    once()


if __name__ == "__main__":
    sys.exit(main())
