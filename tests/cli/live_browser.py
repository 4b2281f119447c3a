"""A browser that stays: pages that go on, buttons that are pressed, media that change.

Chromium is spoken to over a pipe, in its DevTools protocol: a JSON object and a zero byte, each
way. One browser serves many checks, for its start takes longer than all of them.
"""

import base64
import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from tests.browser import CHROMIUM, QUIETLY

PATIENCE_SECONDS = 60.0
# Where Chromium reads and writes. They are moved away first, for one may be where the other goes.
_AT_3_AND_4 = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


@attrs.define
class LiveBrowser:
    """A running browser; `requests` has what its page has asked for."""

    _writes_to: int
    _reads_from: int
    _session: str = ""
    _last_id: int = 0
    _received: bytes = b""
    requests: list[str] = attrs.field(factory=list)
    """The URL of everything that was fetched."""
    complaints: list[str] = attrs.field(factory=list)
    """The errors in the browser's console, and what the page's policy forbade."""

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Return Chromium's answer; events that come meanwhile are kept."""
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writes_to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last_id:
                assert "error" not in answer, (method, answer)
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def attach(self) -> None:
        """Open a page, and talk to it."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def open(self, url: str, *, width: int, height: int = 900, dark: bool = False) -> None:
        self.show_as(width=width, height=height, dark=dark)
        self.call("Page.navigate", url=url)

    def show_as(self, *, width: int, height: int = 900, dark: bool) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, still])

    def ask(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, (expression, answer["exceptionDetails"])
        return answer["result"].get("value")

    def until(self, expression: str, *, seconds: float = PATIENCE_SECONDS) -> Any:
        """Return the value of the expression once it is true."""
        deadline = time.monotonic() + seconds
        while not (value := self.ask(f"Boolean(document.body) && ({expression})")):
            page = self.ask("document.body?.innerText")
            assert time.monotonic() < deadline, f"never: {expression}\n{page}"
            time.sleep(0.05)  # a real browser draws: looked at again, with a bound
        return value

    def press(self, key: str, *, code: str | None = None) -> None:
        """Press a key of the keyboard."""
        text = {"Enter": "\r", " ": " "}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=code or key,
                windowsVirtualKeyCode={"Tab": 9, "Enter": 13, " ": 32}.get(key, 0),
                **({"text": text} if text and kind == "keyDown" else {}),
            )

    def picture(self, file: Path, *, whole: bool = True) -> None:
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(answer["data"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._reads_from], [], [], PATIENCE_SECONDS)
            assert ready, "the browser says nothing any more"
            received = os.read(self._reads_from, 1 << 20)
            assert received, "the browser has gone"
            self._received += received
        first, _, self._received = self._received.partition(b"\0")
        answer: dict[str, Any] = json.loads(first)
        return answer

    def _note(self, event: Mapping[str, Any]) -> None:
        parameters = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(parameters["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(parameters["exceptionDetails"]))
            case _:
                pass


@contextlib.contextmanager
def live_browser(profile: Path) -> Iterator[LiveBrowser]:
    assert CHROMIUM is not None, "looked for before"
    there, to = os.pipe()
    back, there_back = os.pipe()
    command = [
        sys.executable,
        "-c",
        _AT_3_AND_4,
        str(there),
        str(there_back),
        CHROMIUM,
        *QUIETLY,
        "--hide-scrollbars",
        f"--user-data-dir={profile / 'profile'}",
        "--remote-debugging-pipe",
    ]
    with subprocess.Popen(
        command, pass_fds=[there, there_back], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        os.close(there)
        os.close(there_back)
        try:
            browser = LiveBrowser(to, back)
            browser.attach()
            yield browser
        finally:
            process.kill()
            os.close(to)
            os.close(back)
