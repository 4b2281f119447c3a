"""How much of each is done, in the whole measurement and in one that fits into a pause."""

import attrs

GIB = 1024**3


@attrs.frozen(kw_only=True)
class Sizes:
    warm_up_seconds: float = 30
    rounds: int = 5
    start_up_rounds: int = 3
    failover_rounds: int = 5
    catch_up_bytes: int = 4 * GIB
    mirrored_bytes: int = 2 * GIB
    latency_seconds: float = 10
    produced_bytes: int = 256 * 1024**2
    idle_seconds: float = 30
    idle_partitions: int = 1000


QUICK = Sizes(
    warm_up_seconds=15,
    rounds=3,
    start_up_rounds=2,
    failover_rounds=3,
    catch_up_bytes=GIB,
    mirrored_bytes=GIB,
    latency_seconds=5,
    produced_bytes=64 * 1024**2,
    idle_seconds=15,
)
