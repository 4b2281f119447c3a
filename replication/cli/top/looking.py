"""The loop of `understudy top`: look, show, wait, for as long as somebody watches.

Rule 1: a cluster that does not answer is no end of it: what was seen stays on the screen, with
the reason. Only the first look must succeed, or there is nothing to show.
"""

import contextlib
from collections.abc import Iterator

import attrs
import trio
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from replication.cli.connection import Connection
from replication.cli.output import show_line, show_table
from replication.cli.top.view import columns, of_interest, plain_rows, screen, summary
from replication.cli.topics.choosing import INTERNAL, Only, Wanted
from replication.client.admin import Admin
from replication.client.errors import KafkaTimeoutError
from replication.errors import KafkaError
from replication.net.clock import TrioClock
from replication.observe.cluster_state import ClusterState, to_json
from replication.observe.protocol_source import ProtocolSource
from replication.observe.state_reader import StateReader
from replication.visible import visible_line

ANSWER_MS = 1000  # of a broker that may be frozen; the others are shown meanwhile


@attrs.define(eq=False, kw_only=True)
class Top:
    connection: Connection
    wanted: Wanted
    internal: bool
    only: Only
    seconds: float
    once: bool
    as_json: bool
    _last: ClusterState | None = attrs.field(init=False, default=None)

    def run(self) -> None:
        self.connection.run(trio.run, self._run)

    async def _run(self) -> None:
        timeout_ms = self.connection.timeout_ms
        config = self.connection.config(
            default_api_timeout_ms=timeout_ms, request_timeout_ms=min(timeout_ms, 2 * ANSWER_MS)
        )
        async with Admin(**config) as admin:
            source = ProtocolSource(
                admin=admin,
                now_ms=TrioClock().now_ms,
                wanted=self._is_wanted,
                in_detail=self.as_json,
                timeout_ms=ANSWER_MS,
            )
            if not self.wanted.all:
                await self.wanted.found(admin)  # raises NotThereError for an unknown name
            reader = StateReader(source=source)
            with self._screen() as live:
                while True:
                    await self._look(reader, live)
                    if self.once:
                        return
                    await trio.sleep(self.seconds)

    def _is_wanted(self, topic: str) -> bool:
        hidden = topic in INTERNAL and not self.internal and topic not in self.wanted.names
        return self.wanted.matches(topic) and not hidden

    async def _look(self, reader: StateReader, live: Live | None) -> None:
        trouble = ""
        try:
            self._last = of_interest(await reader.read(), self.only)
        except (KafkaError, KafkaTimeoutError) as error:
            if self._last is None:
                raise
            trouble = f"no news: {error}"
        self._show(self._last, trouble, live)

    def _show(self, state: ClusterState, trouble: str, live: Live | None) -> None:
        if self.as_json:
            show_line(to_json(state, indent=2) if self.once else to_json(state))
        elif live is not None:
            drawn = screen(state, height=live.console.height - bool(trouble))
            parts = [Text(visible_line(trouble), style="bold red"), drawn] if trouble else [drawn]
            live.update(Group(*parts), refresh=True)
        else:
            show_line(trouble or summary(state))
            show_table(columns(), plain_rows(state))

    @contextlib.contextmanager
    def _screen(self) -> Iterator[Live | None]:
        console = Console()
        if self.once or self.as_json or not console.is_terminal:
            yield None
            return
        with Live(console=console, auto_refresh=False, screen=True) as live:
            yield live
