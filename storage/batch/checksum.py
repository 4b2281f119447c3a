"""CRC-32C, without what the package around it imports.

`import crc32c` also brings its command line and asks for its own version: argparse,
importlib.metadata and all of email are then a tenth of the start of a client. The function is in
an extension module, and that is all that is loaded here.
"""

from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec, PathFinder
from pathlib import Path
from typing import Final, TypeAlias, cast

from storage.types import Buffer

_EXTENSION: Final = "_crc32c"

Checksum: TypeAlias = Callable[[Buffer], int]


def _load() -> Checksum:
    """Load the function that `crc32c.crc32c` is, straight from the extension where that is found."""
    package = PathFinder.find_spec("crc32c")
    for directory in (package and package.submodule_search_locations) or ():
        for suffix in EXTENSION_SUFFIXES:
            path = Path(directory) / f"{_EXTENSION}{suffix}"
            if path.is_file():
                name = f"crc32c.{_EXTENSION}"
                loader = ExtensionFileLoader(name, str(path))
                module = loader.create_module(ModuleSpec(name, loader, origin=str(path)))
                loader.exec_module(module)
                return cast("Checksum", module.crc32c)
    import crc32c  # noqa: PLC0415

    return cast("Checksum", crc32c.crc32c)


crc32c: Final = _load()
