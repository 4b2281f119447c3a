"""Ports that the kernel gives to nobody by itself.

A server that is down finds such a port free when it starts again, unless a program asks for this
very one. Of the kernel's own, another server may have taken it meanwhile; who still knows the first
server then talks to the second.
"""

from collections.abc import Iterator
from random import SystemRandom

# Linux gives the ports from 32768 on to sockets that ask for any, macOS and Windows those from
# 49152 on.
NEVER_GIVEN = range(15_000, 32_000)


def any_ports() -> Iterator[int]:
    """Yield each of them once, from a random one on; somebody may listen there."""
    first = SystemRandom().choice(NEVER_GIVEN)
    yield from range(first, NEVER_GIVEN.stop)
    yield from range(NEVER_GIVEN.start, first)
