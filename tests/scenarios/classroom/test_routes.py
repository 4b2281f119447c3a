"""The page of stories over HTTP, with real sockets and real processes."""

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from replication.net.clock import TrioClock
from replication.observe.control.declared import MOST_BYTES
from replication.observe.http import LOOPBACK, http_app, serve_http
from scenarios.classroom.limits import MOST_WAITING
from scenarios.classroom.routes import FILES, LARGEST_SEED, stories_tab
from scenarios.story.script import find_story
from tests.replication.observe.http.http_client import asking

pytestmark = pytest.mark.slow

STORY = "cluster brokers=1\ntopic t replicas=b1\nproduce t-0 acks=all one\nshow t-0\n"
# A process that does what the text says: it shows that of the page, and no simulator runs.
OBEYS = """
import json, os, sys, time
text = json.load(sys.stdin)["text"]
if "sleep" in text: time.sleep(600)
if "die" in text: os.kill(os.getpid(), 9)
if "fail" in text: sys.exit(3)
print("x" * (9 << 20) if "flood" in text else json.dumps({"ran": text}))
"""
SHORT_OF_MEMORY = """
import scenarios.classroom.worker as worker
worker.MOST_MEMORY_BYTES = worker.resident_bytes() + (24 << 20)
worker.main()
"""


@asynccontextmanager
async def served(program: str | None = None, *, run_seconds: float = 300) -> AsyncIterator[str]:
    command = [] if program is None else [(sys.executable, "-c", program)]
    tab = stories_tab(*command, run_seconds=run_seconds)
    async with trio.open_nursery() as nursery:
        address = await nursery.start(serve_http, http_app(tab.routes), LOOPBACK, 0)
        yield address.url
        nursery.cancel_scope.cancel()


async def get(url: str) -> tuple[int, bytes]:
    async with asking(url) as answer:
        return answer.status, await answer.body()


async def post(
    url: str, body: object = None, *, raw: bytes = b"", **headers: str
) -> tuple[int, Any]:
    data = raw or json.dumps(body).encode()
    async with asking(f"{url}/stories/run", method="POST", body=data, headers=headers) as answer:
        text = await answer.body()
        return answer.status, json.loads(text) if text.startswith(b"{") else text.decode()


async def test_the_page_its_files_the_list_and_the_texts_are_served() -> None:
    async with served() as url:
        for path in ("/stories", *FILES):
            status, content = await get(f"{url}{path}")
            assert (status, b"http://" in content.replace(b"http://www.w3.org", b"")) == (
                200,
                False,
            )
        status, content = await get(f"{url}/stories")
        assert b'<a href="stories" aria-current=page>Stories</a>' in content
        status, content = await get(f"{url}/stories/list")
        assert (status, len(json.loads(content)["stories"]) > 90) == (200, True)
        name = "two-logs-of-one-length"
        status, content = await get(f"{url}/stories/text/{name}")
        assert (status, content) == (200, find_story(name).read_bytes())


async def test_a_story_runs_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    async with served() as url:
        status, found = await post(url, {"text": STORY, "seed": 3, "bug": None})
        assert (status, found["seed"], found["wrong"]) == (200, 3, None)
        assert found["commands"][3]["answer"][1][1].startswith("b1  [e0: 0-0]")
        status, found = await post(url, {"text": STORY.replace("show", "shw")})
        assert (status, found["wrong"]["line"]) == (200, 4)
        assert "did you mean show?" in found["wrong"]["message"]
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - in an async test


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"text": "x" * MOST_BYTES}, "body"),
        ({"text": 1}, "text"),
        ({}, "text"),
        ({"text": "", "seed": "1"}, "seed"),
        ({"text": "", "seed": True}, "seed"),
        ({"text": "", "seed": -1}, "seed"),
        ({"text": "", "seed": LARGEST_SEED + 1}, "seed"),
        ({"text": "", "bug": 7}, "bug"),
        ({"text": "", "file": "/etc/passwd"}, "file"),
        (["text"], "body"),
    ],
)
async def test_a_wrong_request_is_refused_in_one_line(body: object, field: str) -> None:
    async with served(OBEYS) as url:
        status, found = await post(url, body)
        assert (status, found["field"]) == (400, field)
        assert found["error"].startswith(f"{field}: ")
        assert (await post(url, raw=b"{"))[0] == 400


async def test_a_name_is_never_a_path() -> None:
    async with served(OBEYS) as url:
        for name in ("nothing", "..%2f..%2fpyproject.toml", "%2fetc%2fpasswd"):
            assert (await get(f"{url}/stories/text/{name}"))[0] == 404


async def test_a_foreign_page_can_neither_run_nor_read() -> None:
    async with served(OBEYS) as url:
        status, found = await post(url, {"text": ""}, origin="http://elsewhere.example")
        assert (status, found) == (403, "a page of another origin may not do that\n")
        status, _ = await post(url, {"text": ""}, host="elsewhere.example")
        assert status == 403
        async with asking(f"{url}/stories/list", headers={"host": "elsewhere.example"}) as answer:
            assert answer.status == 403


@pytest.mark.parametrize(
    ("text", "status", "error"),
    [
        ("die", 500, "the process that ran the story was ended by SIGKILL"),
        ("fail", 500, "the process that ran the story ended with status 3; its error is on stderr"),
        ("flood", 500, "the story was ended: its result has more than 8 MiB"),
    ],
)
async def test_a_process_that_dies_is_one_line(text: str, status: int, error: str) -> None:
    async with served(OBEYS) as url:
        assert await post(url, {"text": text}) == (status, {"error": error})
        assert await post(url, {"text": "next"}) == (200, {"ran": "next"})


async def test_a_process_that_never_ends_is_killed_with_a_line_that_says_so() -> None:
    async with served(OBEYS, run_seconds=0.2) as url:
        error = "the story was ended: it had run for 0.2 s"
        assert await post(url, {"text": "sleep"}) == (504, {"error": error})


async def test_a_run_without_memory_is_one_line() -> None:
    async with served(SHORT_OF_MEMORY) as url:
        status, found = await post(url, {"text": "cluster brokers=200"})
        assert status == 200
        assert found["wrong"]["message"].startswith("the story needs more memory than")


async def test_runs_wait_for_each_other_and_one_too_many_is_refused() -> None:
    answers: list[tuple[int, Any]] = []
    answered = trio.Event()

    async def run(url: str) -> None:
        answers.append(await post(url, {"text": "sleep"}))
        answered.set()

    async with served(OBEYS, run_seconds=5) as url, trio.open_nursery() as nursery:
        for _ in range(1 + MOST_WAITING + 1):
            nursery.start_soon(run, url)
        await answered.wait()
        nursery.cancel_scope.cancel()
    ((status, found),) = answers
    assert (status, found["error"]) == (
        503,
        "4 stories wait already for the one that runs; try again",
    )


async def test_a_run_ends_when_its_browser_leaves() -> None:
    async with served(OBEYS) as url:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(post, url, {"text": "sleep"})
            nursery.start_soon(post, url, {"text": "sleep"})
            await TrioClock().sleep(0.5)  # a real process starts
            nursery.cancel_scope.cancel()
        assert await post(url, {"text": "next"}) == (200, {"ran": "next"}), "nobody runs any more"
