"""`understudy proxy` and `understudy up --faults`: a file of rules, and what is wrong with input."""

from pathlib import Path

import pytest
import trio

from replication.errors import ErrorCode, PeerUnavailableError
from replication.net import production_seams
from tests.cli.test_control import ask
from tests.cli.test_up import ended, refused, running, table_of
from tests.clients.proxied import proxy_process
from tests.replication.broker.clients import Client

pytestmark = pytest.mark.slow

RULES = """[
  {"api": "METADATA", "client_id": "test", "topic": "t", "error": "BROKER_NOT_AVAILABLE",
   "trigger": "once"}
]"""


@pytest.fixture
def rule_file(tmp_path: Path) -> Path:
    path = tmp_path / "rules.json"
    path.write_text(RULES)
    return path


def errors_of(address: str, count: int) -> list[int]:
    """Return the error of topic `t` in each of so many Metadata responses."""
    client = Client(production_seams())

    async def look() -> list[int]:
        answers = [await client.metadata(address, "t") for _ in range(count)]
        return [answer.topics[0].error_code for answer in answers]

    return trio.run(look)


EXPECTED = [ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("flags", [[], pytest.param(["--isolated"], marks=pytest.mark.deep)])
def test_a_file_of_rules_is_in_force_at_our_brokers(flags: list[str], rule_file: Path) -> None:
    with running("up", "-n", "1", "--any-port", "--faults", str(rule_file), *flags) as process:
        ((_, _, address),) = table_of(process, 1)
        assert errors_of(address, 2) == EXPECTED


def test_the_same_file_is_in_force_at_a_proxy(rule_file: Path) -> None:
    with running("up", "-n", "1", "--any-port") as process:
        ((_, _, address),) = table_of(process, 1)
        with proxy_process(address, "--faults", str(rule_file)) as proxy:
            assert errors_of(proxy.bootstrap_servers, 2) == EXPECTED
            status, listed = ask(proxy.control)
            (rule,) = listed["rules"]
            assert (status, rule["hits"], rule["calls"]) == (200, 1, 2)
            status, _ = ask(proxy.control, "DELETE")
            assert (status, ask(proxy.control)) == (204, (200, {"rules": []}))
            status, wrong = ask(proxy.control, "POST", {"api": "FETSH", "delay_ms": 1})
            assert (status, wrong["field"]) == (400, "api")
            assert wrong["error"].endswith("did you mean FETCH?")
            status, described = ask(f"{proxy.control.removesuffix('/control/faults')}/openapi.json")
            assert set(described["paths"]) == {
                "/openapi.json",
                "/control/faults",
                "/control/faults/{number}",
                "/control/faults/{number}/hits",
                "/control/faults/{number}/wait",
            }
            taken = proxy.bootstrap_servers.partition(":")[2]
            assert refused("proxy", "--upstream", address, "--port", taken) == (
                f"understudy: cannot listen on 127.0.0.1:{taken}: Address already in use"
            )


def test_a_table_shows_the_brokers_and_a_lost_one_is_a_line() -> None:
    with running("up", "-n", "1", "--any-port") as process:
        ((_, _, address),) = table_of(process, 1)
        with running("proxy", "--upstream", address, "--port", "0") as proxy:
            assert proxy.stdout is not None
            assert proxy.stderr is not None
            head, row = (proxy.stdout.readline().split() for _ in range(2))
            assert head == ["NODE-ID", "PROXY-ADDRESS", "KAFKA-ADDRESS"]
            assert (row[0], row[2]) == ("1", address)
            process.kill()
            process.wait()
            for _ in range(2):
                with pytest.raises(PeerUnavailableError):
                    errors_of(row[1], 1)
            assert proxy.stderr.readline().startswith(f"understudy: broker 1 at {address} is gone")
            proxy.terminate()
            assert proxy.stderr.read() == ""


def test_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    path.write_text(RULES.replace("METADATA", "METADATE"))
    wrong = (
        f"understudy: {path}:2: api: 'METADATE' is not an API that brokers serve, such as PRODUCE;"
        " did you mean METADATA?"
    )
    assert refused("proxy", "--upstream", "localhost:1", "--faults", str(path)) == wrong
    assert refused("up", "--any-port", "--faults", str(path)) == wrong
    assert "Connection refused" in refused("proxy", "--upstream", "127.0.0.1:1")
    assert refused("proxy", "--upstream", "nothing") == (
        "understudy: bootstrap.servers=nothing: expected host:port"
    )
    everywhere = ended("proxy", "--upstream", "localhost:1", "--host", "0.0.0.0")
    assert everywhere.returncode == 2
    assert "--host 0.0.0.0 needs --advertised-host" in everywhere.stderr
