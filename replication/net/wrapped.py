"""The common part of listeners around another listener."""

import attrs

from replication.net.seams import Listener


@attrs.define(eq=False)
class WrappedListener:
    """A `Listener` without `accept`, which subclasses add."""

    inner: Listener

    @property
    def host(self) -> str:
        return self.inner.host

    @property
    def port(self) -> int:
        return self.inner.port

    def close(self) -> None:
        self.inner.close()
