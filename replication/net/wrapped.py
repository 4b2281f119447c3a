"""What listeners around listeners have in common."""

import attrs

from replication.net.seams import Listener


@attrs.define(eq=False)
class WrappedListener:
    """All of `Listener` but `accept`: who makes one says what becomes of a connection."""

    inner: Listener

    @property
    def host(self) -> str:
        return self.inner.host

    @property
    def port(self) -> int:
        return self.inner.port

    def close(self) -> None:
        self.inner.close()
