"""Requests that a page of another origin sends cannot change anything.

A browser lets any page send requests to this machine. It hides the answer from that page, but the
broker would be killed all the same. For a request that changes something, the browser sends the
page's origin, which then must be this server's own: the Host of the request, if that is a name of
this machine or the one that the server listens on. (A foreign name that resolves to this machine is
both the Origin and the Host of its owner's page.)

A server that listens on every address has names that it does not know. It accepts an IP address, a
name without a dot, which cannot be a public name, and its own host name.
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
    """ASGI middleware that refuses changes from a page of another origin."""

    app: ASGIApp
    host: str
    """The host that the server listens on."""

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
                f"{asked_under} may be a foreign name for this machine: use its address,"
                " or serve on that name"
            )
        return ""

    def _is_ours(self, name: str) -> bool:
        if self.host not in _EVERY_ADDRESS:
            return name in {*_THIS_MACHINE, self.host.lower()}
        known = "." not in name or _is_address(name) or name == socket.gethostname().lower()
        return bool(name) and known


def _name_in(host: str) -> str:
    """Return the host without its port; an empty string if it is not valid."""
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
