"""`understudy verify`: its flags, its outputs, its exit codes."""

import json
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from replication.cli import group
from storage.batch.records import Record, encode_batch


def lay(directory: Path, partition: str, *values: bytes) -> str:
    folder = directory / partition
    folder.mkdir(parents=True)
    batches = [
        encode_batch([Record(timestamp=1000 * n, value=value)], base_offset=n, leader_epoch=3)
        for n, value in enumerate(values)
    ]
    (folder / f"{0:020d}.log").write_bytes(b"".join(batches))
    return str(directory)


def verify(*arguments: str) -> Result:
    return CliRunner().invoke(group, ["verify", *arguments])


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    """Copies that are the same but for the last record of `orders-1`."""
    for name, last in (("a", b"y"), ("b", b"z")):
        lay(tmp_path / name, "orders-0", b"x", b"y")
        lay(tmp_path / name, "orders-1", b"x", last)
        lay(tmp_path / name, "other-0", b"x")
    return str(tmp_path / "a"), str(tmp_path / "b")


def test_each_partition_has_a_line_and_the_exit_code_sums_up(pair: tuple[str, str]) -> None:
    result = verify(*pair)
    assert result.exit_code == 1
    same, parted, _ = result.stdout.splitlines()
    assert same == "orders-0: same in 2 copies, offsets 0 to 2 (exclusive), 2 batches, 2 records"
    assert parted.startswith("orders-1: diverges at offset 1 (bytes: rewrite): ")
    assert parted.count("1-1 of epoch 3, CRC ") == 2


def test_topics_and_partitions_are_chosen_as_with_kafkas_tool(pair: tuple[str, str]) -> None:
    assert verify(*pair, "--topics-include", "ot.*").exit_code == 0
    assert verify(*pair, "--topics-include", "other, nothing").exit_code == 0
    assert verify(*pair, "--topics-include", "other|orders", "--partitions", "0").exit_code == 0
    assert verify(*pair, "--partitions", "0-1,7").exit_code == 1
    assert verify(*pair, "--partitions", f"1-{10**18},0").exit_code == 1
    assert verify(*pair, "--partitions", "9" * 5000).exit_code == 2
    # A pattern is of the whole name.
    result = verify(*pair, "--topics-include", "order")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("understudy: cannot compare: no partition in ")


def test_a_timestamp_selects_the_first_record(pair: tuple[str, str]) -> None:
    result = verify(*pair, "--partitions", "0", "--time", "1000", "--topics-include", "orders")
    assert "offsets 1 to 2 (exclusive), 1 batches" in result.stdout
    assert verify(*pair, "--time", "-1").exit_code == 0
    assert verify(*pair, "--time", "-3").exit_code == 2


def test_json_has_all_of_it(pair: tuple[str, str]) -> None:
    result = verify(*pair, "--output", "json", "--topics-include", "orders")
    answer = json.loads(result.stdout)
    assert (result.exit_code, answer["same"]) == (1, False)
    same, parted = answer["partitions"]
    assert (same["result"], same["end_offset"]) == ("same", 2)
    assert (parted["offset"], parted["difference"], parted["cause"]) == (1, "bytes", "rewrite")
    assert [copy["leader_epoch"] for copy in parted["copies"]] == [3, 3]
    assert len({copy["crc"] for copy in parted["copies"]}) == 2


def test_compacted_copies_without_checkpoints_are_compared_on_demand(tmp_path: Path) -> None:
    def keyed(*offsets: int) -> bytes:
        return b"".join(
            encode_batch([Record(timestamp=1, key=b"k", value=b"%d" % n)], base_offset=n)
            for n in offsets
        )

    for name, data in (("a", keyed(0, 1, 2)), ("b", keyed(0, 2))):
        folder = tmp_path / name / "t-0"
        folder.mkdir(parents=True)
        (folder / f"{0:020d}.log").write_bytes(data)
    pair = str(tmp_path / "a"), str(tmp_path / "b")
    assert "(gap)" in verify(*pair).stdout
    result = verify(*pair, "--compacted")
    assert result.exit_code == 0
    assert "2 batches, 2 records, 1 keys" in result.stdout
    assert verify(*pair, "--compacted", "--exact").exit_code == 2


def test_copies_may_be_counted(pair: tuple[str, str], tmp_path: Path) -> None:
    result = verify(*pair, str(tmp_path / "a"), "--copies", "3", "--topics-include", "other")
    assert result.exit_code == 0
    result = verify(*pair, "--copies", "3", "--topics-include", "other")
    assert result.exit_code == 1
    assert "(missing copy)" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["nowhere", "at all"], "nowhere is not a directory", id="no directory"),
        pytest.param([], "give two", id="nothing"),
        pytest.param(["one"], "give two", id="one"),
        pytest.param(["a", "b", "--topics-include", "("], "missing )", id="no pattern"),
        pytest.param(["a", "b", "--partitions", "x"], "such as 0,3-5", id="no numbers"),
        pytest.param(["h:1", "-X", "key"], "expected KEY=VALUE", id="no property"),
        pytest.param(["h:1", "-X", "retry.backof.ms=1"], "retry.backoff.ms", id="unknown key"),
    ],
)
def test_sources_that_cannot_be_compared_are_one_line_and_exit_code_2(
    arguments: list[str], said: str
) -> None:
    result = verify(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_sources_without_a_common_partition_are_not_the_same(tmp_path: Path) -> None:
    result = verify(lay(tmp_path / "a", "t-0", b"x"), lay(tmp_path / "b", "u-0", b"x"))
    assert result.exit_code == 2
    assert "no partition is in two of the sources" in result.stderr


def test_the_wait_for_a_cluster_that_does_not_answer_is_limited(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("default.api.timeout.ms=300\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        result = verify(
            "--broker-list", address, "--command-config", str(config), "-X", "client.id=v"
        )
    assert result.exit_code == 2
    assert "not done within 300 ms" in result.stderr
