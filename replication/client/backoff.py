"""How long to wait before the next attempt (ExponentialBackoff, KIP-580).

    failures      1       2       3      ...     n
    wait          first   2x      4x             never over `most`; each +-20% by chance

Chance is an argument: a thousand clients that lost one broker must not come back together.
"""

import random

import attrs

MULTIPLIER = 2
JITTER = 0.2


@attrs.frozen(kw_only=True)
class ExponentialBackoff:
    first_ms: int
    most_ms: int

    def wait_ms(self, failures: int, chance: random.Random) -> float:
        """After so many failures in a row; nothing after none."""
        if failures <= 0:
            return 0
        # Beyond 2^40 any first wait is over any limit, and a float has an end.
        grown = self.first_ms * float(MULTIPLIER ** min(failures - 1, 40))
        jittered = grown * chance.uniform(1 - JITTER, 1 + JITTER)
        return min(jittered, max(self.most_ms, self.first_ms))
