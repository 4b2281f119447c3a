"""A page of another origin changes nothing here.

A browser lets any page send requests to this machine; it does not show that page the answer,
but the broker would be dead all the same. With what changes something a browser names the
page's origin, and then that has to be the one that this very server has: the host that it was
asked under, which is this machine's own name for itself, or the one that it was told to
listen on. (A name of somebody else's that leads here is his page's origin, and his host.)

Who listens on every address has names that we do not know. An address is nobody's name, and one
without a dot is in no public tree of names; another one is taken only if this machine has it.
"""

import socket
from ipaddress import ip_address
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
        why_not = self._why_not(scope) if scope["type"] == "http" else ""
        if why_not:
            await PlainTextResponse(f"{why_not}\n", 403)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _why_not(self, scope: Scope) -> str:
        headers = Headers(scope=scope)
        if scope["method"] in _CHANGES_NOTHING or (origin := headers.get("origin")) is None:
            return ""
        asked_under = headers.get("host", "")
        if origin != f"http://{asked_under}":
            return "a page of another origin may not do that"
        if not self._is_ours(_name_in(asked_under)):
            return (
                f"{asked_under} may be anybody's name for this machine: ask under its address,"
                " or serve on that name"
            )
        return ""

    def _is_ours(self, name: str) -> bool:
        if self.host not in _EVERY_ADDRESS:
            return name in {*_THIS_MACHINE, self.host.lower()}
        known = "." not in name or _is_address(name) or name == socket.gethostname().lower()
        return bool(name) and known


def _name_in(host: str) -> str:
    """Without the port; nothing where it is no host at all."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
