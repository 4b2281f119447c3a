"""The HTTP server over real sockets: it answers, streams, and is gone when it is cancelled."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import h11
import pytest
import trio
import trio.testing
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from replication.errors import OnBug, raise_bug
from replication.net.raising import raising_only_one
from replication.net.secure import ListenError
from replication.observe.http import (
    KEEP_ALIVE_SECONDS,
    LOOPBACK,
    EventStream,
    HttpAddress,
    SendEvent,
    Site,
    http_app,
    serve_http,
    serve_sites,
)
from replication.observe.http.event_stream import Feed
from tests.replication.observe.http.http_client import asking, get

FOR_EVER = 1000.0  # a test that waits so long hangs
LINE = 1 << 20


async def hello(request: Request) -> Response:
    return PlainTextResponse(f"hello {request.query_params.get('who', 'you')}")


async def broken(_: Request) -> Response:
    raise ZeroDivisionError("a bug")


HELLO = Route("/hello", hello)


@asynccontextmanager
async def serving(
    *routes: BaseRoute, grace_seconds: float = FOR_EVER, on_bug: OnBug = raise_bug
) -> AsyncIterator[str]:
    """Yield a server's URL; it is cancelled at the end of the block, and must then end."""
    async with trio.open_nursery() as nursery:
        serve = partial(serve_http, grace_seconds=grace_seconds, on_bug=on_bug)
        address: HttpAddress = await nursery.start(serve, http_app(routes), LOOPBACK, 0)
        yield address.url
        nursery.cancel_scope.cancel()


def stream_of(feed: Feed, *, keep_alive_seconds: float = KEEP_ALIVE_SECONDS) -> Route:
    """Return the route `/events`, which serves `feed`."""

    async def endpoint(_: Request) -> Response:
        return EventStream(feed, keep_alive_seconds=keep_alive_seconds)

    return Route("/events", endpoint)


async def silent(_: SendEvent) -> None:
    await trio.sleep_forever()


async def test_an_answer_over_a_real_socket_on_any_port() -> None:
    async with serving(HELLO) as url:
        assert await get(f"{url}/hello?who=b1") == "hello b1"
        async with asking(f"{url}/nowhere") as answer:
            assert answer.status == 404


async def test_nothing_is_logged(capfd: pytest.CaptureFixture[str]) -> None:
    async with serving(HELLO) as url:
        await get(f"{url}/hello")
    assert capfd.readouterr() == ("", "")


async def test_a_cancelled_server_no_longer_listens() -> None:
    async with serving(HELLO) as url:
        await get(f"{url}/hello")
    with pytest.raises(OSError, match="all attempts to connect"):
        await get(f"{url}/hello")


async def test_an_idle_connection_does_not_keep_the_server() -> None:
    async with serving(HELLO) as url:
        asked = asking(f"{url}/hello")
        answer = await asked.__aenter__()
        await answer.body()  # and is kept alive
    assert await answer.stream.receive_some() == b""
    await asked.__aexit__(None, None, None)


async def test_a_busy_port_is_one_clear_line() -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ListenError) as caught:
            await serve_http(http_app([HELLO]), LOOPBACK, port)
    assert str(caught.value) == f"cannot serve HTTP on {LOOPBACK}:{port}: Address already in use"


async def test_a_bug_in_an_endpoint_is_answered_with_500_and_reported() -> None:
    printed: list[BaseException] = []
    async with serving(Route("/broken", broken), HELLO, on_bug=printed.append) as url:
        async with asking(f"{url}/broken") as answer:
            assert answer.status == 500
        assert await get(f"{url}/hello") == "hello you"
    assert [type(each) for each in printed] == [ZeroDivisionError]
    assert printed[0].__notes__ == ["answering GET /broken"]


async def test_a_bug_ends_the_server_if_on_bug_raises() -> None:
    async def break_it() -> None:
        async with serving(Route("/broken", broken)) as url, asking(f"{url}/broken"):
            await trio.sleep_forever()

    with pytest.raises(ZeroDivisionError), raising_only_one():
        await break_it()


async def test_an_answer_under_way_is_finished() -> None:
    begun, go_on = trio.Event(), trio.Event()

    async def slow(_: Request) -> Response:
        begun.set()
        await go_on.wait()
        return PlainTextResponse("finished")

    answered: list[str] = []

    async def ask(url: str) -> None:
        answered.append(await get(url))

    async with trio.open_nursery() as client, serving(Route("/slow", slow)) as url:
        client.start_soon(ask, f"{url}/slow")
        await begun.wait()
        trio.lowlevel.current_trio_token().run_sync_soon(go_on.set)
    assert answered == ["finished"]


async def test_an_answer_that_takes_longer_than_the_grace_period_is_cut_off() -> None:
    begun, ended = trio.Event(), trio.Event()

    async def endless(_: Request) -> Response:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()
        raise AssertionError("never gets here")

    async def ask(url: str) -> None:
        with pytest.raises(h11.RemoteProtocolError):
            await get(url)

    route = Route("/endless", endless)
    async with trio.open_nursery() as client, serving(route, grace_seconds=0.01) as url:
        client.start_soon(ask, f"{url}/endless")
        await begun.wait()
    assert ended.is_set()


async def test_a_client_that_does_not_read_does_not_keep_the_server() -> None:
    sent: list[int] = []
    asked = asking("")

    async def flood(send: SendEvent) -> None:
        while True:
            await send("x" * LINE)
            sent.append(LINE)

    async with serving(stream_of(flood), grace_seconds=0.01) as url:
        asked = asking(f"{url}/events")
        await asked.__aenter__()
        before = -1
        while before < sum(sent):  # until the sockets hold all they can
            before = sum(sent)
            await trio.testing.wait_all_tasks_blocked(0.05)
    await asked.__aexit__(None, None, None)


# The protocol.


async def conversation(url: str, sent: bytes) -> bytes:
    """Return all that the server answers to `sent` until it closes the connection."""
    port = int(url.rpartition(":")[2])
    received = b""
    async with await trio.open_tcp_stream(LOOPBACK, port) as stream:
        await stream.send_all(sent)
        while part := await stream.receive_some():
            received += part
    return received


async def test_requests_may_follow_each_other_without_waiting() -> None:
    async with serving(HELLO) as url:
        first = b"GET /hello?who=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        last = b"GET /hello?who=2 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        found = await conversation(url, first + last)
    assert [found.count(b"hello 1"), found.count(b"hello 2"), found.count(b"200")] == [1, 1, 2]


async def test_bytes_that_are_not_http_are_refused() -> None:
    async with serving(HELLO) as url:
        found = await conversation(url, b"\x00\x00\x00\x10 a Kafka request\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 400 ")


async def test_the_answer_to_a_head_request_has_no_body() -> None:
    async with serving(HELLO) as url, asking(f"{url}/hello", method="HEAD") as answer:
        assert (answer.status, await answer.body()) == (200, b"")


@pytest.mark.parametrize("size", [10, 1 << 19])
async def test_a_body_that_nothing_reads_does_not_disturb_the_next_request(size: int) -> None:
    async def refuse(_: Request) -> Response:
        return PlainTextResponse("refused", 403)

    post = b"POST /refuse HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % size
    get_it = b"GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    async with serving(Route("/refuse", refuse, methods=["POST"]), HELLO) as url:
        found = await conversation(url, post + b"x" * size + get_it)
    assert b"refused" in found
    assert b"hello you" in found


async def test_a_client_that_expects_100_continue_may_send_its_body() -> None:
    async def length(request: Request) -> Response:
        return PlainTextResponse(str(len(await request.body())))

    head = (
        b"POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n"
        b"Expect: 100-continue\r\nConnection: close\r\n\r\n"
    )
    async with serving(Route("/length", length, methods=["POST"])) as url:
        port = int(url.rpartition(":")[2])
        async with await trio.open_tcp_stream(LOOPBACK, port) as stream:
            await stream.send_all(head)
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 100 ")
            await stream.send_all(b"abc")
            answer = b""
            while part := await stream.receive_some():
                answer += part
    assert answer.endswith(b"\r\n\r\n3")


# Streams.


async def test_events_as_a_browser_reads_them() -> None:
    async def feed(send: SendEvent) -> None:
        await send("one")
        await send("two\r\nlines")

    async with serving(stream_of(feed)) as url, asking(f"{url}/events") as answer:
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["cache-control"] == "no-store"
        assert (await answer.body()).decode() == ("data: one\n\ndata: two\ndata: lines\n\n")


@pytest.mark.parametrize("leaving", ["client", "server"])
async def test_a_feed_is_cancelled_when_the_client_or_the_server_leaves(leaving: str) -> None:
    ended = trio.Event()

    async def feed(send: SendEvent) -> None:
        try:
            await send("here")
            await trio.sleep_forever()
        finally:
            ended.set()

    async with serving(stream_of(feed)) as url:
        asked = asking(f"{url}/events")
        answer = await asked.__aenter__()
        assert await answer.until("here\n\n") == "data: here\n\n"
        if leaving == "client":
            await asked.__aexit__(None, None, None)
            await ended.wait()
    assert ended.is_set()
    if leaving == "server":
        assert await answer.body() == b"", "a whole answer, not one that was cut off"
        await asked.__aexit__(None, None, None)


async def test_a_silent_stream_is_kept_alive() -> None:
    stream = stream_of(silent, keep_alive_seconds=0.001)
    async with serving(stream) as url, asking(f"{url}/events") as answer:
        await answer.until(":\n\n:\n\n")


async def test_asking_for_the_head_of_a_stream_does_not_wait_for_its_end() -> None:
    stream = stream_of(silent)
    async with serving(stream) as url, asking(f"{url}/events", method="HEAD") as answer:
        assert await answer.body() == b""


async def test_a_bug_in_a_feed_is_reported_unwrapped() -> None:
    printed: list[BaseException] = []

    async def feed(_: SendEvent) -> None:
        raise ZeroDivisionError

    stream = stream_of(feed)
    async with serving(stream, on_bug=printed.append) as url, asking(f"{url}/events") as answer:
        with pytest.raises(h11.RemoteProtocolError):
            await answer.body()
    assert [type(each) for each in printed] == [ZeroDivisionError]


# Origins.


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://{host}"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        # A name of theirs that leads to this machine: the same origin, but not our name.
        ({"origin": "http://evil.example", "host": "evil.example"}, 403),
        ({"origin": "http://[", "host": "["}, 403),
    ],
)
async def test_a_page_of_another_origin_changes_nothing(
    headers: dict[str, str], status: int
) -> None:
    killed: list[str] = []

    async def kill(_: Request) -> Response:
        killed.append("b1")
        return PlainTextResponse("killed")

    async with serving(Route("/kill", kill, methods=["POST"]), HELLO) as url:
        host = url.removeprefix("http://")
        given = {name: value.replace("{host}", host) for name, value in headers.items()}
        async with asking(f"{url}/kill", method="POST", headers=given) as answer:
            assert answer.status == status
        assert killed == (["b1"] if status == 200 else [])
        async with asking(f"{url}/hello", headers=given) as answer:
            is_foreign = given.get("host", host) != host
            assert answer.status == (403 if is_foreign else 200), "only its owner's page asks so"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8080", 200),
        ("192.0.2.7:8080", 200),
        ("[2001:db8::7]:8080", 200),
        ("localhost:8080", 200),
        ("understudy:8080", 200),  # of a container
        (f"{socket.gethostname()}:8080", 200),
        ("evil.example:8080", 403),
        ("192.0.2.7.evil.example", 403),
    ],
)
async def test_a_foreign_name_for_this_machine_reads_and_changes_nothing(
    host: str, status: int
) -> None:
    async def kill(_: Request) -> Response:
        return PlainTextResponse("killed")

    scraped = Route("/metrics", hello)
    app = http_app([Route("/kill", kill, methods=["POST"]), HELLO, scraped], host="0.0.0.0")
    given = {"origin": f"http://{host}", "host": host}
    async with trio.open_nursery() as nursery:
        address: HttpAddress = await nursery.start(serve_http, app, LOOPBACK, 0)
        url = f"{address.url}/kill"
        async with asking(url, method="POST", headers=given) as answer:
            assert answer.status == status
            assert (await answer.body() == b"killed") is (status == 200)
        async with asking(f"{address.url}/hello", headers={"host": host}) as answer:
            assert answer.status == status
        async with asking(f"{address.url}/metrics", headers={"host": host}) as answer:
            assert answer.status == 200, "a scraper may use any name"
        nursery.cancel_scope.cancel()


# Ports.


async def test_sites_share_a_port_or_have_their_own() -> None:
    metrics = Site(purpose="metrics", port=0, path="/hello", routes=[HELLO])
    page = Site(purpose="page", port=0, routes=[Route("/", hello)])
    with socket.socket() as found:
        found.bind((LOOPBACK, 0))
        port = found.getsockname()[1]
    control = Site(purpose="control", port=port, path="/hello", routes=[HELLO])
    async with trio.open_nursery() as nursery:
        urls = await serve_sites([metrics, page, control], nursery=nursery)
        assert urls["metrics"] == urls["page"] + "hello"
        assert urls["control"] == f"http://{LOOPBACK}:{port}/hello"
        assert [await get(url) for url in urls.values()] == ["hello you"] * 3
        nursery.cancel_scope.cancel()


def test_an_address_that_is_every_address_is_reached_on_this_machine() -> None:
    assert HttpAddress("0.0.0.0", 80).url == "http://127.0.0.1:80"
    assert HttpAddress("::1", 80).url == "http://[::1]:80"
    assert HttpAddress("b1.example", 80).url == "http://b1.example:80"
