"""`understudy produce` and `consume`: lines to records and back, in every form."""

import json
import math
import struct

import pytest

from replication.cli.consume_formats import KafkaDeserialiser, NotDeserialisableError
from replication.testing import ThreadedCluster
from tests.cli.commands import Command

ALL = ["--offset", "earliest", "--exit-at-end"]


@pytest.fixture
def topic(brokers: ThreadedCluster, request: pytest.FixtureRequest) -> str:
    name = "t-" + "".join(c if c.isalnum() else "-" for c in request.node.name)[:100]
    brokers.create_topic(name)
    return name


def read(understudy: Command, topic: str, *arguments: str) -> bytes:
    return understudy("consume", topic, *ALL, *arguments).stdout_bytes


def test_lines_come_back_as_they_were(understudy: Command, topic: str) -> None:
    lines = b"one\n\ntwo\r\n\xff\x00\xfe\nno end"
    answer = understudy("produce", topic, stdin=lines)
    assert answer.stdout == ""
    assert answer.stderr == f"5 records in {topic}: partition 0 at offsets 0 to 4\n"
    read = understudy("consume", topic, *ALL)
    assert read.stdout_bytes == lines + b"\n"
    assert read.stderr == "Processed a total of 5 messages\n"


def test_keys_and_headers_by_kafkas_properties(understudy: Command, topic: str) -> None:
    parsed = ["parse.key=true", "key.separator=:", "parse.headers=true", "null.marker=NUL"]
    lines = b"h:1,i:2\tk:v\nNUL\tk2:NUL\nj:NUL\tNUL:a:b\n"
    properties = [word for each in parsed for word in ("--property", each)]
    understudy("produce", topic, *properties, stdin=lines)
    shown = ["timestamp", "partition", "offset", "headers", "key", "value"]
    printed = [word for each in shown for word in ("--property", f"print.{each}=true")]
    literals = ["--property", "key.separator=|", "--property", "null.literal=NIL"]
    answer = read(understudy, topic, *printed, *literals).decode().splitlines()
    without_times = [line.partition("|")[2] for line in answer]
    assert without_times == [
        "Partition:0|Offset:0|h:1,i:2|k|v",
        "Partition:0|Offset:1|NO_HEADERS|k2|NIL",
        "Partition:0|Offset:2|j:NIL|NIL|a:b",
    ]
    assert answer[0].startswith("CreateTime:1")
    keys = ["--property", "print.key=true", "--property", "print.value=false"]
    assert read(understudy, topic, *keys) == b"k\nk2\nnull\n"


def test_kcats_forms(understudy: Command, topic: str) -> None:
    flags = ["-K", "=", "-H", "a=1", "-H", "b=", "-Z", "-D", ";"]
    understudy("produce", topic, *flags, stdin=b"k=v;nothing=;")
    form = r"%t %p %o %k/%K %s/%S %h %%\x41\t%R\n"
    one, two = read(understudy, topic, "-f", form).split(b"\n", 1)
    assert one == topic.encode() + b" 0 0 k/1 v/1 a=1,b= %A\t\x00\x00\x00\x01"
    assert two == topic.encode() + b" 0 1 nothing/7 /-1 a=1,b= %A\t\xff\xff\xff\xff\n"


def test_keys_and_values_by_kafkas_deserialisers(understudy: Command, topic: str) -> None:
    five, half = struct.pack(">q", 5), struct.pack(">d", 0.5)
    understudy("produce", topic, "-K", "=", "-D", ";", stdin=five + b"=" + half)
    kafkas = "org.apache.kafka.common.serialization.LongDeserializer"
    shown = ["--property", "print.key=true", "--property", "value.deserializer=Double"]
    assert read(understudy, topic, "--key-deserializer", kafkas, *shown) == b"5\t0.5\n"
    kinds = ["--key-deserializer", "long", "--value-deserializer", "DoubleDeserializer"]
    (answer,) = map(json.loads, read(understudy, topic, *kinds, "--output", "json").splitlines())
    assert (answer["key"], answer["value"]) == (5, 0.5)
    understudy("produce", topic, stdin=b"short\n")
    done = understudy("consume", topic, *ALL, "--value-deserializer", "double", exit_code=1)
    assert done.stdout == "0.5\n", "what came before it is written"
    assert f"understudy: {topic}-0 at offset 1: 5 bytes are not a valid double" in done.stderr


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (-123.25, "-123.25"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (1.5e300, "1.5E300"),
        (5e-324, "5.0E-324"),
        (0.1 + 0.2, "0.30000000000000004"),
        (100.0, "100.0"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (math.nan, "NaN"),
    ],
)
def test_numbers_are_printed_as_java_does(number: float, text: str) -> None:
    assert KafkaDeserialiser("double").text(struct.pack(">d", number)).decode() == text


def test_a_float_has_only_the_digits_that_identify_it() -> None:
    single = KafkaDeserialiser("FloatDeserializer")
    for number, text in ((0.1, b"0.1"), (3.4028234663852886e38, b"3.4028235E38"), (1e7, b"1.0E7")):
        assert single.text(struct.pack(">f", number)) == text


def test_other_kinds() -> None:
    assert KafkaDeserialiser("short").text(b"\xff\xfe") == b"-2"
    assert KafkaDeserialiser("Integer").text(b"\0\0\1\0") == b"256"
    assert KafkaDeserialiser("boolean").text(b"\1") == b"true"
    assert KafkaDeserialiser("string").text(b"\xff") == b"\xff"
    name = "12345678-1234-5678-1234-567812345678"
    assert KafkaDeserialiser("UUID").text(name.encode()) == name.encode()
    for kind, data in (("boolean", b"\2"), ("uuid", b"x"), ("long", b"")):
        with pytest.raises(
            NotDeserialisableError, match=f"{len(data)} bytes are not a valid {kind}"
        ):
            KafkaDeserialiser(kind).text(data)


def test_json_both_ways(understudy: Command, topic: str) -> None:
    made = understudy("produce", topic, "-k", "k", "--output", "json", stdin=b"v\n\xff\n").stdout
    places = [json.loads(line) for line in made.splitlines()]
    assert [(each["topic"], each["partition"], each["offset"]) for each in places] == [
        (topic, 0, 0),
        (topic, 0, 1),
    ]
    first, second = map(json.loads, read(understudy, topic, "--output", "json").splitlines())
    assert first == {
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp": places[0]["timestamp"],
        "timestamp_type": "CreateTime",
        "leader_epoch": 0,
        "key": "k",
        "value": "v",
        "headers": [],
    }
    assert second["value_base64"] == "/w=="
    assert "value" not in second


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["-o", "2", "-e"], "234"),
        (["-o", "-2", "-e"], "34"),
        (["-o", "s@0", "-e"], "01234"),
        (["-o", "s@99999999999999", "-e"], ""),
        (["-e"], ""),
        (["--from-beginning", "-c", "2"], "01"),
        (["--from-beginning", "--timeout-ms", "300"], "01234"),
        (["-o", "1", "-c", "3", "-p", "0"], "123"),
        (["-o", "earliest", "-e", "--filter", "3"], "3"),
        (["-o", "earliest", "-c", "1", "--filter", "value~[34]"], "3"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_where_it_begins_and_ends(
    understudy: Command, brokers: ThreadedCluster, flags: list[str], expected: str
) -> None:
    if not brokers.leader("five"):
        brokers.create_topic("five")
        understudy("produce", "five", stdin=b"0\n1\n2\n3\n4\n")
    assert "".join(understudy.lines("consume", "five", *flags)) == expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (["a"], ["apple", "pear"]),
        (["key=k2"], ["pear"]),
        (["key~^k[13]$"], ["apple", "plum"]),
        (["value~^p", "key=1"], []),
        (["header.colour"], ["apple", "pear"]),
        (["header.colour=gre"], ["pear"]),
        (["header.colour~^r.d$"], ["apple"]),
    ],
    ids=str,
)
def test_a_filter(
    understudy: Command, brokers: ThreadedCluster, wanted: list[str], expected: list[str]
) -> None:
    if not brokers.leader("fruit"):
        brokers.create_topic("fruit")
        properties = ["--property", "parse.key=true", "--property", "parse.headers=true"]
        lines = b"colour:red\tk1\tapple\ncolour:green\tk2\tpear\nsize:s\tk3\tplum\n"
        understudy("produce", "fruit", *properties, stdin=lines)
    filters = [word for each in wanted for word in ("--filter", each)]
    assert understudy.lines("consume", "fruit", *ALL, *filters) == expected


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_where_it_was(understudy: Command, topic: str, protocol: str) -> None:
    """Records polled beyond the maximum do not count as read."""
    understudy("produce", topic, stdin=b"0\n1\n2\n3\n4\n")
    group = ["--group", f"of-{topic}", "--group-protocol", protocol]
    group += ["--from-beginning", "-c", "2"]
    assert understudy.lines("consume", topic, *group) == ["0", "1"]
    assert understudy.lines("consume", topic, *group) == ["2", "3"]
    (described,) = understudy.json("group", "describe", f"of-{topic}")
    assert (described["type"], described["state"]) == (protocol, "Empty")
    assert described["offsets"][0]["current_offset"] == 4
    by_hand = ["--group", f"of-{topic}", "-p", "0", "-e"]
    assert understudy.lines("consume", topic, *by_hand) == ["4"]


def test_a_transaction_is_there_or_not(understudy: Command, topic: str) -> None:
    own = ["produce", topic, "--transactional-id", f"id-of-{topic}"]
    answer = understudy(*own, "--abort", stdin=b"never\n").stderr
    assert "the transaction was aborted" in answer
    assert "the transaction was committed" in understudy(*own, stdin=b"there\n").stderr
    committed = ["--isolation-level", "read_committed"]
    assert read(understudy, topic, *committed) == b"there\n"
    assert read(understudy, topic) == b"never\nthere\n"


def test_a_line_that_cannot_be_read_aborts_the_transaction(understudy: Command, topic: str) -> None:
    own = ["produce", topic, "--transactional-id", f"id-of-{topic}", "-K", "="]
    answer = understudy(*own, stdin=b"k=v\nno key\n", exit_code=1)
    assert answer.stderr == "understudy: line 2: it has no key separator\n"
    assert read(understudy, topic, "--isolation-level", "read_committed") == b""


def test_a_record_that_is_too_large_fails_and_the_others_are_sent(
    understudy: Command, topic: str
) -> None:
    small = ["-X", "max.request.size=2000", "--sync"]
    answer = understudy(
        "produce", topic, *small, stdin=b"a\n" + 3000 * b"b" + b"\nc\n", exit_code=1
    )
    assert f"2 records in {topic}" in answer.stderr
    assert "understudy: 1 records failed: MESSAGE_TOO_LARGE" in answer.stderr
    assert read(understudy, topic) == b"a\nc\n"
    together = understudy(
        "produce", topic, *small[:2], stdin=b"d\n" + 3000 * b"e" + b"\nf\n", exit_code=1
    )
    assert "1 records failed" in together.stderr
    assert read(understudy, topic, "-o", "2") == b"d\nf\n"


@pytest.mark.parametrize(
    "flags", [["--acks", "0"], ["--acks", "1"], ["--compression-type", "zstd"]]
)
def test_acks_and_codecs(understudy: Command, topic: str, flags: list[str]) -> None:
    assert f"2 records in {topic}" in understudy("produce", topic, *flags, stdin=b"a\nb\n").stderr
    assert understudy.lines("consume", topic, "--from-beginning", "-c", "2") == ["a", "b"]


def test_several_topics_by_a_pattern(understudy: Command, brokers: ThreadedCluster) -> None:
    for name in ("several-1", "several-2"):
        brokers.create_topic(name)
        understudy("produce", name, stdin=name.encode())
    answer = understudy.lines("consume", "--include", "several-.", *ALL)
    assert sorted(answer) == ["several-1", "several-2"]
    group = ["--group", "of-several", "--from-beginning", "-e"]
    answer = understudy.lines("consume", "--include", "several-.", *group)
    assert sorted(answer) == ["several-1", "several-2"]


def test_properties_have_the_names_of_kip_1147(understudy: Command, topic: str) -> None:
    keyed = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    small = ["--command-property", "max.request.size=2000"]
    lines = b"k:v\nk:" + 3000 * b"b" + b"\n"
    answer = understudy("produce", topic, *keyed, *small, stdin=lines, exit_code=1)
    assert "1 records failed: MESSAGE_TOO_LARGE" in answer.stderr
    shown = ["--formatter-property", "print.key=true", "--command-property", "client.id=me"]
    assert understudy.lines("consume", topic, *ALL, *shown) == ["k\tv"]


@pytest.mark.parametrize(
    "wrong",
    [
        "consume",
        "consume t --from-beginning --offset 5",
        "consume t --offset five",
        "consume t --offset stored",
        "consume t --group g --offset 5",
        "consume t --group-protocol consumer",
        "consume t --output json -f %s",
        "consume t -f %x",
        "consume t --property print.kex=true",
        "consume t --key-deserializer Lang",
        "consume t --value-deserializer Long -f %s",
        "consume t --filter value~(",
        "produce",
        "produce t --topic t",
        "produce t --abort",
        "produce t --acks 2",
        "produce t --property parse.kex=true",
        "produce t --property key.separator=",
        "produce t --property headers.separator=:",
        "produce t -H nothing",
        "produce t -X nothing",
        "produce t --command-property nothing",
    ],
)
def test_contradicting_arguments_are_a_usage_error(understudy: Command, wrong: str) -> None:
    answer = understudy(*wrong.split(" "), exit_code=2)
    assert answer.stderr.splitlines()[-1].startswith("Error: ")


@pytest.mark.parametrize("what", ["consume nowhere", "produce nowhere", "consume five -p 7"])
def test_an_unknown_topic_or_group_is_an_error(
    understudy: Command, brokers: ThreadedCluster, what: str
) -> None:
    if not brokers.leader("five"):
        brokers.create_topic("five")
    answer = understudy(*what.split(), "--timeout", "200", stdin=b"x\n", exit_code=1)
    assert answer.stderr.startswith("understudy: ")
    assert len(answer.stderr.splitlines()) == 1
