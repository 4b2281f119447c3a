"""ClientLinks between clients and brokers that are cut: what is sent arrives when they heal.

    links = ClientLinks()
    cut = links.cut(client_id="broker-1-*", broker=2)       nothing from or to such a client at broker 2
    links.heal(cut)                                         what was sent meanwhile arrives, in order

A link is known by the client id in its requests, and by the broker that it leads to. A cut holds
whole requests and responses: a request that the broker had before the cut is handled there, and its
response is held. New connections are accepted, and their first request is held.
"""

from fnmatch import fnmatchcase

import attrs
import trio

from storage.attributes import define, frozen


@frozen(eq=False, kw_only=True)
class CutLink:
    """One cut, until it is healed."""

    client_id: str = "*"
    """A shell pattern."""
    broker: int | None = None
    """The broker that the link leads to; None for each."""
    requests: bool = True
    """Whether requests are held."""
    responses: bool = True
    """Whether responses are held."""

    def holds(self, client_id: str, broker: int, *, is_request: bool) -> bool:
        """Return whether the cut holds a request of such a client to a broker, or a response."""
        return (
            (self.requests if is_request else self.responses)
            and self.broker in (None, broker)
            and fnmatchcase(client_id, self.client_id)
        )


@define(eq=False)
class ClientLinks:
    """The cuts in force."""

    cuts: list[CutLink] = attrs.field(init=False, factory=list)
    _healed: trio.Event = attrs.field(init=False, factory=trio.Event)

    def cut(
        self,
        *,
        client_id: str = "*",
        broker: int | None = None,
        requests: bool = True,
        responses: bool = True,
    ) -> CutLink:
        """Cut the links of clients with such an id to a broker; return the cut, to be healed."""
        made = CutLink(client_id=client_id, broker=broker, requests=requests, responses=responses)
        self.cuts.append(made)
        return made

    def heal(self, cut: CutLink) -> None:
        """Heal a cut; what it holds arrives. Healing it again does nothing."""
        if cut in self.cuts:
            self.cuts.remove(cut)
            self._wake()

    def heal_all(self) -> None:
        """Heal every cut."""
        self.cuts.clear()
        self._wake()

    async def passed(self, client_id: str | None, broker: int, *, is_request: bool) -> None:
        """Wait until no cut holds a request of such a client to a broker, or a response to it."""
        while any(each.holds(client_id or "", broker, is_request=is_request) for each in self.cuts):
            await self._healed.wait()

    def _wake(self) -> None:
        self._healed.set()
        self._healed = trio.Event()
