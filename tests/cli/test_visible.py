r"""Foreign names and records are shown by commands, and have no effect on a terminal.

A group, its member and records that would clear a screen, change a title, or turn text around.
"""

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
import structlog
import trio
from click.shell_completion import CompletionItem
from hypothesis import given, strategies as st

from replication.cli.completion import _beginning
from replication.cli.consume_formats import (
    Deserialisers,
    as_json,
    by_pattern,
    by_properties,
    for_a_terminal,
)
from replication.cli.output import CommandError, json_line, json_text
from replication.client import Consumer
from replication.client.consumer.hooks import warn
from replication.client.consumer.records import ConsumerRecord
from replication.events import ConnectionRefused
from replication.observe.logging import log_sink
from replication.testing import ThreadedCluster
from replication.visible import visible, visible_line
from storage.batch.record_batch import TimestampType
from storage.batch.records import Record, encode_batch
from tests.cli.commands import Command

EVIL = "\x1b[2J\x1b]0;title\x07\r\x9b31m\u202e\x7f"
SEEN = r"\u001b[2J\u001b]0;title\u0007\u000d\u009b31m\u202e\u007f"
UNSAFE = set("\x00\x07\x08\x0b\x0c\r\x1b\x7f\x80\x9b\u061c\u200e\u2028\u202e\u2066\ud800")
texts = st.text(st.characters(codec=None) | st.sampled_from(sorted(UNSAFE)))


@given(texts)
def test_nothing_unsafe_is_left_and_nothing_else_is_changed(text: str) -> None:
    shown = visible(text)
    assert UNSAFE.isdisjoint(shown)
    assert visible(shown) == shown
    assert visible_line(text) == shown.replace("\n", r"\u000a").replace("\t", r"\u0009")
    if shown.isprintable() and "\\u" not in shown:
        assert shown == text


@given(st.dictionaries(texts, texts | st.lists(texts)))
def test_json_escapes_control_characters_too(found: dict[str, object]) -> None:
    for text in (json_text(found), json_line(found)):
        assert json.loads(visible(text)) == found
        assert UNSAFE.isdisjoint(visible(text))


def test_tables_and_remarks_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    CommandError(f"no group {EVIL}").show()
    assert capsys.readouterr().err == f"understudy: no group {SEEN}\n"


def test_a_completion_offers_no_name_with_control_characters() -> None:
    offered: list[CompletionItem] = _beginning(["group", f"group{EVIL}"], "gr")
    assert [each.value for each in offered] == ["group"]


def test_log_lines_are_shown() -> None:
    written = io.StringIO()
    logger = structlog.wrap_logger(structlog.PrintLogger(written))
    log_sink(logger)(ConnectionRefused(peer="h:1", cause=EVIL))
    assert SEEN in written.getvalue()
    with structlog.testing.capture_logs() as logged:
        structlog.configure()
        try:
            warn("met", topic=EVIL, count=1)
        finally:
            structlog.reset_defaults()
    assert [(each["topic"], each["count"]) for each in logged] == [(SEEN, 1)]


def test_records_are_shown_on_a_terminal_and_written_to_a_pipe() -> None:
    value = EVIL.encode() + b"\xff\n\t."
    record = ConsumerRecord(
        topic="t",
        partition=0,
        offset=1,
        timestamp=2,
        timestamp_type=TimestampType.CREATE_TIME,
        key=EVIL.encode(),
        value=value,
        headers=((f"h{EVIL}", EVIL.encode()),),
        leader_epoch=0,
    )
    every = {f"print.{name}": "true" for name in ("key", "headers", "value")}
    for form in (by_properties(every, Deserialisers()), by_pattern(r"%k %h %s\n")):
        assert EVIL.encode() in form(record)
        shown = for_a_terminal(form)(record).decode()
        assert UNSAFE.isdisjoint(shown)
        assert f"{SEEN}\\xff\n\t." in shown
        assert shown.count(SEEN) == 4
    shown = for_a_terminal(as_json(Deserialisers()))(record).decode()
    assert UNSAFE.isdisjoint(shown)
    assert json.loads(shown)["key"] == EVIL


@pytest.fixture(scope="module")
def hostile(brokers: ThreadedCluster) -> str:
    """Create a topic with such a record, and such a group with such a member, which is static."""
    brokers.create_topic("hostile")
    servers = brokers.bootstrap_servers
    lines = f"{EVIL}=v{EVIL}".replace("\r", "").encode()
    Command(servers)("produce", "hostile", "-K", "=", "-H", f"h={EVIL}", stdin=lines)

    async def join() -> None:
        async with Consumer(
            "hostile",
            bootstrap_servers=servers,
            group_id=f"g{EVIL}",
            group_instance_id="i1",
            client_id=f"c{EVIL}",
            auto_offset_reset="earliest",
        ) as consumer:
            while not await consumer.poll(timeout_ms=500):
                pass
            await consumer.commit()

    trio.run(join)
    return "hostile"


@attrs.frozen
class Words:
    words: tuple[str, ...]
    shows: str = SEEN
    exit_code: int = 0


GROUP = f"g{EVIL}"


@pytest.mark.parametrize(
    "asked",
    [
        Words(("group", "list")),
        Words(("group", "list", "--output", "json"), shows="g\\u001b[2J"),
        Words(("group", "describe", GROUP)),
        Words(("group", "describe", GROUP, "--members", "--verbose")),
        Words(("group", "describe", GROUP, "--state")),
        Words(("group", "describe", GROUP, "--output", "json"), shows="\\u001b[2J"),
        Words(("group", "describe", f"no{EVIL}"), exit_code=1),
        Words(("group", "delete", GROUP)),
        Words(
            ("group", "reset-offsets", GROUP, "--to-earliest", "--topic", "hostile"), exit_code=1
        ),
        Words(("topic", "describe", f"t{EVIL}"), exit_code=1),
        Words(("topic", "create", f"t{EVIL}"), exit_code=1),
        Words(("consume", f"t{EVIL}", "--exit-at-end"), exit_code=1),
        Words(("consume", "hostile", "--from-beginning", "--exit-at-end", "--output", "json")),
    ],
    ids=lambda asked: " ".join(asked.words).replace(EVIL, "").replace(" ", "-"),
)
def test_commands_escape_foreign_names(understudy: Command, hostile: str, asked: Words) -> None:
    done = understudy(*asked.words, exit_code=asked.exit_code)
    assert UNSAFE.isdisjoint(done.output), done.output
    if asked.words[0] != "consume":
        assert asked.shows in done.output, done.output


def test_a_dump_shows_what_is_in_records(tmp_path: Path) -> None:
    segment = tmp_path / "00000000000000000000.log"
    evil = EVIL.encode()
    record = Record(timestamp=1, key=evil, value=evil + b"\xff", headers=((EVIL, evil),))
    segment.write_bytes(encode_batch([record]))
    for more in ([], ["--output", "json"]):
        done = Command("nowhere:1")("dump-log", "--files", str(segment), "--print-data-log", *more)
        assert UNSAFE.isdisjoint(done.output)
        assert r"\u001b[2J" in done.output
    damaged = tmp_path / f"{EVIL}.log"
    damaged.write_bytes(b"none")
    done = Command("nowhere:1")("dump-log", "--files", str(damaged))
    assert UNSAFE.isdisjoint(done.output)
    assert SEEN in done.output


@pytest.mark.slow
def test_a_terminal_is_not_cleared_and_a_pipe_has_the_bytes(
    brokers: ThreadedCluster, hostile: str
) -> None:
    command = [sys.executable, "-m", "replication.cli", "-b", brokers.bootstrap_servers]
    command += ["consume", "hostile", "--from-beginning", "--exit-at-end"]
    piped = subprocess.run(command, capture_output=True, check=True, timeout=60)
    assert b"\x1b[2J" in piped.stdout
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL) as process:
        os.close(theirs)
        seen = b""
        try:
            while more := os.read(ours, 4096):
                seen += more
        except OSError:  # the other end is closed
            pass
        os.close(ours)
    assert process.returncode == 0
    assert b"\x1b" not in seen
    assert rb"v\u001b[2J" in seen
