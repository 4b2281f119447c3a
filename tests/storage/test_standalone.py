"""A log directory without a broker: the example of docs/storage.md, and its promises."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import storage
from storage.batch.records import Record
from storage.errors import CorruptRecordError, LogDirectoryError, LogDirectoryLockedError
from storage.filesystem import OsFileSystem
from storage.manager.log_manager import LogManager
from storage.types import TopicPartition
from tests.storage.test_kafka_made import KAFKA_MADE

CODECS, TRANSACTIONS = TopicPartition("codecs", 0), TopicPartition("transactions", 0)
PAGE = Path(__file__).parents[2] / "docs" / "storage.md"
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def kafkas(tmp_path: Path) -> Path:
    """Kafka's own log directory, as it shut down."""
    copy = tmp_path / "log"
    shutil.copytree(KAFKA_MADE, copy)
    return copy


def flip_a_bit(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    written = path.stat()
    path.write_bytes(data)
    # A disk that rots leaves the time of the file alone.
    os.utime(path, ns=(written.st_atime_ns, written.st_mtime_ns))


def files(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_the_example_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with storage.open_log_directory("broker-1/log", node_id=1) as logs:
        logs.get_or_create(ORDERS, b"\1" * 16)
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    exec(compile(found[1], str(PAGE), "exec"), {})
    assert "[b'one book']" in capsys.readouterr().out


def test_every_name_of_the_page_is_there() -> None:
    for name in re.findall(r"^\| `(\w+)\(", PAGE.read_text(), re.MULTILINE):
        assert hasattr(storage, name), name


def test_kafkas_own_files_are_sound_and_stay_as_they_are(kafkas: Path) -> None:
    before = files(kafkas)
    assert list(storage.check(kafkas)) == []
    assert files(kafkas) == before


def test_damage_is_named_by_file_and_byte(kafkas: Path) -> None:
    path = kafkas / "codecs-0" / "00000000000000000000.log"
    flip_a_bit(path, 100)
    (found,) = storage.check(kafkas)
    assert "position=0" in str(found)


def test_a_directory_is_read_and_appended_to_and_left_clean(kafkas: Path) -> None:
    with storage.open_log_directory(kafkas) as logs:
        log = logs.get(CODECS)
        assert log is not None
        before = list(storage.read_records(log))
        assert len(before) == 50
        info = storage.append_records(log, [Record(value=b"new", timestamp=1_800_000_000_000)])
        assert info.first_offset == 50
        assert [each.value for each in storage.read_records(log, 49)] == [before[49].value, b"new"]
    with storage.open_log_directory(kafkas) as logs:
        assert logs.clean
        assert logs.previous_broker_epoch == -1, "it is not what Kafka's broker left"
        assert len(list(storage.read_records(logs.logs()[0]))) == 51
    assert list(storage.check(kafkas)) == []


def test_markers_of_transactions_are_no_records(kafkas: Path) -> None:
    with storage.open_log_directory(kafkas) as logs:
        log = logs.get(TRANSACTIONS)
        assert log is not None
        offsets = [record.offset for record in storage.read_records(log)]
    assert len(offsets) == 140
    assert not {20, 41, 62, 83, 104, 125} & set(offsets)


def test_reading_a_directory_leaves_it_as_the_broker_left_it(kafkas: Path) -> None:
    for _ in range(2):
        with storage.open_log_directory(kafkas) as logs:
            assert (logs.clean, logs.previous_broker_epoch) == (True, 2461)


def test_a_directory_in_use_is_refused(kafkas: Path) -> None:
    with storage.open_log_directory(kafkas):
        with pytest.raises(LogDirectoryLockedError):
            storage.repair(kafkas)
        assert list(storage.check(kafkas)) == []


def test_an_exception_leaves_it_as_a_kill_does(kafkas: Path) -> None:
    def fail() -> Iterator[None]:
        with storage.open_log_directory(kafkas):
            yield
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(fail())
    with storage.open_log_directory(kafkas) as logs:
        assert not logs.clean
        assert len(list(storage.read_records(logs.logs()[0]))) == 50


def test_a_directory_without_a_node_id_is_repaired_only_with_one(tmp_path: Path) -> None:
    with pytest.raises(LogDirectoryError, match="no log directory, or node_id"):
        storage.repair(tmp_path)
    assert os.listdir(tmp_path) == []
    assert storage.repair(tmp_path, node_id=3) == []


def test_a_repair_cuts_what_is_damaged_and_keeps_a_copy(kafkas: Path) -> None:
    """Damage below the recovery point, under a clean-shutdown marker: nobody else would look."""
    path = kafkas / "codecs-0" / "00000000000000000000.log"
    whole = path.read_bytes()
    flip_a_bit(path, 600)
    rotten = path.read_bytes()
    with storage.open_log_directory(kafkas) as logs:
        log = logs.get(CODECS)
        assert log is not None
        with pytest.raises(CorruptRecordError, match=rf"{path}, byte 520: .*CRC-32C"):
            list(storage.read_records(log))
    reports = {each.topic_partition: each for each in storage.repair(kafkas)}
    assert reports[CODECS].log_end_offset == 5
    assert reports[TRANSACTIONS].log_end_offset == 146
    assert path.read_bytes() == whole[:520]
    kept = [Path(each.kept) for each in reports[CODECS].repairs if each.kept]
    assert rotten[520:] in [each.read_bytes() for each in kept]
    assert list(storage.check(kafkas)) == []
    assert len(storage.repair(kafkas)) == 2
    assert not any(report.repairs for report in storage.repair(kafkas))


def test_a_broker_goes_on_where_a_repair_has_ended(kafkas: Path) -> None:
    flip_a_bit(kafkas / "codecs-0" / "00000000000000000000.log", 600)
    storage.repair(kafkas)
    logs = LogManager(OsFileSystem(), [str(kafkas)], node_id=1)
    logs.startup()
    assert logs.previous_broker_epoch == -1, "a controller lets it not lead with what is left"
    log = logs.get(CODECS)
    assert log is not None
    assert (log.log_end_offset, log.recovery_point) == (5, 5)
    logs.close_uncleanly()


def test_a_log_that_was_cut_inside_a_batch_ends_with_the_one_before(tmp_path: Path) -> None:
    three = [Record(value=b"%d" % n, timestamp=1000) for n in range(3)]
    with storage.open_log_directory(tmp_path, node_id=1) as logs:
        log = logs.get_or_create(ORDERS)
        for _ in range(2):
            storage.append_records(log, three, leader_epoch=4)
        assert log.truncate_to(4)
        assert [record.offset for record in storage.read_records(log)] == [0, 1, 2]
        assert log.latest_epoch == 4
