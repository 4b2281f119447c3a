"""`understudy produce` and `consume` against Apache Kafka: what its console tools read and write."""

import pytest

from tests.cli.commands import Command
from tests.interop import tools
from tests.interop.kafka import Kafka

pytestmark = pytest.mark.interop

LINES = "h:1,i:NUL\tk1\tone\nNUL\tNUL\ttwo\nj:x\tk3\tNUL\n"
PARSED = ["parse.key=true", "parse.headers=true", "null.marker=NUL"]
PRINTED = [f"print.{each}=true" for each in ("partition", "offset", "headers", "key", "value")]


def options(properties: list[str], flag: str = "--property") -> list[str]:
    return [word for each in properties for word in (flag, each)]


def ours(kafka: Kafka, *arguments: str, stdin: str = "") -> str:
    return Command(kafka.bootstrap_servers)(*arguments, stdin=stdin.encode()).stdout


def test_lines_are_parsed_and_printed_alike(kafka: Kafka) -> None:
    for topic in ("by-us", "by-them"):
        ours(kafka, "topic", "create", topic, "--partitions=1")
    ours(kafka, "produce", "by-us", *options(PARSED), stdin=LINES)
    parsing = options(PARSED, "--reader-property")
    kafka.run_tool(tools.CONSOLE_PRODUCER, "--topic=by-them", *parsing, stdin=LINES)
    reading = ["--from-beginning", "--max-messages=3"]
    for topic in ("by-us", "by-them"):
        flags = ["--topic", topic, *reading]
        printed = kafka.run_tool(
            tools.CONSOLE_CONSUMER, *flags, *options(PRINTED, "--formatter-property")
        )
        assert len(printed.splitlines()) == 3
        assert ours(kafka, "consume", *flags, *options(PRINTED)) == printed
    of_us, of_them = (
        ours(kafka, "consume", "--topic", topic, *reading, *options(PRINTED))
        for topic in ("by-us", "by-them")
    )
    assert of_us == of_them


def test_a_transaction_of_ours_is_there_for_them_or_not(kafka: Kafka) -> None:
    ours(kafka, "topic", "create", "printed-of", "--partitions=1")
    own = ["produce", "printed-of", "--transactional-id", "console"]
    ours(kafka, *own, "--abort", stdin="never\n")
    ours(kafka, *own, stdin="there\n")
    reading = ["--topic=printed-of", "--from-beginning", "--max-messages=1"]
    printed = kafka.run_tool(tools.CONSOLE_CONSUMER, *reading, "--isolation-level=read_committed")
    assert printed == "there\n"
