"""Three brokers on empty directories, from their start to the first acknowledged write, with one
controller and with three.

In it: the processes, their registration, a topic with three replicas and a record that all three
have. Formatting directories, which Apache Kafka wants done before, is not.
"""

import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from tests.bench.kafka.asking import addresses, create_topic, write
from tests.bench.kafka.comparison import Comparison, Sizes, after_the_first, in_turn
from tests.bench.kafka.sides import BROKERS, Side

TOPIC = "first"


def run(sides: Mapping[str, Side], sizes: Sizes) -> Iterator[Comparison]:
    for controllers, name in ((1, ""), (3, ", three controllers")):
        taken = in_turn(
            sides, partial(start, controllers=controllers), rounds=1 + sizes.start_up_rounds
        )
        yield Comparison(
            name=f"start-up to the first acked write{name}",
            unit="s",
            rounds=after_the_first(taken),
        )


def start(side: Side, *, controllers: int) -> float:
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as scratch:
        starting = side.start(Path(scratch), controllers)
        began = time.perf_counter()
        with starting as bootstrap_servers:
            brokers = addresses(bootstrap_servers)
            create_topic(brokers[0], TOPIC, [list(BROKERS)])
            write(brokers, TOPIC)
            return time.perf_counter() - began
