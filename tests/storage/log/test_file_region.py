"""A region pins its file: deletion waits for it, truncation aborts it."""

import gc
from pathlib import Path

import pytest

from storage.errors import RegionAbortedError
from storage.filesystem import OsFile, OsFileSystem
from storage.log.file_region import Pins


@pytest.fixture
def file(tmp_path: Path) -> OsFile:
    file = OsFileSystem().open(str(tmp_path / "f"), create=True)
    file.write(0, b"0123456789")
    return file


def is_open(file: OsFile) -> bool:
    try:
        file.size()
    except ValueError:
        return False
    return True


def test_a_region_reads_its_stretch(file: OsFile) -> None:
    region = Pins(file).pin(2, 5)
    assert region.read() == b"23456"
    buffer = bytearray(10)
    assert region.read_into(memoryview(buffer), skip=3) == 2
    assert buffer[:2] == b"56"


def test_a_file_stays_open_until_its_last_region_is_released(file: OsFile) -> None:
    pins = Pins(file)
    first, second = pins.pin(0, 5), pins.pin(5, 5)
    pins.close()
    first.release()
    first.release()
    assert is_open(file)
    assert second.read() == b"56789"
    second.release()
    assert not is_open(file)


def test_a_region_that_was_dropped_lets_go(file: OsFile) -> None:
    pins = Pins(file)
    region = pins.pin(0, 5)
    pins.close()
    assert is_open(file)
    del region
    gc.collect()
    assert not is_open(file)


def test_truncation_aborts_the_regions_that_reach_past_it(file: OsFile) -> None:
    pins = Pins(file)
    below, above = pins.pin(0, 5), pins.pin(4, 2)
    pins.abort_beyond(5)
    file.truncate(5)
    assert below.read() == b"01234"
    with pytest.raises(RegionAbortedError, match="truncated below 6"):
        above.read()
    with pytest.raises(RegionAbortedError):
        above.read_into(memoryview(bytearray(2)))
