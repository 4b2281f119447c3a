"""kcat, which is librdkafka at a prompt."""

import json
import re
import shutil
import subprocess
from typing import Any

from tests.interop.card.features import CODECS, SECONDS, SENT
from tests.interop.card.secured import Entrance

LINES = [each.decode() for each in SENT]


def version() -> str | None:
    if shutil.which("kcat") is None:
        return None
    said = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"Version (\S+) .*librdkafka (\S+)", said)
    return f"kcat {found[1]} (librdkafka {found[2]})" if found else "kcat"


VERSION = version()
_OLD_SCRAM = "librdkafka before 2.6.1 says its nonce twice (its #4895), which Kafka 4 refuses too"
KNOWN = {"scram_sha_256": _OLD_SCRAM, "scram_sha_512": _OLD_SCRAM}


def kcat(servers: str, *arguments: str, given: str = "") -> str:
    done = subprocess.run(
        ["kcat", "-b", servers, *arguments],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def send(servers: str, topic: str, *arguments: str) -> None:
    given = "".join(f"{each}\n" for each in LINES)
    kcat(servers, "-P", "-t", topic, "-p", "0", *arguments, given=given)


def read_all(servers: str, topic: str, *arguments: str) -> list[dict[str, Any]]:
    said = kcat(servers, "-C", "-t", topic, "-o", "beginning", "-e", "-J", *arguments)
    return [json.loads(line) for line in said.splitlines()]


def payloads(servers: str, topic: str, *arguments: str) -> list[str]:
    return [each["payload"] for each in read_all(servers, topic, *arguments)]


def produce_and_consume(servers: str, topic: str) -> None:
    send(servers, topic, "-X", "acks=all")
    assert payloads(servers, topic) == LINES


def compression(servers: str, topic: str) -> None:
    for codec in CODECS:
        send(servers, topic, "-z", codec)
    assert payloads(servers, topic) == LINES * 4


def idempotence(servers: str, topic: str) -> None:
    send(servers, topic, "-X", "enable.idempotence=true")
    assert payloads(servers, topic) == LINES


def headers_and_nulls(servers: str, topic: str) -> None:
    kcat(servers, "-P", "-t", topic, "-K:", "-Z", "-H", "a=1", given="key:\n")
    (read,) = read_all(servers, topic)
    assert (read["key"], read["payload"], read["headers"]) == ("key", None, ["a", "1"])


def offsets_by_time(servers: str, topic: str) -> None:
    send(servers, topic)
    at = [each["ts"] for each in read_all(servers, topic)]
    said = kcat(servers, "-Q", "-t", f"{topic}:0:{at[-1]}")
    assert said == f"{topic} [0] offset {at.index(at[-1])}\n"


def group_goes_on(servers: str, topic: str) -> None:
    send(servers, topic)
    earliest = ["-X", "auto.offset.reset=earliest"]
    read = [kcat(servers, "-G", topic, "-c", "5", *earliest, topic) for _ in range(2)]
    assert "".join(read).split() == LINES


def transactions(servers: str, topic: str) -> None:
    """Commit a transaction; kcat has no way to abort one."""
    send(servers, topic, "-X", f"transactional.id={topic}")
    assert payloads(servers, topic, "-X", "isolation.level=read_committed") == LINES


# Ways in. It reads its input to the end before it sends, so nothing shows whether it would renew a
# login; librdkafka does since 2.2 (its #4301).


def words_for(way: Entrance) -> list[str]:
    return [each for key, value in way.as_librdkafka().items() for each in ("-X", f"{key}={value}")]


def enter(way: Entrance, topic: str) -> None:
    words = words_for(way)
    send(way.servers, topic, *words)
    earliest = ["-X", "auto.offset.reset=earliest"]
    said = kcat(way.servers, *words, "-G", topic, "-c", f"{len(SENT)}", *earliest, topic)
    assert said.split() == LINES


def turned_away(way: Entrance, topic: str) -> None:
    """List the topics, which is refused before a login."""
    assert "Authentication failed" in failure(way, "-L")


def refused(way: Entrance, topic: str) -> None:
    said = failure(way, "-P", "-t", topic, "-p", "0")
    assert "Topic authorization failed" in said
    assert "Group authorization failed" in failure(way, "-G", topic, topic)


def failure(way: Entrance, *arguments: str) -> str:
    done = subprocess.run(
        ["kcat", "-b", way.servers, *words_for(way), *arguments],
        input="x\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode != 0, done.stdout
    return done.stderr
