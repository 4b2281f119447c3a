"""Files to dump, and the output of the command about them."""

from collections.abc import Iterable

from storage.testing import FaultyFileSystem
from storage.tools.dump import DumpOptions, is_damage
from storage.tools.dump.entries import Entry
from storage.tools.dump.text import Findings, TextOptions, error_line, line
from tests.storage.logs import batch, fill, new_disk, open_log

LOG = "/d/00000000000000000000.log"
INDEX = "/d/00000000000000000000.index"
TIME_INDEX = "/d/00000000000000000000.timeindex"
DEEP = DumpOptions(deep_iteration=True)
ALL = TextOptions(print_data_log=True)


def put(disk: FaultyFileSystem, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.truncate(0)
    file.write(0, data)
    file.close()


def shown(entries: Iterable[Entry], options: TextOptions = ALL) -> str:
    """Standard output, as the command prints it."""
    lines = [line(entry, options) for entry in entries]
    return "\n".join(text for text in lines if text is not None)


def complaints(entries: Iterable[Entry]) -> list[str]:
    """Standard error, as the command prints it."""
    findings, at_once = Findings(), []
    for entry in entries:
        findings.note(entry)
        at_once.append(error_line(entry))
    return [text for text in at_once if text is not None] + list(findings.lines())


def damage_in(entries: Iterable[Entry]) -> list[Entry]:
    return [entry for entry in entries if is_damage(entry)]


def five_batches() -> list[bytes]:
    return [batch(3, at=3 * n, timestamp=1000 + n).tobytes() for n in range(5)]


def indexed_log() -> FaultyFileSystem:
    disk = new_disk()
    log = open_log(disk)
    for n in range(40):
        fill(log, 1, timestamp=1000 + n)
    log.close()
    return disk
