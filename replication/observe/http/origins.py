"""A page of another origin changes nothing here.

A browser lets any page send requests to this machine; it does not show that page the answer,
but the broker would be dead all the same. With what changes something a browser names the
page's origin, and then that has to be the one that this very server has: the host that it was
asked under, which is this machine's own name for itself, or the one that it was told to
listen on. (A name of somebody else's that leads here is his page's origin, and his host.)
"""

from urllib.parse import urlsplit

import attrs
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_CHANGES_NOTHING = {"GET", "HEAD", "OPTIONS"}
_THIS_MACHINE = {"127.0.0.1", "::1", "localhost"}
_EVERY_ADDRESS = {"", "0.0.0.0", "::"}  # noqa: S104 - compared, not bound


@attrs.define(eq=False)
class SameOrigin:
    """ASGI middleware."""

    app: ASGIApp
    host: str
    """What is listened on."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._of_another_page(scope):
            refusal = PlainTextResponse("a page of another origin may not do that\n", 403)
            await refusal(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _of_another_page(self, scope: Scope) -> bool:
        headers = Headers(scope=scope)
        if scope["method"] in _CHANGES_NOTHING or (origin := headers.get("origin")) is None:
            return False
        asked_under = headers.get("host", "")
        return origin != f"http://{asked_under}" or not self._is_ours(asked_under)

    def _is_ours(self, asked_under: str) -> bool:
        if self.host in _EVERY_ADDRESS:
            return True  # whoever opens it to a network has names for it that we do not know
        return urlsplit(f"//{asked_under}").hostname in {*_THIS_MACHINE, self.host.lower()}
